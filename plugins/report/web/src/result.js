// The document of the report, with the look-ups that views need.

const PALETTE = ["#3b75af", "#ef8636", "#519e3e", "#8d69b8", "#c53a32", "#84584e", "#d57dbe", "#2f9e9e"];
const HOST = "#8a8f98";

export class Result {
  constructor(document) {
    Object.assign(this, document);
    const names = [...new Set([...this.regions.map((region) => region.backend), ...this.nodes.backends])];
    this.color = new Map(names.filter((name) => name !== "host").map((name, i) => [name, PALETTE[i % PALETTE.length]]));
    this.color.set("host", HOST);
    this.count = this.nodes.name.length;
    this.members = this.regions.map(() => []);
    this.nodes.region.forEach((region, node) => this.members[region].push(node));
  }

  operator(node) { return this.nodes.operators[this.nodes.operator[node]]; }
  backend(node) { return this.nodes.backends[this.nodes.backend[node]]; }
  precision(node) { return this.nodes.precisions[this.nodes.precision[node]]; }
  name(node) { return this.nodes.name[node]; }

  output(node) {
    const name = this.nodes.output[node];
    return name.startsWith("~") ? this.name(node) + name.slice(1) : name;
  }

  regionTitle(index) {
    const { number, backend } = this.regions[index];
    return number === null ? `${backend}, no region` : `region ${number}: ${backend}`;
  }

  /** The reasons of a node, with the names in their sentences. */
  reasonsOf(node) {
    return (this.nodes.reasons[node] ?? []).map(([row, slots = [], because = [], command = ""]) => {
      const reason = this.reasons[row];
      let slot = 0;
      return { ...reason, because, command, why: reason.why.replace(/'\{\}'/g, () => `'${slots[slot++] ?? ""}'`) };
    });
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

  neighbors(node) {
    if (!this._neighbors) {
      this._neighbors = Array.from({ length: this.count }, () => [[], []]);
      for (let i = 0; i < this.edges.length; i += 2) {
        this._neighbors[this.edges[i]][1].push(this.edges[i + 1]);
        this._neighbors[this.edges[i + 1]][0].push(this.edges[i]);
      }
    }
    return this._neighbors[node];
  }
}
