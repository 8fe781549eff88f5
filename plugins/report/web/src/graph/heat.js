// Heat: nodes in the color of a measure, with its numbers in their badges and a legend.

import { bytes, el, figure } from "../dom.js";
import { heatColor } from "./theme.js";

/** The measures that a result has: { name: { title, value(item), text(value), worst: "high" or "low" } }. */
export function measures(result) {
  const found = {};
  const { nodes } = result;
  const times = result.node_times;
  if (times.some((time) => time > 0)) found.time = { title: "predicted time", value: (node) => (times[node] >= 0 ? times[node] : undefined), text: microseconds };
  const layers = new Map(result.layers.map((row) => [row.node, row]));
  for (const [name, key, title] of [["error", "alone", "error of the layer alone"], ["noise", "at outputs", "noise at the outputs"]])
    if (result.layers.some((row) => row[key] !== undefined))
      found[name] = { title, low: true, value: (node) => layers.get(nodes.name[node])?.[key], text: (value) => `${figure(value, 3)} dB` };
  if (nodes.bytes.some(Boolean)) found.bytes = { title: "bytes of the result", value: (node) => nodes.bytes[node] || undefined, text: bytes };
  return found;
}

/** A measure for drawing: `of(element)` is { share, text } or null; groups have the sum, or the worst of a ratio. */
export function heatOf(measure, result) {
  if (!measure) return null;
  const values = [];
  for (let node = 0; node < result.count; node++) {
    const value = measure.value(node);
    if (value !== undefined) values.push(value);
  }
  const [least, most] = values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  const level = (value) => (measure.low ? -value : Math.log1p(value));
  const [from, to] = [level(measure.low ? most : least), level(measure.low ? least : most)];
  const share = (value) => Math.max(0, Math.min(1, to > from ? (level(value) - from) / (to - from) : 1));
  const known = new Map();
  const total = (element) => {
    if (element.kind === "node" || element.kind === "body") return measure.value(element.item);
    let sum;
    for (const turn of element.turns ?? []) for (const child of turn) {
      const value = total(child);
      if (value === undefined) continue;
      sum = sum === undefined ? value : measure.low ? Math.min(sum, value) : sum + value;
    }
    return sum;
  };
  return {
    least, most, measure, share,
    of(element) {
      if (!known.has(element)) {
        const value = total(element);
        known.set(element, value === undefined ? null : { share: share(value), text: measure.text(value) });
      }
      return known.get(element);
    },
  };
}

export function legend(heat, dark) {
  const { least, most, measure } = heat;
  const [from, to] = measure.low ? [most, least] : [least, most];
  const bar = el("i", { class: "ramp" });
  bar.style.background = `linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map((share) => heatColor(share, dark)).join(", ")})`;
  return el("span", { class: "heat-legend" }, `${measure.title}: ${measure.text(from)} `, bar, ` ${measure.text(to)}`);
}

const microseconds = (value) => (value >= 1000 ? `${figure(value / 1000, 3)} ms` : `${figure(value, 3)} \u00b5s`);
