// The graph of the page: it keeps what is open and selected, and redraws when that or the view changes.

import { el } from "../dom.js";
import { Camera } from "./camera.js";
import { heatOf, legend, measures } from "./heat.js";
import { BUDGETS, Element, Hierarchy } from "./hierarchy.js";
import { Layout } from "./layout.js";
import { Minimap } from "./minimap.js";
import { Panes } from "./panes.js";
import { themeOf } from "./theme.js";
import { neighbor, shortestPath } from "./walking.js";

const HUGE = 1500; // visible boxes, up to which the picture is drawn anew while the view moves out of it
const REST = 120; // milliseconds without a move, after which the picture is drawn anew
const LEGIBLE = 0.78; // scale, from which on everything that is open at first can be read
const ENOUGH = 30; // boxes, from which on more of them count less than larger ones
const CLOSE = 0.5; // part of the window that a closed group fills before a turn of the wheel opens it

export class GraphView {
  /** `pick(id)` is called for what is chosen: `n3` is an item, `r1` a region; null for nothing. */
  constructor(container, result, pick) {
    Object.assign(this, { container, result, pick });
    this.hierarchy = new Hierarchy(result);
    this.layout = new Layout(this.hierarchy, result);
    this.measures = measures(result);
    this.panes = new Panes(result);
    this.stage = el("div", { class: "drawing", tabIndex: 0, role: "application", "aria-roledescription": "graph",
      "aria-label": `Graph of ${result.title}: ${result.coverage}. Arrow keys follow the edges, Enter opens, Escape leaves.` }, this.panes.frames);
    this.said = el("div", { class: "said", role: "status", "aria-live": "polite" });
    this.legend = el("div", { class: "legends" });
    this.camera = new Camera(this.panes.frames, (moving) => this.redraw(moving), (place, event) => this.click(place, event));
    this.camera.zoomed = (closer, place) => closer && this.openByZoom(place);
    this.minimap = new Minimap(this.camera);
    container.append(this.stage, this.minimap.canvas, this.legend, this.said);
    this.state = { selected: null, path: new Set(), matches: null, causes: [], heat: null, colors: result.color };
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => this.recolor());
    this.stage.addEventListener("keydown", (event) => this.key(event));
    for (const frame of this.panes.frames) frame.addEventListener("dblclick", (event) => this.doubleClick(event));
    addEventListener("resize", () => this.resize());
    new ResizeObserver(() => this.redraw(false)).observe(container);
    this.arrangeFirst();
  }

  /** Open as much as can be read in this window. */
  arrangeFirst() {
    let [most, best] = [0, BUDGETS[0]];
    const open = (budget) => {
      this.hierarchy.close().openFirst(budget);
      this.arrange(true);
    };
    for (const budget of BUDGETS) {
      open(budget);
      const value = Math.min(1, this.drawing.scale / LEGIBLE) ** 2 * Math.min(1, this.drawing.number / ENOUGH);
      if (value > most) [most, best] = [value, budget];
      if (this.drawing.scale > LEGIBLE) break;
    }
    open(best);
  }

  recolor() {
    Object.assign(this.state, { dark: this.dark.matches, theme: themeOf(this.dark.matches) });
    this.minimap.prepare(this.drawing, this.hierarchy.root, this.state.theme, (element) => (this.state.changed.has(element) ? this.state.theme.change : element.backend && this.result.color.get(element.backend)));
    this.legend.replaceChildren(...(this.state.heat ? [legend(this.state.heat, this.state.dark)] : []));
    this.redraw(false);
  }

  /** The window has another size. When the facts open beside the graph, the drawing stays where it is instead. */
  resize() {
    if (!this.atFit) return this.redraw(false);
    if (this.touched) this.arrange(true);
    else this.arrangeFirst();
  }

  /** Lay out what is open. The view shows all of it, or keeps `anchor` where it was. */
  arrange(fit, anchor = null) {
    const before = anchor && { x: (anchor.x + anchor.w / 2 - this.camera.x) * this.camera.scale, y: (anchor.y - this.camera.y) * this.camera.scale };
    const { width, height } = this.camera.window();
    this.drawing = this.layout.place(width, height);
    this.drawing.boxes = [...leaves(this.hierarchy.root)];
    this.restate();
    this.camera.drawing = { w: this.drawing.w, h: this.drawing.h };
    this.recolor();
    if (fit || !anchor) this.fit();
    else {
      this.camera.x = anchor.x + anchor.w / 2 - before.x / this.camera.scale;
      this.camera.y = anchor.y - before.y / this.camera.scale;
      this.redraw(false);
    }
  }

  fit() {
    this.camera.fit(this.drawing.w, this.drawing.h);
    this.atFit = true;
  }

  /** Everything that is drawn now for what is selected, found, and on the path. */
  restate() {
    const shown = (item) => this.layout.shown[item];
    const { state } = this;
    state.selected = this.selection === undefined || this.selection === null ? null : this.selection instanceof Element ? this.selection : shown(this.selection);
    state.path = new Set((this.way ?? []).map(shown));
    state.matches = this.found ? new Set(this.found.map(shown)) : null;
    state.changed = new Set([...this.result.changed].map(shown));
    state.causes = [];
    if (typeof this.selection === "number") {
      for (const reason of this.result.reasonsOf(this.selection))
        for (const name of reason.because ?? []) {
          const item = this.result.byName(name);
          if (item !== undefined && item !== this.selection && shown(item) !== state.selected) state.causes.push([shown(item), state.selected]);
        }
    }
    state.sideways = this.layout.sideways;
  }

  /** Draw anew, or while the view moves, move the picture; it is drawn anew when it rests or leaves the window. */
  redraw(moving) {
    if (moving) this.atFit = false;
    else this.stale = true;
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.stale || !this.panes.painted || (this.drawing.number < HUGE && this.panes.uncovered(this.camera.view()))) this.paint();
      this.shift();
    });
  }

  shift() {
    const { camera, panes } = this;
    panes.shift(camera);
    this.minimap.draw(camera.view(), this.drawing);
    clearTimeout(this.resting);
    if (panes.painted.scale !== camera.scale || panes.uncovered(camera.view())) this.resting = setTimeout(() => this.redraw(false), REST);
  }

  paint() {
    this.panes.paint(this.camera, this.drawing, this.hierarchy.root, this.state);
    this.stale = false;
  }

  /** The innermost thing at a place, and whether the place is in the title of an open frame. */
  at({ x, y }) {
    let found = null;
    const visit = (group) => {
      for (const child of group.children) {
        if (x < child.x || x > child.x + child.w || y < child.y || y > child.y + child.h) continue;
        found = child;
        if (child.open) visit(child);
      }
    };
    visit(this.hierarchy.root);
    return found;
  }

  click(place, event) {
    this.stage.focus({ preventScroll: true });
    const element = this.at(place);
    if (!element) return this.choose(null);
    if (element.open && element.turns.length > 1 && !element.unrolled && place.y < element.y + 30 && place.x > element.x + element.w - 100) {
      const forward = place.x > element.x + element.w - 52;
      element.shown = (element.shown + (forward ? 1 : element.turns.length - 1)) % element.turns.length;
      element.open = true;
      matchOpen(element);
      return this.arrange(false, element);
    }
    if (event.shiftKey && element.item >= 0 && typeof this.selection === "number") return this.showPath(this.selection, element.item);
    this.choose(element);
  }

  doubleClick(event) {
    const element = this.at(this.camera.toDrawing(this.camera.at(event)));
    if (element) this.toggle(element);
  }

  openByZoom(place) {
    const element = this.at(place);
    const { width, height } = this.camera.window();
    if (!element || element.open || !element.turns || element.kind === "inner") return;
    if (element.w * this.camera.scale > CLOSE * width || element.h * this.camera.scale > CLOSE * height) this.toggle(element);
  }

  /** Open or close a group, or what the file has for a node. */
  toggle(element) {
    if (!element.turns && element.item >= 0) this.addInside(element);
    if (!element.turns) return;
    element.open = !element.open;
    this.touched = true;
    this.arrange(false, element);
    this.say(`${element.title} is ${element.open ? "open" : "closed"}`);
  }

  /** Give a node its inside: the nodes of the file that stand for it. */
  addInside(element) {
    const pattern = element.kind === "node" ? this.result.expansion(element.item) : undefined;
    if (!pattern || pattern.length < 2) return;
    element.adopt([pattern.map(([operator], i) => Object.assign(new Element("inner", `${element.key}/${i}`), { title: operator.split("::").pop() }))]);
    element.inner = pattern.flatMap(([, reads], i) => reads.map((from) => [from, i]));
  }

  choose(element) {
    this.selection = element === null ? null : element.item >= 0 ? element.item : element.kind === "inner" ? element.parent.item : element;
    this.way = null;
    this.restate();
    this.redraw(false);
    if (!element) return this.pick(null);
    if (element.kind === "region") this.pick(`r${element.region}`);
    else if (typeof this.selection === "number") this.pick(`n${this.selection}`);
    this.say(this.describe(element));
  }

  describe(element) {
    const { result } = this;
    if (element.kind === "node" || element.kind === "body")
      return `${result.operator(element.item)} ${result.name(element.item)}, ${result.backend(element.item)}, ${result.precision(element.item) || "no float"}`;
    if (element.kind === "conversion") {
      const { kind, value, from, to } = result.conversion(element.item);
      return `${kind} of ${value} from ${from} to ${to}`;
    }
    if (element.item >= 0) return `${element.kind} ${result.label(element.item)}`;
    return `${element.kind} ${element.title}, ${element.count} nodes${element.turns?.length > 1 ? `, ${element.turns.length} times` : ""}`;
  }

  say(text) {
    this.said.textContent = text;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.state.selected;
    const { key } = event;
    if (key.startsWith("Arrow")) {
      const next = at ? neighbor(this.drawing, at, key, this.layout.sideways) : this.drawing.boxes[0];
      if (next) {
        this.choose(next);
        this.bringIntoView(next);
      }
    } else if (key === "Enter" && at) this.toggle(at);
    else if (key === "Escape") this.clear();
    else if (key === "f") this.fit();
    else if (key === "d") this.turn();
    else if (key === "+" || key === "=") this.camera.zoom(1.25);
    else if (key === "-") this.camera.zoom(0.8);
    else if (key === "Home" || key === "End") {
      const end = this.drawing.boxes.at(key === "Home" ? 0 : -1);
      this.choose(end);
      this.bringIntoView(end);
    } else if ((key === "[" || key === "]") && at) this.turnBlock(at, key === "]");
    else return;
    event.preventDefault();
  }

  turnBlock(element, forward) {
    for (let block = element; block; block = block.parent)
      if (block.open && block.turns?.length > 1) {
        block.shown = (block.shown + (forward ? 1 : block.turns.length - 1)) % block.turns.length;
        matchOpen(block);
        this.selection = block;
        this.arrange(false, block);
        this.say(`repetition ${block.shown + 1} of ${block.turns.length}`);
        return;
      }
  }

  clear() {
    this.found = this.way = null;
    this.choose(null);
  }

  turn() {
    this.layout.sideways = !this.layout.sideways;
    this.arrange(true);
    this.say(this.layout.sideways ? "left to right" : "top to bottom");
  }

  /** Open to a depth: 0 regions, 1 parts, 2 nodes, 3 bodies. */
  detail(depth) {
    this.touched = true;
    this.hierarchy.setAll(depth);
    this.arrange(true);
  }

  bringIntoView(element) {
    const view = this.camera.view();
    if (element.x < view.x || element.y < view.y || element.x + element.w > view.x + view.w || element.y + element.h > view.y + view.h)
      this.camera.center(element.x + element.w / 2, element.y + Math.min(element.h, view.h) / 2);
  }

  /** Open what is around an item or a region, select it, and bring it into view large enough to be read. */
  focus(id) {
    const number = Number(id.slice(1));
    const element = id.startsWith("r") ? this.regionElement(number) : this.hierarchy.elements[number];
    if (!element) return;
    const closed = [];
    for (let outer = element.parent; outer; outer = outer.parent) closed.push(!outer.open);
    this.hierarchy.reveal(element);
    this.selection = element.item >= 0 ? element.item : element;
    this.arrange(!closed.some(Boolean) && this.atFit, null);
    if (this.camera.scale < 0.75) this.camera.scale = 0.9;
    this.camera.center(element.x + element.w / 2, element.y + Math.min(element.h, 300) / 2);
    this.say(this.describe(element));
  }

  regionElement(number) {
    let found = null;
    const visit = (group) => {
      for (const turn of group.turns) for (const child of turn) {
        if (child.kind === "region" && child.region === number) found = child;
        else if (child.turns && !found) visit(child);
      }
    };
    visit(this.hierarchy.root);
    return found;
  }

  showPath(from, to) {
    this.way = shortestPath(this.result, from, to);
    this.selection = to;
    if (this.way) {
      for (const item of this.way) for (let outer = this.hierarchy.elements[item].parent; outer; outer = outer.parent) outer.open ||= this.way.length < 200;
      this.arrange(true);
      this.say(`path of ${this.way.length} from ${this.result.label(from)} to ${this.result.label(to)}`);
    } else this.say(`there is no path between ${this.result.label(from)} and ${this.result.label(to)}`);
  }

  /** Color by a measure; an empty name colors by backend. */
  heat(name) {
    this.state.heat = heatOf(this.measures[name], this.result);
    this.recolor();
  }

  /** Dim everything but these items; null shows all alike. */
  mark(items) {
    this.found = items;
    this.restate();
    this.redraw(false);
  }

  /** The drawing as an SVG file. */
  svg() {
    return this.panes.svg(this.drawing, this.hierarchy.root, this.state);
  }

  saveSvg() {
    const link = el("a", { href: URL.createObjectURL(new Blob([this.svg()], { type: "image/svg+xml" })), download: `${this.result.title}.svg` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}

function* leaves(group) {
  for (const child of group.children) {
    if (child.open) yield* leaves(child);
    else yield child;
  }
}

/** Open in the repetition that is shown what was open in the one before. */
function matchOpen(block) {
  const copy = (from, to) => from.forEach((one, i) => {
    if (!one.turns || !to[i]?.turns || one.inner) return;
    to[i].open = one.open;
    one.turns.forEach((turn, k) => to[i].turns[k] && copy(turn, to[i].turns[k]));
  });
  const open = block.turns.find((turn) => turn.some((child) => child.open)) ?? block.turns[0];
  for (const turn of block.turns) if (turn !== open) copy(open, turn);
}
