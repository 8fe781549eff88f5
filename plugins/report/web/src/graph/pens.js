// Two pens with one vocabulary: one draws on a canvas, the other writes SVG.

import { FONT } from "./sizes.js";

export class CanvasPen {
  constructor(context) {
    this.context = context;
  }

  box(x, y, w, h, { fill, stroke, line = 1, round = 0, dash = null }) {
    const { context } = this;
    if (!round && !stroke) {
      context.fillStyle = fill;
      context.fillRect(x, y, w, h);
      return;
    }
    context.beginPath();
    if (round) context.roundRect(x, y, w, h, round);
    else context.rect(x, y, w, h);
    this.paint(fill, stroke, line, dash);
  }

  /** Many lines in one go, straight from point to point. */
  lines(all, { stroke, line }) {
    const { context } = this;
    context.beginPath();
    for (const points of all) points.forEach(({ x, y }, i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
    this.paint(null, stroke, line, null);
  }

  shape(points, { fill, stroke, line = 1, dash = null, closed = false }) {
    const { context } = this;
    context.beginPath();
    points.forEach(({ x, y }, i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
    if (closed) context.closePath();
    this.paint(fill, stroke, line, dash);
  }

  /** A line through points, with round corners. */
  curve(points, { stroke, line = 1, dash = null }) {
    const { context } = this;
    context.beginPath();
    for (const [kind, ...at] of smooth(points)) {
      if (kind === "M") context.moveTo(...at);
      else if (kind === "L") context.lineTo(...at);
      else if (kind === "Q") context.quadraticCurveTo(...at);
      else context.bezierCurveTo(...at);
    }
    this.paint(null, stroke, line, dash);
  }

  paint(fill, stroke, line, dash) {
    const { context } = this;
    if (fill) {
      context.fillStyle = fill;
      context.fill();
    }
    if (stroke) {
      context.strokeStyle = stroke;
      context.lineWidth = line;
      context.setLineDash(dash ?? []);
      context.stroke();
    }
  }

  text(text, x, y, { size, weight = 400, fill, anchor = "start" }) {
    const { context } = this;
    context.font = `${weight} ${size}px ${FONT}`;
    context.textAlign = anchor === "middle" ? "center" : anchor;
    context.fillStyle = fill;
    context.fillText(text, x, y);
  }
}

const escape = (text) => String(text).replace(/[&<>"\u0000-\u001f]/g, (one) => `&#${one.charCodeAt(0)};`);
const figure = (number) => String(Math.round(number * 10) / 10);

export class SvgPen {
  constructor(width, height, back) {
    this.parts = [`<svg xmlns="http://www.w3.org/2000/svg" width="${figure(width)}" height="${figure(height)}" viewBox="0 0 ${figure(width)} ${figure(height)}" font-family="${escape(FONT)}"><rect width="100%" height="100%" fill="${back}"/>`];
  }

  style(fill, stroke, line, dash) {
    return `fill="${fill ?? "none"}"${stroke ? ` stroke="${stroke}" stroke-width="${figure(line)}"` : ""}${dash ? ` stroke-dasharray="${dash.join(" ")}"` : ""}`;
  }

  box(x, y, w, h, { fill, stroke, line = 1, round = 0, dash = null }) {
    this.parts.push(`<rect x="${figure(x)}" y="${figure(y)}" width="${figure(w)}" height="${figure(h)}" rx="${figure(typeof round === "number" ? round : 0)}" ${this.style(fill, stroke, line, dash)}/>`);
  }

  shape(points, { fill, stroke, line = 1, dash = null, closed = false }) {
    const tag = closed ? "polygon" : "polyline";
    this.parts.push(`<${tag} points="${points.map(({ x, y }) => `${figure(x)},${figure(y)}`).join(" ")}" ${this.style(fill, stroke, line, dash)}/>`);
  }

  lines(all, { stroke, line }) {
    for (const points of all) this.shape(points, { stroke, line });
  }

  curve(points, { stroke, line = 1, dash = null }) {
    const path = smooth(points).map(([kind, ...at]) => kind + at.map(figure).join(" ")).join("");
    this.parts.push(`<path d="${path}" ${this.style(null, stroke, line, dash)}/>`);
  }

  text(text, x, y, { size, weight = 400, fill, anchor = "start" }) {
    this.parts.push(`<text x="${figure(x)}" y="${figure(y)}" font-size="${figure(size)}" font-weight="${weight}" fill="${fill}" text-anchor="${anchor}">${escape(text)}</text>`);
  }

  toString() {
    return `${this.parts.join("\n")}\n</svg>\n`;
  }
}

/** The commands of a path through points: a bent line between two, round corners at those in between. */
function smooth(points) {
  const [first, ...rest] = points;
  const found = [["M", first.x, first.y]];
  if (rest.length === 1) {
    const [end] = rest;
    if (Math.abs(end.x - first.x) < 1 || Math.abs(end.y - first.y) < 1) return [...found, ["L", end.x, end.y]];
    const middle = (first.y + end.y) / 2;
    return [...found, ["C", first.x, middle, end.x, middle, end.x, end.y]];
  }
  let before = first;
  for (let i = 0; i < rest.length - 1; i++) {
    const [at, next] = [rest[i], rest[i + 1]];
    const from = toward(at, before);
    const to = toward(at, next);
    found.push(["L", from.x, from.y], ["Q", at.x, at.y, to.x, to.y]);
    before = at;
  }
  const end = rest.at(-1);
  return [...found, ["L", end.x, end.y]];
}

/** A point near a corner on the way to another point: where the rounding begins. */
function toward(corner, other) {
  const length = Math.hypot(other.x - corner.x, other.y - corner.y) || 1;
  const part = Math.min(10, length / 2) / length;
  return { x: corner.x + (other.x - corner.x) * part, y: corner.y + (other.y - corner.y) * part };
}
