// Where regions and nodes are: the layout of the file, with room made for the regions that are expanded.

import dagre from "@dagrejs/dagre";

const SPREAD = { x: 7, y: 4 }; // between collapsed regions
export const WIDE = 3.6; // horizontally between nodes, because labels are beside them
const DAGRE = 500; // nodes, below which a region is laid out in detail

export class Positions {
  constructor(result) {
    this.result = result;
    this.inner = new Map();
    this.wide = new Set(); // expanded regions with several nodes in a row
    this.boxes = []; // of the expanded regions: { region, x, y, w, h }, around their centers
  }

  /** The nodes of a region relative to its center: { x, y, width, height }. */
  of(region, detailed) {
    const key = `${region}/${detailed}`;
    if (!this.inner.has(key)) this.inner.set(key, detailed ? this.detailed(region) : this.plain(region));
    return this.inner.get(key);
  }

  plain(region) {
    const { width, height } = this.result.regions[region];
    const { x, y } = this.result.nodes;
    const place = new Map(this.result.members[region].map((node) => [node, [(x[node] - width / 2) * WIDE, y[node] - height / 2]]));
    return { place, width: width * WIDE, height };
  }

  detailed(region) {
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ ranksep: 0.5, nodesep: 0.3, edgesep: 0.2, rankdir: "TB" });
    graph.setDefaultEdgeLabel(() => ({}));
    const { nodes } = this.result;
    for (const node of this.result.members[region]) graph.setNode(String(node), { width: WIDE - 0.3, height: 0.5 });
    for (const node of this.result.members[region])
      for (const reader of this.result.neighbors(node)[1])
        if (nodes.region[reader] === region) graph.setEdge(String(node), String(reader));
    dagre.layout(graph);
    const { width, height } = graph.graph();
    const place = new Map(graph.nodes().map((id) => {
      const { x, y } = graph.node(id);
      return [Number(id), [x - width / 2, y - height / 2]];
    }));
    return { place, width, height };
  }

  /** The position of everything that is drawn, by id: `r3` is a region, `n12` a node. */
  all(expanded) {
    const { regions, members } = this.result;
    let total = 0;
    for (const region of expanded) total += members[region].length;
    const boxes = new Map([...expanded].map((region) => [region, this.of(region, members[region].length < DAGRE && total < 2 * DAGRE)]));
    const column = axis(regions.map((region) => region.x), SPREAD.x, (i) => (boxes.has(i) ? boxes.get(i).width + 4.5 : 0));
    const row = axis(regions.map((region) => region.y), SPREAD.y, (i) => (boxes.has(i) ? boxes.get(i).height + 2 : 0));
    const found = new Map();
    this.boxes = [];
    regions.forEach((region, i) => {
      const [x, y] = [column(region.x), row(region.y)];
      if (!boxes.has(i)) found.set(`r${i}`, [x, y]);
      else {
        const { place, width, height } = boxes.get(i);
        if (width > WIDE) this.wide.add(i);
        this.boxes.push({ region: i, x, y, w: width, h: height });
        for (const [node, [dx, dy]] of place) found.set(`n${node}`, [x + dx, y + dy]);
      }
    });
    return found;
  }
}

/** Spread coordinates so that what is expanded at each of them has room; order is kept. */
function axis(values, spread, extent) {
  const room = new Map();
  values.forEach((value, i) => room.set(value, Math.max(room.get(value) ?? 0, extent(i))));
  const sorted = [...room.keys()].sort((a, b) => a - b);
  const place = new Map();
  let at = 0;
  sorted.forEach((value, i) => {
    const around = i ? room.get(value) + room.get(sorted[i - 1]) : 0;
    if (i) at += around ? 1 + around / 2 : Math.min(2, value - sorted[i - 1]) * spread;
    place.set(value, at);
  });
  return (value) => place.get(value);
}
