// The tab of two results: both in one layout beside each other, and the nodes that differ.

import { pairDetail } from "./detail.js";
import { el } from "./dom.js";
import { GraphView } from "./graph/view.js";
import { Pair } from "./pair.js";
import { comparison } from "./views.js";

export class Comparison {
  /** `show(...content)` opens the facts at the side, and `hide()` closes them. */
  constructor(first, second, show, hide) {
    Object.assign(this, { first, second, show, hide, view: null });
    this.pair = new Pair(first, second);
    this.stage = el("div", { id: "pair" });
  }

  panel() {
    const { pair } = this;
    const button = (name, title, onclick) => el("button", { title, onclick }, name);
    const number = pair.changed.size;
    return el("div", {},
      el("div", { class: "bar", role: "toolbar", "aria-label": "graph of both" },
        button("Fit", "Show all of it (f)", () => this.view.fit()),
        button("Turn", "Top to bottom, or left to right (d)", () => this.view.turn()),
        button("SVG", "Save what is drawn as an SVG file", () => this.view.saveSvg()),
        number ? button("Next difference", "To the next thing that differs", () => this.go(this.next())) : null,
        el("span", { class: "hint" }, number ? `${number} nodes and conversions differ: they have a ring, or a dashed outline where they are not there` : "nothing differs")),
      this.stage,
      comparison(this.first, this.second, (name) => this.go(pair.byName(name))));
  }

  /** Draw, once the panel is on the page. */
  open() {
    this.view ??= new GraphView(this.stage, this.pair, (id) => (id === null ? this.hide() : this.facts(Number(id.slice(1)))));
  }

  facts(item) {
    this.show(pairDetail(this.pair, this.first, this.second, item, (id) => this.go(Number(id.slice(1)))));
  }

  go(item) {
    this.facts(item);
    this.view.focus(`n${item}`);
  }

  /** The first item that differs behind the one that is selected. */
  next() {
    const changed = [...this.pair.changed].sort((one, other) => one - other);
    const { selection } = this.view;
    return changed.find((item) => item > (typeof selection === "number" ? selection : -1)) ?? changed[0];
  }
}
