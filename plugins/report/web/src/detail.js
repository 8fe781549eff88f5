// What is known of one node or region.

import { bytes, copyable, el } from "./dom.js";

/** Facts of a node, conversion, input or output, its neighbors, and its reasons. */
export function itemDetail(result, item, go) {
  const kind = result.kind(item);
  const link = (other) => el("button", { class: "link", onclick: () => go(`n${other}`) }, result.label(other));
  const [above, below] = result.neighbors(item);
  const some = (items) => (items.length ? items.slice(0, 12).map(link) : ["none"]);
  const reasons = result.reasonsOf(item);
  const title = kind === "node" ? `${result.operator(item)} ${result.name(item)}` : result.label(item);
  const facts = { node: nodeFacts, conversion: conversionFacts }[kind]?.(result, item) ?? [["type", result.typeOfEnd(item)]];
  const region = kind === "node" ? result.nodes.region[item] : -1;
  return el("div", {},
    el("h2", { title }, title),
    el("dl", {}, facts.map(([key, value]) => [el("dt", {}, key), el("dd", {}, value)]),
      region >= 0 ? [el("dt", {}, "region"), el("dd", {}, el("button", { class: "link", onclick: () => go(`r${region}`) }, result.regionTitle(region)))] : null,
      el("dt", {}, "reads"), el("dd", { class: "links" }, some(above)),
      el("dt", {}, "read by"), el("dd", { class: "links" }, some(below))),
    kind === "node" || reasons.length ? el("h3", {}, "Reasons") : null,
    reasons.map((reason) => reasonBlock(result, reason, go)),
    kind === "node" && !reasons.length ? el("p", {}, "No remarks: it is as in the source model.") : null,
    kind === "node" ? pinning(result, item) : null);
}

/** An item of a pair: its facts in both results, and what each says of it. */
export function pairDetail(pair, first, second, item, go) {
  const results = [first, second];
  const own = pair.sides.map((side) => side.own[item]);
  const kind = pair.kind(item);
  const factsOf = (result, at) => (at < 0 ? [["backend", "not there"]] : { node: nodeFacts, conversion: conversionFacts }[kind]?.(result, at) ?? [["type", result.typeOfEnd(at)]]);
  const facts = results.map((result, side) => {
    const found = new Map(); // a node may have several constants
    for (const [key, value] of factsOf(result, own[side])) found.set(key, found.has(key) ? `${found.get(key)}, ${value}` : value);
    return found;
  });
  const keys = [...new Set(facts.flatMap((one) => [...one.keys()]))];
  const row = (key) => {
    const [before, after] = facts.map((one) => one.get(key) ?? "");
    const cell = (text) => el("td", {}, before === after ? text : el("b", {}, text));
    return el("tr", {}, el("th", {}, key), cell(before), cell(after));
  };
  const title = kind === "node" ? `${pair.operator(item)} ${pair.name(item)}` : pair.label(item);
  const goTo = (side) => (id) => go(`n${pair.sides[side].own.indexOf(Number(id.slice(1)))}`);
  return el("div", {},
    el("h2", { title }, title),
    el("table", { class: "sides" }, el("thead", {}, el("tr", {}, el("th", {}, ""), el("td", {}, "before"), el("td", {}, "after"))), el("tbody", {}, keys.map(row))),
    results.map((result, side) => (own[side] < 0 ? null : [
      el("h3", {}, side ? "Reasons after" : "Reasons before"),
      result.reasonsOf(own[side]).map((reason) => reasonBlock(result, reason, goTo(side)))])));
}

function nodeFacts(result, node) {
  const facts = [["backend", result.backend(node)], ["precision", result.precision(node) || "no float"], ["result", result.output(node)], ["type", result.type(node)]];
  for (const [port, format] of Object.entries(result.nodes.ports[node] ?? {})) facts.push([`port ${port}`, format]);
  for (const text of result.constants(node)) facts.push(["constant", text]);
  for (const [name, operator] of result.folded(node)) facts.push(["inside of it", `${operator} ${name}`]);
  if (result.scope(node)) facts.push(["module", result.scope(node)]);
  const origins = result.nodes.origins[node];
  if (origins) facts.push(["from", origins.join(", ")]);
  const expansion = result.expansion(node);
  if (expansion) facts.push(["in the file", expansion.map(([operator]) => operator).join(", ")]);
  return facts;
}

function conversionFacts(result, item) {
  const { value, kind, from, to, at, bytes: size, nodes } = result.conversion(item);
  return [["value", value], ["kind", kind], ["from", from], ["to", to], ["first reader", at], ["bytes", bytes(size)], ["in the file", nodes.join(", ") || "part of its neighbors"]];
}

/** The command that puts a node elsewhere; a click on a backend writes it, and its line in plan.yaml. */
function pinning(result, node) {
  const shown = el("div");
  const pin = (backend) => {
    const name = result.name(node);
    shown.replaceChildren(copyable(`${result.command} --pin ${quoted(`${name}=${backend}`)}`), el("p", {}, "or in plan.yaml:"),
      copyable(result.planLine(node, backend)), el("p", { class: "hint" }, "dovetail compile MODEL --plan plan.yaml"));
  };
  const others = [...new Set([...result.nodes.backends, ...result.regions.map((region) => region.backend), "host"])].filter((backend) => backend !== result.backend(node));
  return others.length ? el("div", {}, el("h3", {}, "Pin it elsewhere"), el("div", { class: "bar" }, others.map((backend) => el("button", { onclick: () => pin(backend) }, backend))), shown) : null;
}

const quoted = (text) => (/^[\w.\/=:@-]+$/.test(text) ? text : `'${text.replace(/'/g, `'"'"'`)}'`);

export function reasonBlock(result, reason, go) {
  const because = (reason.because ?? []).map((name) => {
    const node = result.byName(name);
    return node === undefined ? name : el("button", { class: "link", onclick: () => go(`n${node}`) }, name);
  });
  return el("div", { class: `reason ${reason.kind}` },
    el("p", {}, el("b", {}, reason.kind), ` ${reason.pass}/${reason.rule}: ${reason.why}`),
    reason.source ? el("p", { class: "source" }, "rule: ", el("code", {}, reason.source)) : null,
    because.length ? el("p", { class: "links" }, "because of ", because) : null,
    reason.why_not ? el("p", {}, `a change would not help: ${reason.why_not}`) : null,
    reason.advice ? el("p", {}, `what would help: ${reason.advice}`) : null,
    reason.command ? el("div", {}, "what would help:", copyable(reason.command)) : null);
}

export function regionDetail(result, index, view, go) {
  const region = result.regions[index];
  const time = result.times.find((row) => row.region === index);
  const predicted = result.predicted.find((row) => row.region === index);
  const around = (side, other) => [...new Set(result.borders.filter((b) => b[side] === index).map((b) => b[other]))].slice(0, 12)
    .map((i) => el("button", { class: "link", onclick: () => go(`r${i}`) }, result.regionTitle(i)));
  const frame = view.regionElement(index);
  return el("div", {},
    el("h2", {}, result.regionTitle(index)),
    frame ? el("button", { id: "expand", onclick: () => { view.toggle(frame); go(`r${index}`); } }, frame.open ? "Close" : "Open") : null,
    el("dl", {},
      el("dt", {}, "nodes"), el("dd", {}, String(region.nodes)),
      el("dt", {}, "operators"), el("dd", {}, region.operators.map(([name, count]) => `${name} ${count}`).join(", ")),
      el("dt", {}, "bytes in"), el("dd", {}, bytes(region.in)),
      el("dt", {}, "bytes out"), el("dd", {}, bytes(region.out)),
      predicted ? [el("dt", {}, "predicted"), el("dd", {}, `${predicted.ms} ms`)] : null,
      region.reported.map(([name, value]) => [el("dt", {}, `${name}, reported`), el("dd", {}, value)]),
      time ? [el("dt", {}, "measured"), el("dd", {}, `${time.ms} ms, ${time.engine}`)] : null,
      el("dt", {}, "reads from"), el("dd", { class: "links" }, around("target", "source")),
      el("dt", {}, "read by"), el("dd", { class: "links" }, around("source", "target"))));
}
