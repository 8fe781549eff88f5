// Two results as one graph: every node, end and conversion that either of them has, numbered through once.

import { Result, colorsOf } from "./result.js";

const NOT_THERE = "not there";

/** One result of a pair, asked about the items of the pair; for what only the other one has, that one answers. */
class Side {
  constructor(pair, result, own, slot) {
    Object.assign(this, { pair, result, own, slot, title: result.title, coverage: result.coverage, sides: [this], changed: pair.changed });
  }

  has(item) { return this.own[item] >= 0; }

  /** The result that has an item, and the number that it has there. */
  at(item) {
    const side = this.has(item) ? this : this.pair.sides.find((one) => one.has(item));
    return [side.result, side.own[item]];
  }

  ask(question, item) {
    const [result, own] = this.at(item);
    return result[question](own);
  }

  backend(item) { return this.has(item) ? this.result.backend(this.own[item]) : NOT_THERE; }
  precision(item) { return this.ask("precision", item); }
  operator(item) { return this.ask("operator", item); }
  name(item) { return this.ask("name", item); }
  label(item) { return this.ask("label", item); }
  typeOfEnd(item) { return this.ask("typeOfEnd", item); }
  constants(item) { return this.ask("constants", item); }
  folded(item) { return this.ask("folded", item); }
  conversion(item) { return this.ask("conversion", item); }
  expansion() { return undefined; } // the inside of a node belongs to one result alone
}

export class Pair extends Result {
  constructor(first, second) {
    const results = [first, second];
    const rows = KINDS.flatMap((kind) => merged(...results.map((result) => itemsOf(result, kind))));
    const own = [0, 1].map((side) => Int32Array.from(rows, (row) => row[side]));
    super(tablesOf(results, rows, own));
    this.color = colorsOf(results.flatMap((result) => [...result.color.keys()]));
    this.changed = new Set([...rows.keys()].filter((item) => own.some((of) => of[item] < 0) || this.differs(results, own, item)));
    this.sides = results.map((result, side) => new Side(this, result, own[side], side + 1));
  }

  differs([first, second], [one, other], item) {
    if (this.kind(item) !== "node") return false;
    return ["backend", "precision"].some((of) => first[of](one[item]) !== second[of](other[item]));
  }

  ownersOf(edge) { return this.owners[edge]; }
}

const KINDS = ["node", "input", "output", "conversion"];

/** The items of a kind, each with what it is recognized by in another result. */
function itemsOf(result, kind) {
  const firsts = [0, result.firstInput, result.firstOutput, result.firstConversion, result.items];
  const [from, to] = [firsts[KINDS.indexOf(kind)], firsts[KINDS.indexOf(kind) + 1]];
  const keyOf = (item) => {
    if (kind === "node") return `${result.operator(item)}\n${result.name(item)}`;
    if (kind !== "conversion") return result.label(item);
    const { value, kind: how, from: held, to: wanted, at } = result.conversion(item);
    return [how, value, held, wanted, at].join("\n");
  };
  return Array.from({ length: to - from }, (_, i) => [keyOf(from + i), from + i]);
}

/** Pairs of items with one key, -1 for none; what only the second list has stands behind what it follows there. */
function merged(first, second) {
  const waiting = new Map();
  for (const [key, item] of first) push(waiting, key, item);
  const partner = new Map();
  const following = new Map();
  let last = -1;
  for (const [key, item] of second) {
    const found = waiting.get(key)?.shift();
    if (found === undefined) push(following, last, item);
    else partner.set((last = found), item);
  }
  const alone = (after) => (following.get(after) ?? []).map((item) => [-1, item]);
  return [...alone(-1), ...first.flatMap(([, item]) => [[item, partner.get(item) ?? -1], ...alone(item)])];
}

const push = (map, key, value) => (map.has(key) ? map.get(key).push(value) : map.set(key, [value]));

/** The tables of a document for both: as those of a result, without regions, which differ. */
function tablesOf(results, rows, own) {
  const numbered = results.map((result, side) => {
    const numbers = new Int32Array(result.items);
    own[side].forEach((item, at) => item >= 0 && (numbers[item] = at));
    return numbers;
  });
  const offsets = [0, results[0].types.length];
  const of = ([one, other]) => (one >= 0 ? [results[0], one, 0] : [results[1], other, 1]);
  const kinds = KINDS.map((kind) => rows.filter((row) => { const [result, item] = of(row); return result.kind(item) === kind; }));
  const nodes = kinds[0];
  const both = (question) => interned(nodes.map((row) => {
    const texts = row.map((item, side) => (item >= 0 ? results[side][question](item) : NOT_THERE));
    return texts[0] === texts[1] ? texts[0] : texts.join(" \u2192 ");
  }));
  const column = (question) => nodes.map((row) => { const [result, item] = of(row); return result[question](item); });
  const typesOf = (list, question) => list.map((row) => { const [result, item, side] = of(row); return question(result, item) + offsets[side]; });
  const [operators, backends, precisions] = [interned(column("operator")), both("backend"), both("precision")];
  const scopes = interned(column("scope"));
  const ends = (list) => typesOf(list, (result, item) => result.typeIndexOfEnd(item)).map((type, i) => { const [result, item] = of(list[i]); return [result.label(item), type]; });
  const conversions = kinds[3].map((row) => { const [result, item] = of(row); return result.conversion(item); });
  const how = interned(conversions.map(({ kind, from, to }) => JSON.stringify([kind, from, to])));
  const holder = {};
  results.forEach((result, side) => Object.entries(result.nodes.holder).forEach(([node, outer]) => (holder[numbered[side][node]] = numbered[side][outer])));
  return {
    title: results[0].title, coverage: results.map((result) => result.coverage).join("; then "),
    regions: [], reasons: [], predicted: [], times: [], node_times: [], layers: [], expansions: [],
    types: results.flatMap((result) => result.types), inputs: ends(kinds[1]), outputs: ends(kinds[2]),
    conversion_kinds: how.texts.map((text) => JSON.parse(text)), conversion_reasons: {}, conversion_nodes: {},
    conversions: conversions.map(({ value, at, bytes }, i) => [value, how.numbers[i], at, bytes]),
    nodes: {
      name: column("name"), output: column("output"), type: typesOf(nodes, (result, item) => result.nodes.type[item]),
      operator: operators.numbers, operators: operators.texts, backend: backends.numbers, backends: backends.texts,
      precision: precisions.numbers, precisions: precisions.texts, scope: scopes.numbers, scopes: scopes.texts, region: nodes.map(() => -1), bytes: nodes.map(() => 0),
      constants: {}, constant_texts: [], expansion: {}, folded: {}, reasons: {}, holder,
    },
    ...edgesOf(results, numbered, offsets),
  };
}

/** The edges of both, and as bits which of them has each. */
function edgesOf(results, numbered, offsets) {
  const known = new Map();
  const [edges, owners] = [[], []];
  results.forEach((result, side) => {
    for (let i = 0; i < result.edges.length; i += 3) {
      const [from, to] = [numbered[side][result.edges[i]], numbered[side][result.edges[i + 1]]];
      const key = from * 2097152 + to;
      if (!known.has(key)) {
        known.set(key, owners.length);
        owners.push(0);
        edges.push(from, to, result.edges[i + 2] + offsets[side]);
      }
      owners[known.get(key)] |= side + 1;
    }
  });
  return { edges, owners };
}

function interned(texts) {
  const numbers = new Map();
  const column = texts.map((text) => {
    if (!numbers.has(text)) numbers.set(text, numbers.size);
    return numbers.get(text);
  });
  return { numbers: column, texts: [...numbers.keys()] };
}
