// The page: a summary, the graph, tables, and what is known of the node that was clicked.

import { nodeDetail, regionDetail, reasonBlock } from "./detail.js";
import { copyable, el } from "./dom.js";
import { GraphView } from "./graph.js";
import { Result } from "./result.js";
import * as views from "./views.js";

const result = new Result(JSON.parse(document.getElementById("data").textContent));
const detail = el("aside", { id: "detail", hidden: true });
const panels = el("div", { id: "panels" });
const canvas = el("div", { id: "canvas" });
const found = el("span", { id: "found" });
let view = null;

const TABS = {
  Summary: () => views.summary(result, go, openReason),
  Graph: () => graphPanel(),
  Findings: () => views.findings(result, openFinding),
  Nodes: () => views.nodes(result, go),
  Borders: () => views.borders(result, go),
  Reasons: () => views.reasons(result, go, openReason),
  Numbers: () => views.numbers(result, go),
};
if (result.comparison) TABS.Comparison = () => views.comparison(result, go);

const made = {};
const tabs = el("nav", { role: "tablist" }, Object.keys(TABS).map((name) =>
  el("button", { role: "tab", id: `tab-${name}`, onclick: () => show(name) }, name)));
const search = el("input", { id: "search", type: "search", placeholder: "search names, operators, reasons", "aria-label": "search nodes",
  oninput: () => find(search.value) });

function show(name) {
  if (!made[name]) {
    made[name] = el("div", { class: "panel", role: "tabpanel" });
    panels.append(made[name]);
    made[name].append(TABS[name]());
  }
  for (const [other, panel] of Object.entries(made)) panel.hidden = other !== name;
  for (const tab of tabs.children) tab.setAttribute("aria-selected", String(tab.id === `tab-${name}`));
  document.body.dataset.tab = name;
  if (name === "Graph") {
    view ??= new GraphView(canvas, result, (id) => select(id));
    view.sigma.resize();
    view.sigma.refresh();
  }
}

function graphPanel() {
  const legend = result.backends.map(({ backend }) => {
    const dot = el("i", { class: "dot" });
    dot.style.background = result.color.get(backend);
    return el("span", {}, dot, backend);
  });
  return el("div", { id: "graph" }, el("div", { class: "bar" },
    el("button", { onclick: () => view.expandAll(true) }, "Expand all"), el("button", { onclick: () => view.expandAll(false) }, "Collapse all"),
    el("button", { onclick: () => view.sigma.getCamera().animatedReset() }, "Fit"), el("span", { class: "legend" }, legend),
    el("span", { class: "hint" }, "A square is a region: click for its facts, double-click to expand or collapse it.")), canvas);
}

function panel(...content) {
  const close = () => {
    detail.hidden = true;
    view?.sigma.resize();
    view?.select(null);
  };
  detail.replaceChildren(el("button", { class: "close", "aria-label": "close", onclick: close }, "\u00d7"), ...content.filter(Boolean));
  detail.hidden = false;
  detail.scrollTop = 0;
}

/** Show what is known of a node or region, and select it in the graph. */
function select(id) {
  const number = Number(id.slice(1));
  if (!view) show("Graph");
  panel(id.startsWith("n") ? nodeDetail(result, number, go) : regionDetail(result, number, view, go));
  view.sigma.resize();
  view.select(id);
}

/** Go to a node or region in the graph. */
function go(id) {
  show("Graph");
  select(id);
  view.focus(id);
}

function openReason(row) {
  const nodes = result.nodesOfReason(row);
  panel(el("h2", {}, "Reason"), reasonBlock(result, result.reasons[row], go), el("h3", {}, `${nodes.length} nodes`),
    el("div", { class: "list" }, nodes.slice(0, 200).map((node) => el("button", { class: "link", onclick: () => go(`n${node}`) }, result.name(node)))));
}

function openFinding(finding) {
  const nodes = finding.nodes ?? [];
  panel(el("h2", {}, finding.rule), el("div", { class: `reason ${finding.level === "warning" ? "missed" : ""}` }, el("p", {}, finding.text)),
    finding.advice ? el("p", {}, `what would help: ${finding.advice}`) : null,
    finding.command ? el("div", {}, "what would help:", copyable(finding.command)) : null,
    el("div", { class: "list" }, nodes.map((node) => el("button", { class: "link", onclick: () => go(`n${node}`) }, result.name(node)))));
}

function find(text) {
  const nodes = text.trim() ? result.search(text) : null;
  found.textContent = nodes === null ? "" : nodes.length === 500 ? "500 or more found" : `${nodes.length} found`;
  view?.mark(nodes);
  if (nodes === null) {
    detail.hidden = true;
    return;
  }
  panel(el("h2", {}, "Found"), el("div", { class: "list" }, nodes.slice(0, 200).map((node) =>
    el("button", { class: "link", onclick: () => go(`n${node}`) }, `${result.name(node)} (${result.operator(node)})`))));
}

document.getElementById("app").append(
  el("header", {}, el("h1", { title: result.title }, result.title), tabs, search, found),
  el("main", {}, panels, detail));
show("Summary");
globalThis.dovetailReport = { result, show, go, view: () => view };
