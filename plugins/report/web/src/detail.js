// What is known of one node or region.

import { bytes, copyable, el } from "./dom.js";

export function nodeDetail(result, node, go) {
  const link = (other) => el("button", { class: "link", onclick: () => go(`n${other}`) }, result.name(other));
  const facts = [
    ["operator", result.operator(node)],
    ["backend", result.backend(node)],
    ["precision", result.precision(node) || "no float"],
    ["output", result.output(node)],
  ];
  for (const [port, format] of Object.entries(result.nodes.ports[node] ?? {})) facts.push([`port ${port}`, format]);
  const origins = result.nodes.origins[node];
  if (origins) facts.push(["from", origins.join(", ")]);
  const region = result.nodes.region[node];
  const [above, below] = result.neighbors(node);
  const some = (nodes) => (nodes.length ? nodes.slice(0, 12).map(link) : ["none"]);
  return el("div", {},
    el("h2", { title: result.name(node) }, result.name(node)),
    el("dl", {}, facts.map(([key, value]) => [el("dt", {}, key), el("dd", {}, value)]),
      el("dt", {}, "region"), el("dd", {}, el("button", { class: "link", onclick: () => go(`r${region}`) }, result.regionTitle(region))),
      el("dt", {}, "reads"), el("dd", { class: "links" }, some(above)),
      el("dt", {}, "read by"), el("dd", { class: "links" }, some(below))),
    el("h3", {}, "Reasons"),
    result.reasonsOf(node).map((reason) => reasonBlock(result, reason, go)),
    result.nodes.reasons[node] ? null : el("p", {}, "No remarks: it is as in the source model."));
}

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
  const open = view.expanded.has(index);
  return el("div", {},
    el("h2", {}, result.regionTitle(index)),
    el("button", { id: "expand", onclick: () => { view.toggle(index); go(`r${index}`); } }, open ? "Collapse" : "Expand"),
    el("dl", {},
      el("dt", {}, "nodes"), el("dd", {}, String(region.nodes)),
      el("dt", {}, "operators"), el("dd", {}, region.operators.map(([name, count]) => `${name} ${count}`).join(", ")),
      el("dt", {}, "bytes in"), el("dd", {}, bytes(region.in)),
      el("dt", {}, "bytes out"), el("dd", {}, bytes(region.out)),
      predicted ? [el("dt", {}, "predicted"), el("dd", {}, `${predicted.ms} ms`)] : null,
      time ? [el("dt", {}, "measured"), el("dd", {}, `${time.ms} ms, ${time.engine}`)] : null,
      el("dt", {}, "reads from"), el("dd", { class: "links" }, around("target", "source")),
      el("dt", {}, "read by"), el("dd", { class: "links" }, around("source", "target"))));
}
