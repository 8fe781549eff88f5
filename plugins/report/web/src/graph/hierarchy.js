// What contains what: regions, the blocks that repeat in them, parts of long sequences, nodes, and what is inside of nodes.

import { onlyStores } from "../names.js";
import { cutsOf, repetition } from "./blocks.js";
import { piecesOf, sharedScopes } from "./scopes.js";

const WHOLE = 50; // nodes of a group, up to which it is not divided
const MOST = 40; // blocks and parts of a longer one
const FEW_ENDS = 6; // inputs and outputs, up to which they stand outside of the regions
export const BUDGETS = [60, 48, 38, 30, 24, 18]; // boxes that are open at first, fewer where they would be too small

/** Something that is drawn: a node, a conversion, an input, an output, or a group of such things. */
export class Element {
  constructor(kind, key, item = -1) {
    this.kind = kind; // node, conversion, input, output, inner; or root, region, block, part, body, inside
    this.key = key;
    this.item = item;
    this.parent = null;
    this.slot = 0; // position among its siblings
    this.turn = 0; // which repetition of a block it is in
    this.turns = null; // of a group: lists of children, one list for each repetition
    this.shown = 0;
    this.unrolled = false; // whether all repetitions are drawn, one after the other
    this.open = false;
    this.title = "";
    this.count = 1; // nodes in it
    this.signature = "";
  }

  get children() {
    if (this.unrolled) return (this.flat ??= this.turns.flat());
    return this.turns ? this.turns[this.shown] : null;
  }

  /** The position of this element among the children that its group shows. */
  get place() {
    return this.parent.unrolled ? this.turn * this.parent.turns[0].length + this.slot : this.slot;
  }

  adopt(turns) {
    this.turns = turns;
    turns.forEach((children, turn) => children.forEach((child, slot) => Object.assign(child, { parent: this, slot, turn })));
    return this;
  }
}

export class Hierarchy {
  constructor(result) {
    this.result = result;
    this.elements = new Array(result.items).fill(null);
    this.groups = 0;
    this.root = new Element("root", "root");
    this.root.open = true;
    this.build();
    this.openFirst(BUDGETS[0]);
  }

  build() {
    const { result } = this;
    for (let item = 0; item < result.items; item++) this.elements[item] = this.leaf(item);
    for (const [node, holder] of Object.entries(result.nodes.holder)) this.hold(Number(node), holder);
    const homes = this.homes();
    const order = this.order();
    const regions = new Map();
    const top = [];
    for (const item of order) {
      const home = homes[item];
      if (home === -1) {
        top.push(this.elements[item]);
        continue;
      }
      if (home === -2) continue; // in a body
      if (!regions.has(home)) {
        regions.set(home, []);
        const region = new Element("region", `region=${home}`);
        region.region = home;
        top.push(region);
      }
      regions.get(home).push(this.elements[item]);
    }
    for (const element of top) {
      if (element.kind !== "region") continue;
      const members = regions.get(element.region);
      element.count = members.reduce((sum, child) => sum + child.count, 0);
      element.title = result.regionTitle(element.region);
      element.backend = result.regions[element.region].backend;
      element.signature = `r:${element.backend}:${members.map((child) => child.signature).join("|")}`;
      element.adopt([this.grouped(members)]);
    }
    this.root.adopt([this.grouped(top)]);
    this.root.count = result.count;
    const nodes = this.elements.slice(0, result.count);
    nameByScopes(this.root, sharedScopes(nodes, nodes, result)); // what is around all nodes names none of their groups
  }

  leaf(item) {
    const { result } = this;
    const kind = result.kind(item);
    const element = new Element(kind, `${kind}=${result.label(item)}`, item);
    element.count = kind === "node" ? 1 : 0;
    element.title = kind === "node" ? result.operator(item) : result.label(item);
    if (kind === "node") {
      element.backend = result.backend(item);
      const { nodes } = result;
      const shape = this.shape(nodes.type[item]);
      element.signature = `${nodes.operator[item]};${nodes.backend[item]};${nodes.precision[item]};${shape};${nodes.constants[item] ?? ""}`;
    } else if (kind === "conversion") element.signature = `c${result.conversions[item - result.firstConversion][1]}`;
    else element.signature = kind + this.shape(result.typeIndexOfEnd(item));
    return element;
  }

  /** A number that types have in common whose extents differ in name alone. */
  shape(type) {
    this.shapes ??= new Map();
    this.shapeOf ??= new Map();
    let number = this.shapeOf.get(type);
    if (number === undefined) {
      const text = this.result.types[type].replace(/[^,[\]]*[^0-9,[\]][^,[\]]*/g, "?");
      if (!this.shapes.has(text)) this.shapes.set(text, this.shapes.size);
      this.shapeOf.set(type, (number = this.shapes.get(text)));
    }
    return number;
  }

  /** Put a node of a body inside of the node that holds the body. */
  hold(node, holder) {
    const outer = this.elements[holder];
    if (!outer.held) {
      outer.held = [];
      outer.kind = "body";
    }
    outer.held.push(this.elements[node]);
    outer.count += 1;
    outer.adopt([outer.held]);
  }

  /** The region of every item; -1 for items between regions, -2 for nodes in bodies. */
  homes() {
    const { result } = this;
    const homes = new Int32Array(result.items).fill(-1);
    for (let node = 0; node < result.count; node++)
      homes[node] = result.nodes.holder[node] === undefined ? result.nodes.region[node] : -2;
    const few = result.inputs.length + result.outputs.length <= FEW_ENDS;
    for (let item = result.count; item < result.items; item++) {
      const [above, below] = result.neighbors(item);
      const near = [...above, ...below];
      if (!near.length || (few && result.kind(item) !== "conversion")) continue;
      const around = new Set(near.map((other) => (other < result.count ? this.regionOf(other) : -1)));
      if (around.size === 1) homes[item] = [...around][0];
    }
    return homes;
  }

  regionOf(node) {
    const holder = this.result.nodes.holder[node];
    return this.result.nodes.region[holder ?? node];
  }

  /**
   * All items: nodes in the order of the plan, each after what only it reads, and before the outputs that it computes.
   * Inputs with several readers come first, so that they do not make the first layer another one than the rest.
   */
  order() {
    const { result } = this;
    const order = [];
    const seen = new Uint8Array(result.items);
    for (let item = result.firstInput; item < result.firstOutput; item++)
      if (result.neighbors(item)[1].length > 1) {
        seen[item] = 1;
        order.push(item);
      }
    const add = (item) => {
      if (seen[item]) return;
      seen[item] = 1;
      for (const source of result.neighbors(item)[0]) if (source >= result.count) add(source);
      order.push(item);
      for (const reader of result.neighbors(item)[1]) if (result.kind(reader) === "output") add(reader);
    };
    for (let item = 0; item < result.items; item++) add(item);
    return order;
  }

  /** Group a sequence until no group has too many children: repeated blocks first, then scopes of names, then parts. */
  grouped(list) {
    if (list.length <= WHOLE) return list;
    const found = this.blocks(list);
    return found.length > MOST ? this.parts(found) : found;
  }

  blocks(list) {
    const numbers = new Map();
    const signatures = list.map(({ signature }) => {
      if (!numbers.has(signature)) numbers.set(signature, numbers.size);
      return numbers.get(signature);
    });
    const cuts = cutsOf(list.length, this.edgesWithin(list));
    const collect = (from, to) => {
      const best = to - from < 6 ? null : repetition(signatures.slice(from, to), cuts.subarray(from, to + 1));
      if (!best) return list.slice(from, to);
      const start = from + best.start;
      const end = start + best.length * best.count;
      const block = new Element("block", `block=${this.groups++}`);
      const turns = [];
      for (let at = start; at < end; at += best.length) turns.push(this.grouped(list.slice(at, at + best.length)));
      block.adopt(turns);
      block.count = turns[0].reduce((sum, child) => sum + child.count, 0);
      block.scopes = sharedScopes(list.slice(start, start + best.length), list.slice(end - best.length, end), this.result);
      block.title = span(turns[0]);
      block.signature = `b:${signatures.slice(best.start, best.start + best.length).join()}:${best.count}`;
      return [...collect(from, start), block, ...collect(end, to)];
    };
    return collect(0, list.length);
  }

  /** Pairs of positions in a list between which values go. */
  edgesWithin(list) {
    const place = new Map();
    const mark = (element, at) => {
      if (element.item >= 0) place.set(element.item, at);
      for (const turn of element.turns ?? []) for (const child of turn) mark(child, at);
    };
    list.forEach(mark);
    const edges = [];
    for (const [item, at] of place)
      for (const reader of this.result.neighbors(item)[1]) {
        const to = place.get(reader);
        if (to !== undefined && to !== at) edges.push([at, to]);
      }
    return edges;
  }

  /** A long sequence in parts: by the scopes in its names, or cut where few values cross. */
  parts(list) {
    const pieces = piecesOf(list, this.result, MOST) ?? this.cutInto(list, Math.min(MOST, Math.ceil(list.length / 12)));
    return pieces.map((piece) => {
      if (piece.length === 1) return piece[0];
      const part = new Element("part", `part=${this.groups++}`);
      part.adopt([this.grouped(piece)]);
      part.count = piece.reduce((sum, child) => sum + child.count * (child.turns?.length ?? 1), 0);
      part.scopes = sharedScopes(piece, piece, this.result);
      part.title = span(piece);
      part.signature = `p:${piece.map((child) => child.signature).join("|")}`;
      return part;
    });
  }

  cutInto(list, number) {
    const cuts = cutsOf(list.length, this.edgesWithin(list));
    const size = list.length / number;
    const pieces = [];
    let from = 0;
    for (let i = 1; i <= number; i++) {
      let to = list.length;
      if (i < number) {
        const near = Math.round(i * size);
        to = near;
        for (let at = Math.max(from + 1, Math.ceil(near - size / 3)); at <= near + size / 3 && at < list.length; at++)
          if (cuts[at] < cuts[to]) to = at;
      }
      if (to > from) pieces.push(list.slice(from, to));
      from = to;
    }
    return pieces;
  }

  /** Open groups, those with few children first, as long as there are no more boxes than `budget`. */
  openFirst(budget) {
    const visible = [this.root];
    let boxes = 1;
    const closed = new Set([this.root]);
    const grow = (element) => {
      closed.delete(element);
      element.open = true;
      boxes += element.children.length - 1;
      for (const child of element.children) if (child.turns && child.kind !== "body") closed.add(child);
    };
    grow(visible[0]);
    for (;;) {
      const next = [...closed].filter((one) => boxes + one.children.length - 1 <= budget)
        .sort((a, b) => (b.kind === "region") - (a.kind === "region") || b.turns.length - a.turns.length || a.children.length - b.children.length)[0];
      if (!next) return this;
      grow(next);
    }
  }

  close() {
    const visit = (group) => {
      group.open = group.unrolled = false;
      for (const turn of group.turns) for (const child of turn) if (child.turns) visit(child);
    };
    visit(this.root);
    return this;
  }

  setAll(depth) {
    const visit = (element, level) => {
      if (!element.turns) return;
      element.open = element.kind === "root" || depth >= level[element.kind];
      element.unrolled = depth > 2 && element.turns.length > 1;
      for (const turn of element.turns) for (const child of turn) visit(child, level);
    };
    visit(this.root, { region: 1, part: 2, block: 2, body: 3, inside: 4 });
  }

  /** Open everything around an element, and show the repetitions that it is in. */
  reveal(element) {
    for (let child = element; child.parent; child = child.parent) {
      child.parent.open = true;
      child.parent.shown = child.turn;
    }
  }

  /**
   * What is drawn for each item: itself, its counterpart in the repetition that is shown, or the closed group around it;
   * and which repetitions it is in, as text.
   */
  visible() {
    const { items } = this.result;
    const found = { elements: new Array(items), turns: new Array(items).fill("") };
    const label = (element, shown, turns) => {
      if (element.item >= 0) {
        found.elements[element.item] = shown;
        found.turns[element.item] = turns;
      }
      if (!element.turns || element.inner) return;
      const open = shown.open && shown.turns;
      element.turns.forEach((turn, number) => {
        const own = open && element.kind === "block" && !element.unrolled ? `${turns}${shown.key}:${number};` : turns;
        turn.forEach((child, slot) => label(child, open ? (shown.unrolled ? child : shown.children[slot] ?? shown) : shown, own));
      });
    };
    label(this.root, this.root, "");
    return found;
  }
}

/** Name the groups in a group by their scopes, without those that are around all of it. */
function nameByScopes(group, around) {
  const own = group.scopes ?? around;
  if (own.length > around.length) group.title = own.slice(own.findIndex((scope, at) => scope !== around[at])).join("/");
  for (const turn of group.turns) for (const child of turn) if (child.turns) nameByScopes(child, own.length > around.length ? own : around);
}

/** A title for a sequence without a scope of its own: its first and last operator. */
const span = (list) => `${firstOperator(list)} \u2026 ${firstOperator([...list].reverse())}`.replace(/\w+::/g, "");

/** The first operator that computes something, or else the first one. */
function firstOperator(list) {
  let first = "";
  for (const element of list) {
    const found = element.kind === "node" || element.kind === "body" ? element.title : element.turns ? firstOperator(element.turns[0]) : "";
    if (found && !onlyStores(found)) return found;
    first ||= found;
  }
  return first;
}
