// Plots in SVG: errors of layers, ranges of values, histograms of integers.

import { el, figure, svg } from "./dom.js";

const LINE = 18;

function frame(width, height, ...children) {
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "chart" }, ...children);
}

function label(x, y, text, more = {}) {
  const node = svg("text", { x, y, ...more });
  node.textContent = text.length > 34 ? `${text.slice(0, 33)}\u2026` : text;
  node.append(title(text));
  return node;
}

function title(text) {
  const node = svg("title");
  node.textContent = text;
  return node;
}

/** SNR of each layer, worst first: alone as a bar, with what has accumulated as a mark. */
export function layerChart(rows, pick) {
  const known = rows.filter((row) => row.alone !== undefined || row.accumulated !== undefined);
  const least = (row) => Math.min(row.alone ?? Infinity, row.accumulated ?? Infinity);
  const shown = known.sort((a, b) => least(a) - least(b)).slice(0, 60);
  const most = Math.max(10, ...shown.flatMap((row) => [row.alone ?? 0, row.accumulated ?? 0]));
  const scale = (value) => 240 + (Math.max(0, value) / most) * 520;
  const chart = frame(800, shown.length * LINE + 24);
  shown.forEach((row, i) => {
    const y = i * LINE;
    const group = svg("g", { class: "pick", tabindex: 0, role: "button" }, label(232, y + 13, row.node, { "text-anchor": "end" }));
    if (row.alone !== undefined)
      group.append(svg("rect", { x: 240, y: y + 3, width: scale(row.alone) - 240, height: 11, class: "bar1" }));
    if (row.accumulated !== undefined)
      group.append(svg("rect", { x: scale(row.accumulated) - 2, y: y + 1, width: 4, height: 15, class: "mark" }));
    group.append(title(`${row.node}: alone ${figure(row.alone)} dB, accumulated ${figure(row.accumulated)} dB`));
    group.addEventListener("click", () => pick(row.node));
    group.addEventListener("keydown", ({ key }) => key === "Enter" && pick(row.node));
    chart.append(group);
  });
  chart.append(label(240, shown.length * LINE + 16, "0 dB"), label(760, shown.length * LINE + 16, `${figure(most, 3)} dB`, { "text-anchor": "end" }));
  return chart;
}

/** The measured range of each value on a signed logarithmic axis; behind it, what its integers hold. */
export function rangeChart(rows, most = 80) {
  const shown = rows.slice(0, most);
  const limits = shown.flatMap((row) => [row.min, row.max, row.low ?? 0, row.high ?? 0]).map(Math.abs);
  const top = Math.log10(1 + Math.max(1e-6, ...limits) * 1000);
  const scale = (value) => 500 + (Math.sign(value) * Math.log10(1 + Math.abs(value) * 1000) / top) * 260;
  const chart = frame(800, shown.length * LINE + 24);
  shown.forEach((row, i) => {
    const y = i * LINE;
    const group = svg("g", {}, label(232, y + 13, row.value, { "text-anchor": "end" }));
    if (row.low !== undefined)
      group.append(svg("rect", { x: scale(row.low), y: y + 1, width: Math.max(1, scale(row.high) - scale(row.low)), height: 15, class: "held" }));
    group.append(svg("rect", { x: scale(row.min), y: y + 5, width: Math.max(1, scale(row.max) - scale(row.min)), height: 7, class: "bar1" }));
    const held = row.low === undefined ? "" : `; ${row.format} holds ${figure(row.low)} to ${figure(row.high)}`;
    group.append(title(`${row.value}: ${figure(row.min)} to ${figure(row.max)}${held}`));
    chart.append(group);
  });
  const foot = shown.length * LINE + 16;
  for (const value of ticks(Math.max(1e-6, ...limits))) {
    chart.prepend(svg("line", { x1: scale(value), x2: scale(value), y1: 0, y2: shown.length * LINE + 4, class: "axis" }));
    chart.append(label(scale(value), foot, value ? figure(value, 1) : "0", { "text-anchor": "middle" }));
  }
  return chart;
}

/** Zero, and powers of ten on both sides: as many as have room. */
function ticks(far) {
  const top = Math.floor(Math.log10(far));
  const powers = [top, top - 2].map((power) => 10 ** power).filter((value) => value >= 1e-3);
  return [...powers.map((value) => -value), 0, ...powers.reverse()];
}

export function histogram(row) {
  const most = Math.max(1, ...row.bins);
  const chart = frame(256, 96);
  row.bins.forEach((count, i) => {
    const height = count ? Math.max(1, (count / most) * 80) : 0;
    chart.append(svg("rect", { x: i * 4, y: 80 - height, width: 3.4, height, class: "bar1" }));
  });
  const [low, high] = row.type === "int8" ? ["-128", "127"] : ["0", "255"];
  chart.append(label(0, 93, low), label(256, 93, high, { "text-anchor": "end" }));
  const scale = row.scale === undefined ? "" : row.scales > 1
    ? `${row.scales} scales, ${figure(row.scale, 3)} to ${figure(row.largest, 3)}` : `scale ${figure(row.scale, 3)}`;
  return el("figure", { class: "histogram" }, el("figcaption", { title: row.weight ?? row.value }, row.weight ?? row.value), chart,
    el("small", {}, `${row.type}, ${row.elements} elements, ${row.levels} levels, ${figure(100 * row.ends, 3)} % at the ends`), el("small", {}, scale));
}
