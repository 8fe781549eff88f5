// Where everything that is visible stands: each open group is laid out for itself, inside of the group around it.

import { folded } from "./columns.js";
import { layered, withoutCircles } from "./layered.js";
import { HEAD, PAD, boxOf } from "./sizes.js";

const MUCH = 1500; // visible things, from which on groups are laid out by the linear method
const LARGE = 400; // children of a group, the same
const TALLEST = 1e9;
const ROOMY = 0.9; // scale, from which on boxes have all their lines

export class Layout {
  constructor(hierarchy, result) {
    this.hierarchy = hierarchy;
    this.result = result;
    this.sideways = false; // left to right
    this.drawings = new Map();
  }

  /** Place everything for a window of a width and a height: { w, h, edges } with x, y, w, h set in every visible element. */
  place(width, height) {
    const visible = this.visibleEdges();
    const number = count(this.hierarchy.root);
    this.fast = number > MUCH;
    let best = null;
    for (const compact of this.fast ? [true] : [false, true]) {
      const found = this.best(compact, width, height, visible, number);
      if (!best || found.scale > best.scale) best = found;
      if (best.scale > ROOMY) break;
    }
    this.compact = best.compact;
    this.settle(this.hierarchy.root, best.plan, 0, 0);
    return { w: best.plan.w, h: best.plan.h, edges: this.routes(visible.edges), stubs: visible.stubs, number, scale: best.scale };
  }

  /** The best folding with boxes of one kind: the one that is largest in the window. */
  best(compact, width, height, visible, number) {
    this.compact = compact;
    const sizes = this.fast ? [Math.sqrt(number) * 90] : [TALLEST, 2400, 2000, 1700, 1500, 1300, 1150, 1000, 900, 800, 700, 600, 520, 440, 360, 280];
    let best = null;
    for (const most of sizes) {
      this.most = this.sideways ? most * (width / height) * 0.7 : most;
      const plan = this.inside(this.hierarchy.root, visible.within);
      const scale = Math.min(1.15, (width - 40) / plan.w, (height - 40) / plan.h);
      if (!best || scale > best.scale * 1.03) best = { plan, scale, compact };
    }
    return best;
  }

  /** The edges between what is visible, and by open group those between its children. */
  visibleEdges() {
    const { result, hierarchy } = this;
    const edges = new Map();
    const within = new Map();
    const stubs = new Map();
    const { elements, turns } = hierarchy.visible();
    const numbers = new Map();
    for (let i = 0; i < result.edges.length; i += 3) {
      const from = elements[result.edges[i]];
      const to = elements[result.edges[i + 1]];
      if (from === to || (from.open && contains(from, to)) || (to.open && contains(to, from))) continue;
      const [before, after] = [turns[result.edges[i]], turns[result.edges[i + 1]]];
      if (before !== after && sharesBlock(before, after)) {
        stubs.set(`${idOf(from, numbers)}>`, { at: from, out: true });
        stubs.set(`>${idOf(to, numbers)}`, { at: to, out: false });
        continue;
      }
      const key = idOf(from, numbers) * 2097152 + idOf(to, numbers);
      const owners = result.ownersOf(i / 3);
      if (edges.has(key)) {
        edges.get(key).owners |= owners;
        continue;
      }
      const edge = { from, to, owners, type: result.types[result.edges[i + 2]] };
      edges.set(key, edge);
      const [group, one, other] = meeting(from, to);
      edge.group = group;
      edge.ends = [one, other];
      if (!within.has(group)) within.set(group, []);
      within.get(group).push(edge);
    }
    for (const group of insides(hierarchy.root)) within.set(group, group.inner.map(([from, to]) => {
      const edge = { from: group.children[from], to: group.children[to], owners: 3, type: "", group, ends: [group.children[from], group.children[to]] };
      edges.set(`${group.key}${from}>${to}`, edge);
      return edge;
    }));
    this.shown = elements;
    return { edges: [...edges.values()], within, stubs: [...stubs.values()] };
  }

  /** Lay out an open group: { w, h, drawing, plans } with the plans of the open groups in it. */
  inside(group, within) {
    const plans = new Map();
    const most = this.most;
    if (group.parent) this.most = Math.max(240, most - HEAD - 2 * PAD);
    const boxes = group.children.map((child) => {
      if (!child.open) return this.turned(boxOf(child, this.result, this.compact, this.fast));
      const plan = this.inside(child, within);
      plans.set(child, plan);
      return this.turned(plan);
    });
    const edges = [...new Map((within.get(group) ?? []).map(({ ends: [a, b] }) => [`${a.place} ${b.place}`, [a.place, b.place]])).values()];
    const keep = withoutCircles(boxes.length, edges);
    const [forward, back] = [edges.filter((_, i) => keep[i]), edges.filter((_, i) => !keep[i])];
    const key = `${boxes.map(({ w, h }) => `${Math.round(w)},${Math.round(h)}`).join(" ")};${forward.join(" ")};${this.fast}`;
    let drawing = this.drawings.get(key);
    if (!drawing) this.drawings.set(key, (drawing = layered(boxes, forward, this.fast || boxes.length > LARGE)));
    const columns = folded(drawing, boxes, forward, this.most, back);
    this.most = most;
    const drawn = [...columns.routes, ...columns.returns];
    const routes = new Map([...forward, ...back].map(([a, b], i) => [a * 2097152 + b, drawn[i]]));
    const frame = group.parent ? { x: PAD, y: HEAD + PAD / 2, right: PAD, bottom: PAD } : { x: 0, y: 0, right: 0, bottom: 0 };
    const [w, h] = this.sideways ? [columns.h, columns.w] : [columns.w, columns.h];
    return { w: Math.max(w + frame.x + frame.right, group.parent ? 190 : 0), h: h + frame.y + frame.bottom, frame, columns, routes, plans };
  }

  turned({ w, h }) {
    return this.sideways ? { w: h, h: w } : { w, h };
  }

  /** Write the final positions into the elements. */
  settle(group, plan, x, y) {
    Object.assign(group, { x, y, w: plan.w, h: plan.h, plan });
    group.children.forEach((child, i) => {
      const place = plan.columns.places[i];
      const [px, py] = this.sideways ? [place.y, place.x] : [place.x, place.y];
      const inner = plan.plans.get(child);
      const { w, h } = inner ?? boxOf(child, this.result, this.compact);
      const left = x + plan.frame.x + px - w / 2;
      const top = y + plan.frame.y + py - h / 2;
      if (inner) this.settle(child, inner, left, top);
      else Object.assign(child, { x: left, y: top, w, h });
    });
  }

  /** The points of every edge: from box to box, through the borders of the frames around them. */
  routes(edges) {
    for (const edge of edges) {
      const { group, ends, from, to } = edge;
      const route = group.plan.routes.get(ends[0].place * 2097152 + ends[1].place) ?? [];
      const [start, end] = [this.end(from, true), this.end(to, false)];
      const along = this.sideways ? "y" : "x"; // a bend below a frame stands below the box in it that the edge comes from
      const middle = route.slice(1, -1).map(({ x, y, at }) => {
        const [px, py] = this.sideways ? [y, x] : [x, y];
        const point = { x: group.x + group.plan.frame.x + px, y: group.y + group.plan.frame.y + py };
        if (at) point[along] = (at === "start" ? start : end)[along];
        return point;
      });
      edge.points = [start, ...this.passages(from, ends[0], true), ...middle, ...this.passages(to, ends[1], false).reverse(), end];
    }
    return edges;
  }

  end(element, out) {
    if (this.sideways) return { x: element.x + (out ? element.w : 0), y: element.y + element.h / 2 };
    return { x: element.x + element.w / 2, y: element.y + (out ? element.h : 0) };
  }

  /** Where an edge leaves or enters the frames between an element and the outermost one at its side. */
  passages(element, outermost, out) {
    const points = [];
    for (let frame = element; frame !== outermost; ) {
      frame = frame.parent;
      const at = this.end(element, out);
      const border = this.end(frame, out);
      points.push(this.sideways ? { x: border.x, y: at.y } : { x: at.x, y: border.y });
    }
    return points;
  }
}

const count = (group) => group.children.reduce((sum, child) => sum + (child.open ? count(child) : 1), 0);

function idOf(element, numbers) {
  let id = numbers.get(element);
  if (id === undefined) numbers.set(element, (id = numbers.size));
  return id;
}

/** The innermost group around two elements, and its children that lead to each. */
function meeting(from, to) {
  const above = new Map();
  for (let child = from; child.parent; child = child.parent) above.set(child.parent, child);
  for (let child = to; child.parent; child = child.parent)
    if (above.has(child.parent)) return [child.parent, above.get(child.parent), child];
  return [null, from, to];
}

function contains(outer, inner) {
  for (let at = inner; at; at = at.parent) if (at === outer) return true;
  return false;
}

function sharesBlock(one, other) {
  const turns = new Map(one.split(";").filter(Boolean).map((text) => text.split(":")));
  return other.split(";").filter(Boolean).some((text) => {
    const [key, turn] = text.split(":");
    return turns.has(key) && turns.get(key) !== turn;
  });
}

function* insides(group) {
  for (const child of group.children) {
    if (!child.open) continue;
    if (child.inner) yield child;
    yield* insides(child);
  }
}
