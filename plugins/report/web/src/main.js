// The page: a summary, the graph, tables, and what is known of the node that was clicked.

import { Comparison } from "./comparison.js";
import { itemDetail, regionDetail, reasonBlock } from "./detail.js";
import { copyable, el } from "./dom.js";
import { measures } from "./graph/heat.js";
import { GraphView } from "./graph/view.js";
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
const comparison = result.comparison ? new Comparison(result, new Result(result.comparison.second), panel, () => (detail.hidden = true)) : null;
if (comparison) TABS.Comparison = () => comparison.panel();

const made = {};
const tabs = el("nav", { role: "tablist" }, Object.keys(TABS).map((name) =>
  el("button", { role: "tab", id: `tab-${name}`, onclick: () => show(name), onkeydown: (event) => besideTab(event, name) }, name)));
const search = el("input", { id: "search", type: "search", placeholder: "search names, operators, reasons", "aria-label": "search nodes",
  oninput: () => find(search.value) });

function besideTab({ key }, name) {
  const names = Object.keys(TABS);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
  if (!step) return;
  const next = names[(names.indexOf(name) + step + names.length) % names.length];
  show(next);
  document.getElementById(`tab-${next}`).focus();
}

function show(name) {
  if (!made[name]) {
    made[name] = el("div", { class: "panel", role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}` });
    panels.append(made[name]);
    made[name].append(TABS[name]());
  }
  for (const [other, panel] of Object.entries(made)) panel.hidden = other !== name;
  for (const tab of tabs.children) {
    tab.setAttribute("aria-selected", String(tab.id === `tab-${name}`));
    tab.tabIndex = tab.id === `tab-${name}` ? 0 : -1;
  }
  document.body.dataset.tab = name;
  if (name === "Graph") view ??= new GraphView(canvas, result, (id) => select(id));
  if (name === "Comparison") comparison.open();
}

function graphPanel() {
  const shades = result.backends.map(({ backend, nodes }) => {
    const dot = el("i", { class: "dot" });
    dot.style.background = result.color.get(backend);
    return el("span", {}, dot, `${backend} ${nodes}`);
  });
  const detailOf = el("select", { "aria-label": "level of detail", onchange: () => view.detail(Number(detailOf.value)) },
    ["Regions", "Blocks", "Nodes", "Everything"].map((name, depth) => el("option", { value: String(depth), selected: depth === 2 }, name)));
  const known = measures(result);
  const heat = el("select", { "aria-label": "color by", onchange: () => view.heat(heat.value) },
    el("option", { value: "" }, "color: backend"), Object.entries(known).map(([name, { title }]) => el("option", { value: name }, `color: ${title}`)));
  return el("div", { id: "graph" },
    el("div", { class: "bar", role: "toolbar", "aria-label": "graph" },
      el("button", { title: "Show all of it (f)", onclick: () => view.fit() }, "Fit"),
      el("button", { title: "Top to bottom, or left to right (d)", onclick: () => view.turn() }, "Turn"),
      detailOf, Object.keys(known).length ? heat : null,
      el("button", { title: "Save what is drawn as an SVG file", onclick: () => view.saveSvg() }, "SVG"),
      el("span", { class: "legend" }, shades),
      el("span", { class: "hint" }, "click: facts \u00b7 double click or Enter: open \u00b7 arrows: along edges \u00b7 Shift+click: path \u00b7 / search \u00b7 f fit")), canvas);
}

function panel(...content) {
  const close = () => {
    detail.hidden = true;
    (document.body.dataset.tab === "Comparison" ? comparison.view : view)?.clear();
  };
  detail.replaceChildren(el("button", { class: "close", "aria-label": "close", onclick: close }, "\u00d7"), ...content.filter(Boolean));
  detail.hidden = false;
  detail.scrollTop = 0;
}

/** Show what is known of an item or region that was chosen in the graph; the address leads there again. */
function select(id) {
  if (id === null) {
    detail.hidden = true;
    address("");
    return;
  }
  const number = Number(id.slice(1));
  panel(id.startsWith("n") ? itemDetail(result, number, go) : regionDetail(result, number, view, go));
  address(id.startsWith("n") ? `#${result.kind(number)}=${encodeURIComponent(result.kind(number) === "conversion" ? result.conversion(number).value : result.label(number))}` : `#region=${result.regions[number].number}`);
}

function address(hash) {
  if (location.hash !== hash) history.replaceState(null, "", hash || `${location.pathname}${location.search}`);
}

/** Go to an item or region in the graph. */
function go(id) {
  show("Graph");
  select(id);
  view.focus(id);
}

/** Follow an address such as `#node=conv_1` or `#region=2`. */
function follow() {
  const match = location.hash.match(/^#(\w+)=(.*)$/);
  if (!match) return;
  const [kind, name] = [match[1], decodeURIComponent(match[2])];
  if (kind === "tab" && TABS[name]) return show(name);
  const found = kind === "region" ? result.regions.findIndex((region) => String(region.number) === name) : result.find(kind, name);
  if (found >= 0) go(`${kind === "region" ? "r" : "n"}${found}`);
}

function openReason(row) {
  const nodes = result.nodesOfReason(row);
  panel(el("h2", {}, "Reason"), reasonBlock(result, { ...result.reasons[row], why: result.exampleOf(result.reasons[row]) }, go), el("h3", {}, `${nodes.length} nodes`),
    el("div", { class: "list" }, nodes.slice(0, 200).map((node) => el("button", { class: "link", onclick: () => go(`n${node}`) }, result.name(node)))));
}

function openFinding(finding) {
  const nodes = finding.nodes ?? [];
  panel(el("h2", {}, finding.rule), el("div", { class: `reason ${finding.level === "warning" ? "missed" : ""}` }, el("p", {}, finding.text)),
    finding.advice ? el("p", {}, `what would help: ${finding.advice}`) : null,
    finding.command ? el("div", {}, "what would help:", copyable(finding.command)) : null,
    el("div", { class: "list" }, nodes.map((item) => el("button", { class: "link", onclick: () => go(`n${item}`) }, result.label(item)))));
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
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest?.("input, textarea, select")) return;
  event.preventDefault();
  search.focus();
});
search.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    search.value = "";
    find("");
    view?.stage.focus();
  }
});
addEventListener("hashchange", follow);
show("Summary");
follow();
globalThis.dovetailReport = { result, show, go, view: () => view, comparison };
