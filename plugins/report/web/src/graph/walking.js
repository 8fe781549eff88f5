// Ways through the graph: to the next box in a direction, and from one item to another.

/** The box that an arrow key leads to: along an edge, or across to the nearest one beside it; null if there is none. */
export function neighbor(drawing, from, key, sideways) {
  const [forward, back] = sideways ? ["ArrowRight", "ArrowLeft"] : ["ArrowDown", "ArrowUp"];
  if (key === forward || key === back) {
    const ends = drawing.edges.filter((edge) => (key === forward ? edge.from : edge.to) === from).map((edge) => (key === forward ? edge.to : edge.from));
    return nearest(from, ends);
  }
  const [dx, dy] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[key];
  const a = middle(from);
  const beside = drawing.boxes.filter((box) => {
    const b = middle(box);
    return box !== from && (b.x - a.x) * dx + (b.y - a.y) * dy > 4 && Math.abs(dx ? b.y - a.y : b.x - a.x) < 2.2 * Math.abs(dx ? b.x - a.x : b.y - a.y);
  });
  return nearest(from, beside);
}

function nearest(from, boxes) {
  const a = middle(from);
  let best = null;
  let least = Infinity;
  for (const box of boxes) {
    const b = middle(box);
    const distance = Math.hypot(b.x - a.x, b.y - a.y);
    if (distance < least) [best, least] = [box, distance];
  }
  return best;
}

const middle = ({ x, y, w, h }) => ({ x: x + w / 2, y: y + h / 2 });

/** The shortest way from one item to another along the edges, or against them if there is none; or null. */
export function shortestPath(result, from, to) {
  return along(result, from, to, 1) ?? along(result, from, to, 0);
}

function along(result, from, to, side) {
  const before = new Map([[from, -1]]);
  const waiting = [from];
  for (let i = 0; i < waiting.length; i++) {
    if (waiting[i] === to) {
      const path = [];
      for (let at = to; at !== -1; at = before.get(at)) path.push(at);
      return path.reverse();
    }
    for (const next of result.neighbors(waiting[i])[side])
      if (!before.has(next)) {
        before.set(next, waiting[i]);
        waiting.push(next);
      }
  }
  return null;
}
