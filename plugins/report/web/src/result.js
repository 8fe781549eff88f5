// The document of the report, with the look-ups that views need.

const PALETTE = ["#3b75af", "#ef8636", "#519e3e", "#8d69b8", "#c53a32", "#84584e", "#d57dbe", "#2f9e9e"];
const HOST = "#8a8f98";

/** The rows of a long table, which is stored as columns. */
function unpacked({ columns, rows }) {
  return rows.map((row) => Object.fromEntries(row.map((value, i) => [columns[i], value ?? undefined])));
}

/** A color for each backend, in the order of their names. */
export function colorsOf(names) {
  const others = [...new Set(names)].filter((name) => name !== "host");
  return new Map([...others.map((name, i) => [name, PALETTE[i % PALETTE.length]]), ["host", HOST]]);
}

export class Result {
  constructor(document) {
    Object.assign(this, document);
    for (const [name, table] of Object.entries(document)) if (table?.columns) this[name] = unpacked(table);
    this.color = colorsOf([...this.regions.map((region) => region.backend), ...this.nodes.backends]);
    this.count = this.nodes.name.length;
    this.firstInput = this.count;
    this.firstOutput = this.firstInput + this.inputs.length;
    this.firstConversion = this.firstOutput + this.outputs.length;
    this.items = this.firstConversion + this.conversions.length;
    this.sides = [this]; // what is drawn side by side; of a pair both results
    this.slot = 0; // where elements keep its boxes
    this.changed = new Set(); // items that differ between the sides
  }

  has() { return true; }

  /** Which sides have an edge, as bits. */
  ownersOf() { return 1; }

  /** What an item is: items are nodes, inputs, outputs and conversions, numbered through. */
  kind(item) {
    if (item < this.firstInput) return "node";
    if (item < this.firstOutput) return "input";
    return item < this.firstConversion ? "output" : "conversion";
  }

  label(item) {
    if (item < this.firstInput) return this.name(item);
    if (item < this.firstOutput) return this.inputs[item - this.firstInput][0];
    if (item < this.firstConversion) return this.outputs[item - this.firstOutput][0];
    return `${this.conversion(item).kind} ${this.conversion(item).value}`;
  }

  typeIndexOfEnd(item) {
    return (item < this.firstOutput ? this.inputs[item - this.firstInput] : this.outputs[item - this.firstOutput])[1];
  }

  typeOfEnd(item) { return this.types[this.typeIndexOfEnd(item)]; }

  /** A conversion of the plan: { value, kind, from, to, at, bytes, nodes }. */
  conversion(item) {
    const number = item - this.firstConversion;
    const [value, row, at, bytes] = this.conversions[number];
    const [kind, from, to] = this.conversion_kinds[row];
    return { value, kind, from, to, at, bytes, nodes: this.conversion_nodes[number] ?? [] };
  }

  constants(node) { return (this.nodes.constants[node] ?? []).map((text) => this.nodes.constant_texts[text]); }
  folded(node) { return this.nodes.folded[node] ?? []; }
  type(node) { return this.types[this.nodes.type[node]]; }

  /** The nodes of the file that stand for a node: [operator, indices of those it reads among them]; or undefined. */
  expansion(node) {
    const pattern = this.nodes.expansion[node];
    return pattern === undefined ? undefined : this.expansions[pattern].map(([operator, reads]) => [this.nodes.operators[operator], reads]);
  }

  /** The line of a node in plan.yaml, with another backend. */
  planLine(node, backend) {
    return `- ${JSON.stringify([this.name(node), this.output(node), this.operator(node), backend])}`;
  }

  timeOfRegion(index) {
    this._timed ??= new Map([...this.predicted.map((row) => [row.region, `${row.ms} ms predicted`]), ...this.times.map((row) => [row.region, `${row.ms} ms`])]);
    return this._timed.get(index) ?? "";
  }

  operator(node) { return this.nodes.operators[this.nodes.operator[node]]; }
  backend(node) { return this.nodes.backends[this.nodes.backend[node]]; }
  precision(node) { return this.nodes.precisions[this.nodes.precision[node]]; }
  name(node) { return this.nodes.name[node]; }
  scope(node) { return this.nodes.scopes[this.nodes.scope[node] ?? 0] ?? ""; } // all the same: no column

  output(node) {
    const name = this.nodes.output[node];
    return name.startsWith("~") ? this.name(node) + name.slice(1) : name;
  }

  regionTitle(index) {
    const { number, backend } = this.regions[index];
    return number === null ? `${backend}, no region` : `${backend}, region ${number}`;
  }

  /** The reasons of a node, with the names in their sentences. */
  reasonsOf(item) {
    const entries = item < this.count ? this.nodes.reasons[item] : this.conversion_reasons[item - this.firstConversion];
    return (entries ?? []).map(([row, slots = [], because = [], command]) => {
      const reason = this.reasons[row];
      let slot = 0;
      return { ...reason, because, command: command ?? reason.command, why: reason.why.replace(/\ufffc/g, () => slots[slot++] ?? "") };
    });
  }

  /** The text of a distinct reason: that of its first node, and that others differ from it in names or numbers. */
  exampleOf(row) {
    return row.example && row.nodes > 1 ? `${row.example} (and ${row.nodes - 1} like it)` : row.example ?? row.why;
  }

  /** The nodes that have a reason. */
  nodesOfReason(row) {
    if (!this._byReason) {
      this._byReason = this.reasons.map(() => []);
      for (const [node, entries] of Object.entries(this.nodes.reasons))
        for (const [reason] of entries) this._byReason[reason].push(Number(node));
    }
    return this._byReason[row];
  }

  byName(name) {
    if (!this._byName) {
      this._byName = new Map();
      for (let node = this.count - 1; node >= 0; node--) this._byName.set(this.name(node), node);
    }
    return this._byName.get(name);
  }

  /** The item of a kind with a name, or a conversion of a value; -1 if there is none. */
  find(kind, name) {
    if (kind === "node") return this.byName(name) ?? -1;
    for (let item = this.firstInput; item < this.items; item++)
      if (this.kind(item) === kind && (kind === "conversion" ? this.conversion(item).value : this.label(item)) === name) return item;
    return -1;
  }

  /** Nodes whose name, operator, output, placement or reason contains every word. */
  search(text, most = 500) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const reasons = this.reasons.map((row) => `${row.why} ${row.rule} ${row.source ?? ""}`.toLowerCase());
    const found = [];
    for (let node = 0; node < this.count && found.length < most; node++) {
      let own = `${this.name(node)}\n${this.operator(node)}\n${this.output(node)}\n${this.backend(node)}\n${this.precision(node)}`;
      own = own.toLowerCase();
      const entries = this.nodes.reasons[node] ?? [];
      if (words.every((word) => own.includes(word) || entries.some(([row]) => reasons[row].includes(word)))) found.push(node);
    }
    return found;
  }

  /** The items that an item reads, and those that read it. */
  neighbors(item) {
    if (!this._neighbors) {
      this._neighbors = Array.from({ length: this.items }, () => [[], []]);
      for (let i = 0; i < this.edges.length; i += 3) {
        this._neighbors[this.edges[i]][1].push(this.edges[i + 1]);
        this._neighbors[this.edges[i + 1]][0].push(this.edges[i]);
      }
    }
    return this._neighbors[item];
  }
}
