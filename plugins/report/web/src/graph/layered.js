// Layered layout of one group: dagre for groups that are read, a linear method where very much is open at once.

import dagre from "@dagrejs/dagre";

const RANKS = 26; // between rows
const BESIDE = 18; // between boxes of a row

/** Lay out boxes { w, h } with edges [from, to]: { places: [{x, y}], routes: [[{x, y}, ...]] }, top to bottom. */
export function layered(boxes, edges, fast) {
  return fast ? linear(boxes, edges) : detailed(boxes, edges);
}

function detailed(boxes, edges) {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ ranksep: RANKS, nodesep: BESIDE, edgesep: 12, rankdir: "TB" });
  graph.setDefaultEdgeLabel(() => ({}));
  boxes.forEach(({ w, h }, i) => graph.setNode(String(i), { width: w, height: h }));
  edges.forEach(([from, to], i) => graph.setEdge(String(from), String(to), { weight: 1 }, String(i)));
  dagre.layout(graph);
  const places = boxes.map((_, i) => graph.node(String(i))).map(({ x, y }) => ({ x, y }));
  const routes = edges.map(([from, to], i) => graph.edge(String(from), String(to), String(i)).points ?? []);
  return { places, routes };
}

/** Rows by the longest path, in the order of their neighbors' mean position; every edge is a straight line. */
function linear(boxes, edges) {
  const above = boxes.map(() => []);
  const below = boxes.map(() => []);
  for (const [from, to] of edges) {
    below[from].push(to);
    above[to].push(from);
  }
  const layer = new Array(boxes.length).fill(0);
  const waiting = above.map((list) => list.length);
  const ready = waiting.flatMap((number, i) => (number ? [] : [i]));
  for (let at = 0; at < ready.length; at++)
    for (const to of below[ready[at]]) {
      layer[to] = Math.max(layer[to], layer[ready[at]] + 1);
      if (--waiting[to] === 0) ready.push(to);
    }
  const rows = [];
  layer.forEach((number, i) => (rows[number] ??= []).push(i));
  const x = new Array(boxes.length).fill(0);
  const y = new Array(boxes.length).fill(0);
  let top = 0;
  for (const row of rows.filter(Boolean)) {
    const mean = new Map(row.map((i) => [i, above[i].length ? above[i].reduce((sum, one) => sum + x[one], 0) / above[i].length : 0]));
    row.sort((a, b) => mean.get(a) - mean.get(b));
    const width = row.reduce((sum, i) => sum + boxes[i].w + BESIDE, -BESIDE);
    const height = Math.max(...row.map((i) => boxes[i].h));
    let left = row.reduce((sum, i) => sum + mean.get(i), 0) / row.length - width / 2;
    for (const i of row) {
      x[i] = left + boxes[i].w / 2;
      y[i] = top + height / 2;
      left += boxes[i].w + BESIDE;
    }
    top += height + RANKS;
  }
  return { places: boxes.map((_, i) => ({ x: x[i], y: y[i] })), routes: edges.map(() => []) };
}

/** The edges without those that close a circle, which a layered layout cannot have. */
export function withoutCircles(size, edges) {
  const below = Array.from({ length: size }, () => []);
  edges.forEach(([from, to], i) => from !== to && below[from].push([to, i]));
  const state = new Uint8Array(size); // 1: on the path, 2: done
  const dropped = new Set();
  for (let start = 0; start < size; start++) {
    if (state[start]) continue;
    const path = [[start, 0]];
    state[start] = 1;
    while (path.length) {
      const step = path[path.length - 1];
      const next = below[step[0]][step[1]++];
      if (!next) {
        state[step[0]] = 2;
        path.pop();
      } else if (state[next[0]] === 1) dropped.add(next[1]);
      else if (!state[next[0]]) {
        state[next[0]] = 1;
        path.push([next[0], 0]);
      }
    }
  }
  return edges.map(([from, to], i) => from !== to && !dropped.has(i));
}
