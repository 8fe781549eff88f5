// Draws what is placed: frames, edges, boxes, and the marks on them; with either pen.

import { extentsOf } from "../names.js";
import { boxOf, fitted, frameTitle } from "./sizes.js";
import { heatColor, mixed, readable } from "./theme.js";

const READABLE = 0.42; // scale, below which texts in boxes are left out
const PLAIN = 0.25; // scale, below which edges are straight hairlines
const ARROW = 6;

/**
 * state: { selected, path: Set of elements, matches: Set of items or null, causes: [[from, to]], changed: Set of elements, heat,
 * dark, theme, colors }
 * view: { x, y, w, h, scale } in the coordinates of the drawing; only what is in it is drawn.
 */
export class Painter {
  /** `side` is the bit of the edges that this result has, where two are drawn beside each other. */
  constructor(result, side = 1) {
    Object.assign(this, { result, side });
  }

  draw(pen, drawing, root, state, view) {
    Object.assign(this, { pen, state, view, theme: state.theme, pass: {} });
    this.frames(root);
    this.edges(drawing);
    for (const stub of drawing.stubs) this.stub(stub);
    this.boxes(root);
    for (const [from, to] of state.causes) this.cause(from, to);
    if (state.selected) this.ring(state.selected, this.theme.select, 3);
  }

  sees({ x, y, w, h }) {
    const { view } = this;
    return x < view.x + view.w && y < view.y + view.h && x + w > view.x && y + h > view.y;
  }

  frames(group) {
    for (const child of group.children) {
      if (!child.open || !this.sees(child)) continue;
      this.frame(child);
      this.frames(child);
    }
  }

  frame(group) {
    const { pen, theme, state, view } = this;
    const color = this.colorOf(group);
    const region = group.kind === "region";
    const small = 1 / Math.max(view.scale, 0.001);
    const fill = color ? mixed(color, theme.back, region ? 0.1 : 0.06) : theme.group;
    const stroke = color ? mixed(color, theme.back, 0.75) : theme.frame;
    if (group.turns.length > 1 && !group.unrolled)
      for (const offset of [8, 4]) pen.box(group.x + offset, group.y + offset, group.w, group.h, { fill: theme.group, stroke: theme.frame, round: 8 });
    pen.box(group.x, group.y, group.w, group.h, { fill, stroke, line: region ? 1.6 : 1.2, round: 8, dash: group.kind === "part" ? [5, 4] : null });
    const size = Math.min(Math.max(13, 12 * small), 17);
    if (view.scale * size < 5) return;
    const left = group.x + (color ? 16 : 12);
    if (color && region) pen.box(group.x + 10, group.y + 9, 5, 14, { fill: color, round: 2 });
    const controls = group.turns.length > 1 && !group.unrolled ? 96 : 0;
    const title = frameTitle(group, this.result, group.w - (left - group.x) - 12 - controls, size);
    pen.text(title, left + (region ? 6 : 0), group.y + Math.max(20, size + 6), { size, weight: 600, fill: theme.text });
    if (controls && view.scale > READABLE && !state.export) {
      const x = group.x + group.w - controls;
      pen.text(`\u2039   ${group.shown + 1} of ${group.turns.length}   \u203a`, x + 44, group.y + 20, { size: 12, fill: theme.dim, anchor: "middle" });
    }
  }

  colorOf(element) {
    const backend = element.backend && element.item >= 0 ? this.result.backend(element.item) : element.backend;
    return backend && this.state.colors.get(backend);
  }

  edges(drawing) {
    const { theme, view, state } = this;
    const bold = [];
    const thin = [];
    const plain = view.scale < PLAIN;
    for (const edge of drawing.edges) {
      if (!(edge.owners & this.side) || !this.crosses(edge)) continue;
      const marked = this.marked(edge);
      if (marked) {
        bold.push([edge, marked]);
        continue;
      }
      if (plain) thin.push(edge.points);
      else this.edge(edge, state.path.size ? theme.line : theme.edge, 1.2, true);
    }
    this.pen.lines(thin, { stroke: state.path.size ? theme.line : theme.edge, line: 1 / view.scale });
    for (const [edge, color] of bold) this.edge(edge, color, Math.max(2.4, 1.6 / view.scale), true);
  }

  marked({ from, to }) {
    const { state, theme } = this;
    if (state.path.has(from) && state.path.has(to)) return theme.path;
    if (state.selected === from || state.selected === to) return theme.select;
    return null;
  }

  crosses({ points }) {
    const { view } = this;
    let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { x, y } of points) {
      if (x < left) left = x;
      if (x > right) right = x;
      if (y < top) top = y;
      if (y > bottom) bottom = y;
    }
    return left < view.x + view.w && right > view.x && top < view.y + view.h && bottom > view.y;
  }

  edge({ points, type, from, to }, stroke, line, detailed) {
    const { pen, view, theme } = this;
    pen.curve(points, { stroke, line });
    if (!detailed || view.scale < READABLE) return;
    this.arrow(points.at(-1), points.at(-2), stroke);
    if (to.kind === "output" || from.kind === "conversion" || from.kind === "input" || from.labelled === this.pass) return;
    const text = cut(extentsOf(type), 18);
    if (!text || from.kind === "inner") return;
    const [a, b] = points;
    if (Math.abs(b.y - a.y) + Math.abs(b.x - a.x) < 14) return;
    from.labelled = this.pass;
    const down = Math.abs(b.y - a.y) >= Math.abs(b.x - a.x) || points.length === 2;
    pen.text(text, a.x + 5, down ? a.y + 13 : a.y - 4, { size: 10.5, fill: theme.dim });
  }

  arrow(tip, before, fill) {
    let [dx, dy] = [tip.x - before.x, tip.y - before.y];
    if (Math.abs(dx) > 1 && Math.abs(dy) > 1) [dx, dy] = this.state.sideways ? [1, 0] : [0, 1];
    const length = Math.hypot(dx, dy) || 1;
    [dx, dy] = [(dx / length) * ARROW, (dy / length) * ARROW];
    this.pen.shape([tip, { x: tip.x - dx - dy / 2, y: tip.y - dy + dx / 2 }, { x: tip.x - dx + dy / 2, y: tip.y - dy - dx / 2 }], { fill, closed: true });
  }

  /** A dashed end where an edge goes on in the next repetition of a block, or comes from the one before. */
  stub({ at, out }) {
    if (!this.sees(at) || this.view.scale < READABLE) return;
    const { theme, pen, state } = this;
    const length = 15;
    const start = state.sideways ? { x: at.x + (out ? at.w : 0), y: at.y + at.h * 0.25 } : { x: at.x + at.w * (out ? 0.8 : 0.2), y: at.y + (out ? at.h : 0) };
    const sign = out ? 1 : -1;
    const end = state.sideways ? { x: start.x + sign * length, y: start.y } : { x: start.x, y: start.y + sign * length };
    pen.curve([start, end], { stroke: theme.dim, line: 1.4, dash: [3, 3] });
    pen.text(out ? "next" : "before", end.x + 4, end.y + (out ? 4 : 2), { size: 9.5, fill: theme.dim });
  }

  boxes(group) {
    for (const child of group.children) {
      if (!this.sees(child)) continue;
      if (child.open) this.boxes(child);
      else this.box(child);
    }
  }

  box(element) {
    const { state, view } = this;
    const faded = state.matches && !state.matches.has(element);
    if (element.item >= 0 && !this.result.has(element.item)) return this.missing(element);
    if (state.changed.has(element)) this.ring(element, this.theme.change, 2.5);
    if (view.scale < READABLE && !boxOf(element, this.result).group) return this.tiny(element, faded);
    if (element.kind === "conversion") return this.conversion(element, faded);
    if (element.kind === "input" || element.kind === "output") return this.endBox(element);
    return this.card(element, faded);
  }

  /** A dashed outline where only the other side has something. */
  missing({ x, y, w, h }) {
    this.pen.box(x, y, w, h, { stroke: mixed(this.theme.change, this.theme.back, 0.55), line: Math.max(1.2, 1 / this.view.scale), dash: [4, 4], round: 6 });
  }

  tiny(element, faded) {
    const { pen, theme, state, view } = this;
    const color = this.colorOf(element);
    const heat = state.heat && state.heat.of(element);
    const fill = heat !== null && heat !== undefined && state.heat ? heatColor(heat.share, state.dark) : color ? mixed(color, theme.box, faded ? 0.15 : 0.55) : element.kind === "conversion" ? theme.conversionLine : theme.line;
    pen.box(element.x, element.y, element.w, element.h, { fill });
    const { head } = boxOf(element, this.result);
    if (head && element.h * view.scale > 9 && view.scale > 0.2) {
      const size = Math.min(element.h * 0.62, 13 / view.scale);
      pen.text(fitted(head, element.w - 8, size, 600), element.x + element.w / 2, element.y + element.h / 2 + size * 0.36, { size, weight: 600, fill: readable(fill), anchor: "middle" });
    }
  }

  card(element, faded) {
    const { pen, theme, state } = this;
    const box = boxOf(element, this.result);
    const { x, y, w, h } = element;
    const color = this.colorOf(element);
    const heat = state.heat && state.heat.of(element);
    let fill = box.group ? theme.group : color ? mixed(color, theme.box, faded ? 0.03 : 0.08) : theme.box;
    if (state.matches && !faded) fill = theme.find;
    let [text, dim] = [faded ? theme.dim : theme.text, theme.dim];
    if (heat) {
      fill = heatColor(heat.share, state.dark);
      text = dim = readable(fill);
    }
    const stroke = state.path.has(element) ? theme.path : color ? mixed(color, theme.box, faded ? 0.35 : 0.8) : theme.line;
    if (box.badge && box.group)
      for (const offset of [6, 3]) pen.box(x + offset, y + offset, w, h, { fill: theme.group, stroke: theme.line, round: 6 });
    pen.box(x, y, w, h, { fill, stroke, line: state.path.has(element) ? 2.5 : 1.1, round: 6 });
    if (color) pen.box(x, y, 5, h, { fill: color, round: [6, 0, 0, 6] });
    if (element.kind === "inner") {
      pen.text(box.head, x + w / 2, y + 16, { size: 12, fill: text, anchor: "middle" });
      return;
    }
    const badge = heat ? heat.text : box.badge;
    const room = w - 24;
    let used = 0;
    if (badge) {
      const width = badge.length * 6.4 + 12;
      const top = heat ? y + h - 8 : y + 7; // numbers stand on the lower border, so that they cut no operator
      if (!heat) used = width + 6;
      pen.box(x + w - width - 7, top, width, 16, { fill: heat ? fill : theme.badge, stroke: heat ? text : color ? mixed(color, theme.box, 0.5) : theme.line, round: 8 });
      pen.text(badge, x + w - width / 2 - 7, top + 12, { size: 11, weight: 600, fill: heat ? text : theme.text, anchor: "middle" });
    }
    pen.text(fitted(box.head, room - used, 14, 600), x + 12, y + 20, { size: 14, weight: 600, fill: text });
    let line = y + 36;
    for (const each of box.lines) {
      pen.text(fitted(each, room + 4, 11.5), x + 12, line, { size: 11.5, fill: dim });
      line += 15;
    }
    for (const each of box.foot) {
      pen.text(fitted(each, room + 4, 11.5), x + 12, line, { size: 11.5, fill: each.startsWith("\u25b8") ? (heat ? text : theme.select) : text });
      line += 15;
    }
    this.ports(element, color ?? theme.dim);
  }

  /** Constants are ports: small squares at the upper border. */
  ports({ item, kind, x, y, w }, color) {
    if (kind !== "node" && kind !== "body") return;
    const number = this.result.constants(item).length;
    for (let i = 0; i < number; i++) this.pen.box(x + w - 14 - i * 9, y - 3, 6, 6, { fill: this.theme.back, stroke: color, line: 1.4 });
  }

  conversion(element, faded) {
    const { pen, theme } = this;
    const { x, y, w, h } = element;
    const box = boxOf(element, this.result);
    const [cx, cy, r] = [x + 11, y + h / 2, 8];
    pen.box(x + 11, y + 1, w - 11, h - 2, { fill: theme.conversion, round: 5 });
    pen.shape([{ x: cx, y: cy - r }, { x: cx + r, y: cy }, { x: cx, y: cy + r }, { x: cx - r, y: cy }],
      { fill: theme.conversion, stroke: theme.conversionLine, line: 1.6, closed: true });
    pen.text(box.head, x + 24, y + h / 2 + 4, { size: 11.5, weight: 600, fill: faded ? theme.dim : theme.text });
  }

  endBox(element) {
    const { pen, theme } = this;
    const { x, y, w, h } = element;
    const box = boxOf(element, this.result);
    pen.box(x, y, w, h, { fill: theme.end, stroke: theme.line, round: h / 2 });
    pen.text(fitted(box.head, w - 22, 12.5, 600), x + w / 2, y + (box.lines.length ? 17 : 18), { size: 12.5, weight: 600, fill: theme.text, anchor: "middle" });
    if (box.lines.length) pen.text(fitted(box.lines[0], w - 18, 11), x + w / 2, y + 31, { size: 11, fill: theme.dim, anchor: "middle" });
  }

  ring({ x, y, w, h }, stroke, line) {
    const wide = Math.max(line, 2 / this.view.scale);
    this.pen.box(x - wide, y - wide, w + 2 * wide, h + 2 * wide, { stroke, line: wide, round: 8 });
  }

  /** An arrow from what forced a decision to the node that it is about. */
  cause(from, to) {
    const { pen, theme, view } = this;
    const [a, b] = [centre(from), centre(to)];
    const bend = { x: (a.x + b.x) / 2 + (b.y - a.y) * 0.15, y: (a.y + b.y) / 2 - (b.x - a.x) * 0.15 };
    const end = border(to, bend);
    const start = border(from, bend);
    pen.curve([start, bend, end], { stroke: theme.cause, line: Math.max(2.2, 1.5 / view.scale), dash: [7, 4] });
    const length = Math.hypot(end.x - bend.x, end.y - bend.y) || 1;
    const [dx, dy] = [((end.x - bend.x) / length) * 9, ((end.y - bend.y) / length) * 9];
    pen.shape([end, { x: end.x - dx - dy / 2, y: end.y - dy + dx / 2 }, { x: end.x - dx + dy / 2, y: end.y - dy - dx / 2 }], { fill: theme.cause, closed: true });
    if (view.scale > 0.3) pen.text("forced this", bend.x + 6, bend.y - 4, { size: 11 / Math.min(1, view.scale), weight: 600, fill: theme.cause });
  }
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}\u2026` : text);
const centre = ({ x, y, w, h }) => ({ x: x + w / 2, y: y + h / 2 });

/** Where the line from the centre of a box to a point leaves it. */
function border(box, point) {
  const at = centre(box);
  const [dx, dy] = [point.x - at.x, point.y - at.y];
  const part = Math.min(1, Math.min(Math.abs(box.w / 2 / (dx || 1e-9)), Math.abs(box.h / 2 / (dy || 1e-9))));
  return { x: at.x + dx * part, y: at.y + dy * part };
}
