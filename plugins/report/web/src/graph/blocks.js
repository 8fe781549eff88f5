// Repeated blocks: runs of a sequence in which the same signatures come again and again, such as the layers of a net.

const LONGEST = 400; // elements of a block, at most

/**
 * Find the repetition that saves most: { start, length, count }, or null.
 * `signatures` are compared with ===; `cuts[i]` is the number of values that cross from before element i to behind it.
 */
export function repetition(signatures, cuts) {
  const size = signatures.length;
  let best = null;
  let saved = 3;
  for (let length = 1; length <= Math.min(LONGEST, size >> 1); length++) {
    let run = 0;
    for (let i = length; i <= size; i++) {
      if (i < size && signatures[i] === signatures[i - length]) {
        run += 1;
        continue;
      }
      const count = Math.floor((run + length) / length);
      if (count > 1 && (count - 1) * length > saved && (length > 3 || count > 5)) {
        saved = (count - 1) * length;
        best = { start: i - run - length, length, count, end: i };
      }
      run = 0;
    }
  }
  return best && turned(best, cuts);
}

/** Begin the block where fewest values cross its border: a layer begins with its input, not in its middle. */
function turned({ start, length, count, end }, cuts) {
  const spare = end - start - length * count;
  let at = start;
  for (let i = start; i <= start + spare; i++) if (cuts[i] < cuts[at]) at = i;
  if (count > 2) {
    let other = at;
    for (let i = start; i < start + length; i++) if (cuts[i] < cuts[other]) other = i;
    if (cuts[other] + 1 < cuts[at]) return { start: other, length, count: Math.floor((end - other) / length) };
  }
  return { start: at, length, count };
}

/** The number of values that cross from before each position to it or behind it; `edges` are pairs of positions. */
export function cutsOf(size, edges) {
  const furthest = new Int32Array(size).fill(-1);
  for (const [from, to] of edges) if (to > from && to > furthest[from]) furthest[from] = to;
  const change = new Int32Array(size + 2);
  for (let i = 0; i < size; i++) {
    if (furthest[i] < 0) continue;
    change[i + 1] += 1;
    change[furthest[i] + 1] -= 1;
  }
  const cuts = new Int32Array(size + 1);
  let open = 0;
  for (let i = 0; i <= size; i++) {
    open += change[i];
    cuts[i] = open;
  }
  return cuts;
}
