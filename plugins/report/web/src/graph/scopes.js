// Scopes: the modules of the source program, by the names of nodes or by what their exporter says of them.

/** The scopes around a node, outermost first. */
export function scopesOf(result, item) {
  const known = result.scope(item);
  if (known) return known.split("/");
  const name = result.name(item);
  return name.split(name.includes("/") ? "/" : ".").filter(Boolean).slice(0, -1);
}

/** The scopes of the first node in an element; null if it has none, as a conversion. */
function scopesIn(element, result) {
  if (element.kind === "node" || element.kind === "body") {
    const found = scopesOf(result, element.item);
    return found.length ? found : null;
  }
  for (const child of element.turns?.[0] ?? []) {
    const found = scopesIn(child, result);
    if (found) return found;
  }
  return null;
}

/**
 * A list in more than 2 and at most `most` pieces, each of one scope, as long as these make it shorter and none of them
 * is nearly all of it; or null.
 */
export function piecesOf(list, result, most) {
  const paths = list.map((element) => scopesIn(element, result));
  for (let depth = 1; depth < 8; depth++) {
    const pieces = [];
    let last = "";
    let between = []; // what is in no scope, such as a conversion, is inside of a scope that goes on behind it
    list.forEach((element, at) => {
      const scope = paths[at]?.slice(0, depth).join("/") ?? "";
      if (!scope) between.push(element);
      else if (scope === last) pieces.at(-1).push(...between.splice(0), element);
      else pieces.push(...between.splice(0).map((one) => [one]), [element]);
      last = scope || last;
    });
    pieces.push(...between.map((one) => [one]));
    const longest = Math.max(...pieces.map((piece) => piece.length));
    if (pieces.length > 2 && pieces.length <= most && pieces.length < 0.7 * list.length && longest < 0.9 * list.length) return pieces;
    if (pieces.length > most) return null;
  }
  return null;
}

/** The scopes that two lists share, with `*` for what differs in a number, such as that of a layer. */
export function sharedScopes(first, last, result) {
  const [one, other] = [first, last].map((list) => shared(list.map((element) => scopesIn(element, result)).filter(Boolean)));
  const found = [];
  for (let i = 0; i < Math.min(one.length, other.length); i++) {
    const [number, another] = [one[i], other[i]].map((part) => part.replace(/\d+/g, "*"));
    if (one[i] !== other[i] && number !== another) break;
    found.push(one[i] === other[i] ? one[i] : number);
  }
  return found;
}

function shared(paths) {
  const found = [];
  for (let i = 0; paths.length && i < paths[0].length && paths.every((path) => path[i] === paths[0][i]); i++) found.push(paths[0][i]);
  return found;
}
