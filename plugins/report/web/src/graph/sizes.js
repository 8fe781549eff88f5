// How large boxes are, and the texts in them.

import { onlyStores, shapeText } from "../names.js";

export const FONT = 'system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif';
export const HEAD = 30; // height of a frame's title
export const PAD = 14; // around what is in a frame
const LINE = 15;
const NARROW = 104;
const WIDE = 216;
const WIDEST = 264; // of a group, whose title names two operators or a module
const LONGEST = 300; // of an operator, which may be a sentence in a model of somebody

const context = typeof document === "undefined" ? null : document.createElement("canvas").getContext("2d");
const widths = new Map();

export function textWidth(text, size, weight = 400) {
  const key = `${weight}${size}${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    context.font = `${weight} ${size}px ${FONT}`;
    width = context.measureText(text).width;
    if (widths.size < 50000) widths.set(key, width);
  }
  return width;
}

/** About the width of a text, where very many are laid out. */
const roughWidth = (text, size) => text.length * size * 0.56;

/** A text that fits in a width: whole, or with its middle left out, because names differ at both ends. */
export function fitted(text, width, size, weight = 400) {
  if (textWidth(text, size, weight) <= width) return text;
  let keep = Math.max(2, Math.floor((text.length * width) / textWidth(text, size, weight)) - 1);
  for (; keep > 2; keep--) {
    const cut = `${text.slice(0, Math.ceil(keep / 2))}\u2026${text.slice(text.length - Math.floor(keep / 2))}`;
    if (textWidth(cut, size, weight) <= width) return cut;
  }
  return "\u2026";
}

const MAKERS = { node: nodeBox, body: nodeBox, conversion: conversionBox, input: endBox, output: endBox, inner: innerBox };

/**
 * The texts of a box: { head, badge, lines, foot, w, h }; of a conversion or an end, `head` and `lines`. Sides that are
 * drawn beside each other have boxes of one size.
 */
export function boxOf(element, result, compact = element.boxes?.[0]?.compact ?? false, rough = false) {
  const known = element.boxes?.[result.slot];
  if (known?.compact === compact) return known;
  const make = MAKERS[element.kind] ?? groupBox;
  const boxes = result.sides.map((side) => make(element, side, compact, rough ? roughWidth : textWidth));
  const [w, h] = ["w", "h"].map((extent) => Math.max(...boxes.map((box) => box[extent])));
  (element.boxes ??= [])[result.slot] = { ...boxes[0], w, h, compact };
  return element.boxes[result.slot];
}

function nodeBox(element, result, compact, measure) {
  const { item } = element;
  const head = result.operator(item).split("::").pop();
  const badge = shortFormat(result.precision(item));
  const lines = [result.name(item)];
  const constants = result.constants(item).map((text) => shapeText(text));
  if (constants.length && !compact) lines.push(constantsLine(constants));
  const inside = result.folded(item).map(([, operator]) => operator.split("::").pop());
  const expansion = result.expansion(item);
  const foot = [];
  if (inside.length) foot.push(`+ ${[...new Set(inside)].slice(0, 2).join(", ")}${inside.length > 2 ? ` (${inside.length})` : ""}`);
  if (element.held) foot.push(`\u25b8 ${element.count - 1} nodes inside`);
  else if (expansion && arithmetic(expansion) > 1) foot.push(`\u25b8 ${expansion.length} in the file`);
  if (compact && foot.length) lines[0] += ` ${foot.splice(0).map((text) => text[0]).join("")}`;
  const top = measure(head, 14, 600) + (badge ? badge.length * 6.4 + 26 : 8) + 22; // operators are never cut
  const w = Math.max(Math.min(top, LONGEST), clamp(Math.max(...lines.map((line) => measure(line, 11.5)), ...foot.map((line) => measure(line, 11.5))) + 26, compact));
  return { head, badge, lines, foot, w, h: 14 + 16 + LINE * (lines.length + foot.length) };
}

/** The nodes of an expansion that compute something. */
const arithmetic = (expansion) => expansion.filter(([operator]) => !onlyStores(operator)).length;

/** As many constants as fit in a line. */
function constantsLine(constants) {
  for (let number = 2; number > 1; number--) {
    const line = constants.slice(0, number).join("  ") + (constants.length > number ? `  +${constants.length - number}` : "");
    if (textWidth(line, 11.5) <= WIDE - 26) return line;
  }
  return constants[0] + (constants.length > 1 ? `  +${constants.length - 1}` : "");
}

function conversionBox(element, result) {
  const { from, to } = result.conversion(element.item);
  const text = `${shortFormat(from) || from} \u2192 ${shortFormat(to) || to}`;
  return { head: text, lines: [], foot: [], w: textWidth(text, 11.5, 600) + 32, h: 22 };
}

function endBox(element, result) {
  const head = result.label(element.item);
  const text = shapeText(result.typeOfEnd(element.item));
  const w = clamp(Math.max(textWidth(head, 12.5, 600), textWidth(text, 11)) + 28);
  return { head, lines: text ? [text] : [], foot: [], w, h: text ? 38 : 26 };
}

function innerBox(element) {
  return { head: element.title, lines: [], foot: [], w: textWidth(element.title, 12) + 22, h: 24 };
}

function groupBox(element, result) {
  const head = element.title;
  const many = element.turns.length > 1 ? `\u00d7 ${element.turns.length}` : "";
  const counts = new Map();
  collect(element.turns[0], counts, result);
  const sorted = [...counts].sort((a, b) => onlyStores(a[0]) - onlyStores(b[0]) || b[1] - a[1]);
  const top = sorted.slice(0, 3).map(([name, count]) => (count > 1 ? `${name} ${count}` : name));
  const lines = [`${element.count} node${element.count === 1 ? "" : "s"}${many ? " each" : ""}`];
  if (top.length) lines.push(top.join(", ") + (sorted.length > 3 ? ", \u2026" : ""));
  const differing = result.changed.size ? differ(element.turns.flat(), result.changed) : 0;
  if (differing) lines.push(`${differing} differ${differing === 1 ? "s" : ""}`);
  const w = Math.min(WIDEST, Math.max(130, Math.max(textWidth(head, 14, 600) + (many ? textWidth(many, 13, 700) + 26 : 0), ...lines.map((line) => textWidth(line, 11.5))) + 28));
  return { head, badge: many, lines, foot: [], w, h: 14 + 16 + LINE * lines.length, group: true };
}

function collect(children, counts, result) {
  for (const child of children) {
    if (child.kind === "node" || child.kind === "body") {
      const name = child.title.split("::").pop();
      counts.set(name, (counts.get(name) ?? 0) + 1);
    } else for (const turn of child.turns ?? []) collect(turn, counts, result);
  }
}

/** How many of the items in groups differ. */
function differ(children, changed) {
  return children.reduce((sum, child) => sum + changed.has(child.item) + (child.turns ? differ(child.turns.flat(), changed) : 0), 0);
}

/** The title of an open frame, as long as there is room: of a region with its number, nodes, and time or share. */
export function frameTitle(element, result, width, size) {
  if (element.kind === "region") {
    const region = result.regions[element.region];
    const nodes = `${region.nodes} node${region.nodes === 1 ? "" : "s"}`;
    const part = result.timeOfRegion(element.region) || `${Number(((100 * region.nodes) / result.count).toPrecision(3))} %`;
    const title = result.regionTitle(element.region);
    const texts = [`${title} \u00b7 ${nodes} \u00b7 ${part}`, `${title} \u00b7 ${nodes}`, title, region.backend];
    return texts.find((text) => textWidth(text, size, 600) <= width) ?? fitted(region.backend, width, size, 600);
  }
  if (element.kind === "node" || element.kind === "body") return fitted(`${result.operator(element.item)} ${result.name(element.item)}`, width, size, 600);
  const many = element.turns.length > 1 ? `\u00d7 ${element.turns.length}` : "";
  const nodes = `${element.count} node${element.count === 1 ? "" : "s"}${many ? " each" : ""}`;
  const texts = [`${element.title}  ${many} \u00b7 ${nodes}`, `${element.title}  ${many}`];
  return texts.find((text) => textWidth(text, size, 600) <= width) ?? (many && textWidth(texts[1], size, 600) > width ? many : fitted(element.title, width, size, 600));
}

const SHORT = { float32: "f32", float16: "f16", bfloat16: "bf16", float64: "f64" };

/** A format as a badge: `int8`, `bf16`; without scheme and axis. */
export function shortFormat(format) {
  const kind = format.split("[")[0];
  return SHORT[kind] ?? kind;
}

const clamp = (width, compact = false) => Math.min(compact ? 150 : WIDE, Math.max(compact ? 84 : NARROW, width));
