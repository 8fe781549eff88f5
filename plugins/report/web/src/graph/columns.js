// A tall drawing in columns, read like a page: rows from top to bottom, then on in the next column to the right.

const GAP = 40; // between columns
const LANE = 6; // between lines beside each other in a gap
const LANES = 5;

/**
 * Fold rows into columns that are at most `most` high. Edges that leave a column go below it, up in the gap, and
 * into the next column from above; edges that go back, which no layer holds, do so in any case. Returns
 * { places, routes, returns, w, h }, from 0 on, with the routes of edges that go back apart; `boxes` are { w, h }.
 */
export function folded({ places, routes }, boxes, edges, most, back = []) {
  const rows = rowsOf(places, boxes);
  const columns = [];
  for (const row of rows) {
    const last = columns.at(-1);
    if (last && row.bottom - last.top <= most) {
      last.rows.push(row);
      last.bottom = row.bottom;
    } else columns.push({ rows: [row], top: row.top, bottom: row.bottom });
  }
  if (!columns.length) return { places: [], routes: [], returns: [], w: 0, h: 0 };
  const columnOf = new Array(boxes.length);
  columns.forEach((column, number) => column.rows.forEach((row) => row.members.forEach((i) => (columnOf[i] = number))));
  const widths = columns.map(() => [Infinity, -Infinity]);
  const widen = (number, from, to) => {
    widths[number][0] = Math.min(widths[number][0], from);
    widths[number][1] = Math.max(widths[number][1], to);
  };
  places.forEach(({ x }, i) => widen(columnOf[i], x - boxes[i].w / 2, x + boxes[i].w / 2));
  const at = (y) => columns.findIndex((column) => y <= column.bottom + 0.5);
  const beside = besideRows(rows); // bends between two rows are left out: lines bend there anyway
  const kept = routes.map((points, i) => points.slice(1, -1).filter(({ x, y }) => {
    if (!beside(y)) return false;
    const column = at(y);
    const own = column === columnOf[edges[i][0]] || column === columnOf[edges[i][1]];
    if (own) widen(column, x - 4, x + 4);
    return own;
  }));
  const crossing = new Array(columns.length).fill(0);
  const tail = edges.map(([from, to]) => (columnOf[from] === columnOf[to] ? 0 : (crossing[columnOf[to]] += 1)));
  const turning = back.map(([, to]) => (crossing[columnOf[to]] += 1));
  const shift = [];
  let left = 0;
  columns.forEach((column, number) => {
    if (number || crossing[0]) left += GAP + LANE * Math.min(LANES, crossing[number]);
    shift.push({ dx: left - widths[number][0], dy: -column.top, left });
    left += widths[number][1] - widths[number][0];
  });
  const several = columns.length > 1 || back.length > 0;
  const lanes = Math.min(LANES, Math.max(0, ...crossing));
  const down = several ? 14 + LANE * lanes : 0;
  const high = Math.max(...columns.map((column) => column.bottom - column.top)) + down;
  const moved = places.map(({ x, y }, i) => ({ x: x + shift[columnOf[i]].dx, y: y + shift[columnOf[i]].dy + down }));
  const drawn = edges.map(([from, to], i) => {
    const [one, other] = [columnOf[from], columnOf[to]];
    const points = kept[i].map(({ x, y }) => {
      const column = at(y);
      return { x: x + shift[column].dx, y: y + shift[column].dy + down, column };
    });
    const start = { x: moved[from].x, y: moved[from].y + boxes[from].h / 2 };
    const end = { x: moved[to].x, y: moved[to].y - boxes[to].h / 2 };
    if (one === other) return [start, ...points, end];
    const lane = (tail[i] - 1) % lanes;
    const first = points.filter(({ column }) => column === one);
    const second = points.filter(({ column }) => column === other);
    const foot = Math.min(high, columns[one].bottom - columns[one].top + down) + 10 + lane * LANE;
    const under = other - one > 1 ? high + 10 + lane * LANE : foot;
    const gutter = shift[other].left - 16 - lane * LANE;
    const roof = down - 14 - lane * LANE;
    const before = first.at(-1) ?? start;
    const after = second[0] ?? end;
    return [start, ...first, { x: before.x, y: under, at: first.length ? "" : "start" }, { x: gutter, y: under }, { x: gutter, y: roof },
      { x: after.x, y: roof, at: second.length ? "" : "end" }, ...second, end];
  });
  const returns = back.map(([from, to], i) => {
    const lane = (turning[i] - 1) % lanes;
    const start = { x: moved[from].x, y: moved[from].y + boxes[from].h / 2 };
    const end = { x: moved[to].x, y: moved[to].y - boxes[to].h / 2 };
    const [under, gutter, roof] = [high + 10 + lane * LANE, shift[columnOf[to]].left - 16 - lane * LANE, down - 14 - lane * LANE];
    return [start, { x: start.x, y: under, at: "start" }, { x: gutter, y: under }, { x: gutter, y: roof }, { x: end.x, y: roof, at: "end" }, end];
  });
  return { places: moved, routes: drawn, returns, w: left, h: high + (several ? 8 + LANE * lanes : 0), columns: columns.length };
}

/** A test whether a height is that of a row, by halving. */
function besideRows(rows) {
  return (y) => {
    let [from, to] = [0, rows.length];
    while (from < to) {
      const half = (from + to) >> 1;
      if (rows[half].bottom < y - 1) from = half + 1;
      else to = half;
    }
    return from < rows.length && rows[from].top - 1 <= y;
  };
}

function rowsOf(places, boxes) {
  const order = places.map((_, i) => i).sort((a, b) => places[a].y - places[b].y);
  const rows = [];
  for (const i of order) {
    const last = rows.at(-1);
    const [top, bottom] = [places[i].y - boxes[i].h / 2, places[i].y + boxes[i].h / 2];
    if (last && Math.abs(places[i].y - last.y) < 1) {
      last.members.push(i);
      last.top = Math.min(last.top, top);
      last.bottom = Math.max(last.bottom, bottom);
    } else rows.push({ y: places[i].y, top, bottom, members: [i] });
  }
  return rows;
}
