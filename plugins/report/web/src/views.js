// The tabs but for the graph.

import { histogram, layerChart, rangeChart } from "./charts.js";
import { reasonBlock } from "./detail.js";
import { bytes, copyable, el, figure } from "./dom.js";
import { table } from "./table.js";

const section = (title, ...content) => el("section", {}, el("h2", {}, title), content);
const none = (text) => el("p", { class: "none" }, text);
const known = (rows) => (rows.length && rows.every((row) => (row.bytes ?? null) === null) ? "size unknown" : bytes(sum(rows, "bytes")));
const sum = (rows, key) => rows.reduce((total, row) => total + (row[key] ?? 0), 0);

export function summary(result, go, open) {
  const bar = el("div", { class: "share", role: "img", "aria-label": result.coverage }, result.backends.map((row) => {
    const part = el("i", { title: `${row.backend}: ${row.nodes} nodes` });
    part.style.cssText = `flex:${row.nodes};background:${result.color.get(row.backend)}`;
    return part;
  }));
  const warnings = result.findings.filter((finding) => finding.level === "warning");
  const cards = [
    [result.counts.nodes, "nodes of the plan"], [sum(result.backends, "regions"), "regions"],
    [result.borders.length, `borders, ${known(result.borders)}`],
    [result.counts.conversions, "conversions"], [result.counts.expanded, "expanded nodes in the file"],
    [warnings.length, "warnings"],
  ];
  const worst = Math.min(...result.accuracy.map((row) => row["SNR dB"]).filter((value) => typeof value === "number"));
  if (Number.isFinite(worst)) cards.push([`${figure(worst, 3)} dB`, "worst SNR"]);
  const times = timesOfRegions(result);
  for (const key of ["predicted", "measured"]) {
    if (result.regions.every((_, region) => times.get(region)?.[key] !== undefined)) {
      cards.push([`${figure(sum([...times.values()], key), 3)} ms`, `regions, ${key}`]);
    }
  }
  return el("div", {},
    el("p", { class: "coverage" }, result.coverage), bar,
    el("div", { class: "cards" }, cards.map(([value, what]) => el("div", { class: "card" }, el("b", {}, String(value)), what))),
    result.whole.filter((row) => row.kind !== "passed").map((row) => reasonBlock(result, { ...row, because: [] }, go)),
    section("Backends", table(result.backends, [
      { key: "backend", title: "backend", width: "160px", color: (row) => result.color.get(row.backend) },
      { key: "nodes", title: "nodes", number: true, width: "80px" },
      { key: "share", title: "share", number: true, width: "80px", show: (row) => `${figure(100 * row.share, 3)} %` },
      { key: "regions", title: "regions", number: true, width: "80px" },
      { key: "precisions", title: "precisions" },
    ])),
    section("What stands in the way", result.obstacles.length
      ? table(result.obstacles.map((row) => ({ ...result.reasons[row.reason], ...row })), [
        { key: "nodes", title: "nodes", number: true, width: "70px" },
        { key: "backend", title: "not on", width: "120px" },
        { key: "why", title: "reason", width: "minmax(240px, 3fr)", show: (row) => result.exampleOf(row) },
        { key: "advice", title: "remedy", width: "minmax(160px, 2fr)", show: (row) => remedy(row) },
        { key: "source", title: "rule", width: "160px" },
      ], { pick: (row) => open(row.reason) }) : none("Nothing: every node is where its backend wants it.")),
    section("Accuracy", result.accuracy.length
      ? table(result.accuracy, Object.keys(result.accuracy[0]).map((key) => ({ key, title: key, number: key !== "output" })))
      : none("Not compared in this compilation: `dovetail verify` compares, `compile --data FILE --report` keeps the figures."),
    result.goals.map((line) => el("p", {}, line))),
    section("Times", times.size ? table([...times.values()], [
      { key: "title", title: "region" }, { key: "engine", title: "engine" },
      { key: "predicted", title: "predicted ms", number: true, width: "120px" },
      { key: "measured", title: "median ms", number: true, width: "100px" }, { key: "runs", title: "runs", number: true, width: "80px" },
    ], { pick: (row) => go(`r${row.region}`) }) : none("Not measured: `dovetail run RESULT --data FILE --trace trace.json`, then `dovetail report RESULT --trace trace.json`. `dovetail profile BACKEND` lets reports predict them."),
    result.tuning.candidates ? [el("p", {}, result.tuning.certificate), table(result.tuning.candidates,
      ["candidate", "seconds", "SNR dB", "answers", "bytes", "remark"].map((key) => ({ key, title: key, number: ["seconds", "SNR dB", "answers", "bytes"].includes(key) })))] : null),
    section("Conversions", result.conversion_table.length ? table(result.conversion_table, [
      { key: "kind", title: "kind" }, { key: "from", title: "from" }, { key: "to", title: "to" },
      { key: "number", title: "number", number: true, width: "90px" },
      { key: "bytes", title: "bytes", number: true, width: "170px", show: (row) => (row.unknown === row.number ? "unknown" : bytes(row.bytes) + (row.unknown ? ` and ${row.unknown} unknown` : "")) },
    ]) : none("None.")),
    section("Files", result.files.length ? table(result.files, [
      { key: "file", title: "file" }, { key: "bytes", title: "size", number: true, width: "120px", show: (row) => bytes(row.bytes) },
    ]) : none("The result was not saved when this page was written.")),
    section("Command", copyable(result.command)));
}

/** What would help, in words or as a command; every reason against a place has one. */
function remedy(row) {
  const found = row.command ?? row.advice ?? (row.why_not ? `none: ${row.why_not}` : "");
  if (found || !["missed", "failed"].includes(row.kind)) return found;
  return "`dovetail explain OUT NODE` tries what would bring it there";
}

function timesOfRegions(result) {
  const times = new Map();
  const row = (region) => {
    if (!times.has(region)) times.set(region, { region, title: result.regionTitle(region) });
    return times.get(region);
  };
  for (const { region, ms } of result.predicted) row(region).predicted = ms;
  for (const { region, ms, engine, runs } of result.times) Object.assign(row(region), { measured: ms, engine, runs });
  return times;
}

export function nodes(result, go) {
  const rows = result.nodes.name.map((name, node) => ({ name, node }));
  return table(rows, [
    { key: "name", title: "node", width: "minmax(160px, 2fr)" },
    { key: "operator", title: "operator", show: (row) => result.operator(row.node) },
    { key: "backend", title: "backend", show: (row) => result.backend(row.node), color: (row) => result.color.get(result.backend(row.node)) },
    { key: "precision", title: "precision", show: (row) => result.precision(row.node) },
    { key: "region", title: "region", show: (row) => String(result.regions[result.nodes.region[row.node]]?.number ?? "") },
    { key: "why", title: "first reason", width: "minmax(200px, 3fr)", show: (row) => result.reasonsOf(row.node)[0]?.why ?? "" },
  ], { pick: (row) => go(`n${row.node}`), height: 640 });
}

export function borders(result, go) {
  if (!result.borders.length) return none("All nodes are in one region: there are no borders.");
  return table(result.borders, [
    { key: "value", title: "value", width: "minmax(140px, 2fr)" },
    { key: "source", title: "from", show: (row) => result.regionTitle(row.source), color: (row) => result.color.get(result.regions[row.source].backend) },
    { key: "target", title: "to", show: (row) => result.regionTitle(row.target), color: (row) => result.color.get(result.regions[row.target].backend) },
    { key: "bytes", title: "bytes", number: true, width: "100px", show: (row) => bytes(row.bytes) },
    { key: "type", title: "type" }, { key: "conversion", title: "conversion" },
  ], { pick: (row) => go(`n${row.producer}`), height: 640, sort: { key: "bytes", down: true } });
}

export function reasons(result, go, open) {
  return el("div", {}, table(result.reasons.map((row, index) => ({ ...row, index })), [
    { key: "kind", title: "kind", width: "80px" },
    { key: "nodes", title: "nodes", number: true, width: "80px" },
    { key: "rule", title: "rule", show: (row) => `${row.pass}/${row.rule}` },
    { key: "why", title: "reason", width: "minmax(240px, 3fr)", show: (row) => result.exampleOf(row) },
    { key: "advice", title: "remedy", width: "minmax(160px, 2fr)", show: (row) => remedy(row) },
    { key: "source", title: "source", width: "160px" },
  ], { pick: (row) => open(row.index), height: 480, sort: { key: "nodes", down: true } }),
  section("Nodes of the source model that are gone", result.sources.length
    ? table(result.sources.map(([name, operator, fate]) => ({ name, operator, fate })), [
      { key: "name", title: "node" }, { key: "operator", title: "operator" }, { key: "fate", title: "why", width: "minmax(200px, 2fr)" },
    ]) : none("None.")));
}

export function numbers(result, go) {
  const pick = (name) => result.byName(name) !== undefined && go(`n${result.byName(name)}`);
  return el("div", {},
    section("Errors of layers", result.layers.length ? [el("p", {}, "Bar: SNR of the layer alone on exact inputs; mark: with what has accumulated. Worst first."), layerChart(result.layers, pick)]
      : none("Not measured: `dovetail compile --data FILE --layers` measures them.")),
    section("Ranges", result.ranges.length ? [
      el("p", {}, "Bar: the measured range, logarithmic; behind it: what the integers of the value hold."), rangeChart(result.ranges),
      table(result.ranges, ["value", "min", "max", "smallest", "format", "scale", "clipped"].map((key) => ({ key, title: key, number: !["value", "format"].includes(key) }))),
    ] : none("Not measured: `dovetail compile --data FILE` measures them.")),
    section("Weights in 8 bits", result.histograms.length
      ? [el("div", { class: "histograms" }, result.histograms.slice(0, 60).map(histogram)),
        table(result.histograms, ["weight", "type", "elements", "levels", "ends", "scale", "largest", "scales"].map((key) => ({ key, title: key, number: !["weight", "type"].includes(key) })))]
      : none("There are none.")),
    section("Activations in 8 bits", result.activations.length
      ? [el("div", { class: "histograms" }, result.activations.slice(0, 60).map(histogram)),
        table(result.activations, ["value", "type", "elements", "levels", "ends", "clipped", "scale", "zero_point"].map((key) => ({ key, title: key, number: !["value", "type"].includes(key) })))]
      : none("Not measured: `dovetail report RESULT --data FILE` measures them.")),
    section("Scales", result.scales.length
      ? table(result.scales, ["value", "format", "scale", "largest", "scales", "source", "readers"].map((key) => ({ key, title: key, number: ["scale", "largest", "scales"].includes(key) })))
      : none("Nothing is quantized.")));
}

export function findings(result, open) {
  if (!result.findings.length) return none("Nothing was found.");
  return el("div", { class: "findings" }, table(result.findings, [
    { key: "level", title: "level", width: "90px" }, { key: "rule", title: "linter", width: "140px" },
    { key: "text", title: "finding", width: "minmax(300px, 4fr)" }, { key: "advice", title: "advice", show: (row) => row.command ?? row.advice ?? "" },
  ], { pick: open, height: 640 }));
}

export function comparison(result, second, go) {
  const { changes, alike } = result.comparison;
  const line = (title, of) => el("tr", {}, el("th", {}, title), el("td", {}, of(result)), el("td", {}, of(second)));
  return el("div", {},
    el("p", {}, `${alike} of the nodes are alike, ${changes.length} differ.`),
    el("table", { class: "sides" }, el("tbody", {},
      line("model", (one) => one.title), line("coverage", (one) => one.coverage),
      line("nodes", (one) => String(one.count)), line("regions", (one) => String(one.regions.length)),
      line("borders", (one) => `${one.borders.length}, ${known(one.borders)}`),
      line("conversions", (one) => String(one.counts.conversions)),
      line("size", (one) => (one.files.length ? bytes(sum(one.files, "bytes")) : "not saved")),
      line("SNR", (one) => one.accuracy.map((row) => `${row.output} ${figure(row["SNR dB"])} dB`).join(", ") || "not recorded"),
      line("command", (one) => one.command))),
    changes.length ? table(changes, [
      { key: "node", title: "node" }, { key: "operator", title: "operator" },
      { key: "first", title: "first", show: (row) => row.first || "not there" }, { key: "second", title: "second", show: (row) => row.second || "not there" },
    ], { pick: (row) => go(row.node), height: 560 }) : null);
}
