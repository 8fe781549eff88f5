// What is drawn on: a canvas, or two beside each other, painted with a margin and moved until they are painted anew.

import { el } from "../dom.js";
import { Painter } from "./painter.js";
import { CanvasPen, SvgPen } from "./pens.js";

const MARGIN = 0.2; // of the window, drawn around it, so that a moving picture has no holes at once
const BLURRED = 1.6; // times larger than painted, from which on a picture is painted anew

export class Panes {
  constructor(result) {
    this.painted = null; // the part of the drawing that the canvases show
    this.all = result.sides.map((side, number) => {
      const canvas = el("canvas", { "aria-hidden": "true" });
      const title = `${number ? "after" : "before"}: ${side.coverage}`;
      const frame = el("div", { class: "pane" }, canvas, result.sides.length > 1 ? el("div", { class: "side-title", title }, title) : null);
      return { canvas, frame, context: canvas.getContext("2d", { willReadFrequently: true }), painter: new Painter(side, number + 1) };
    });
  }

  get frames() { return this.all.map(({ frame }) => frame); }

  paint(camera, drawing, root, state) {
    const { width, height } = camera.window();
    const [wide, high] = [Math.round(width * (1 + 2 * MARGIN)), Math.round(height * (1 + 2 * MARGIN))];
    const ratio = window.devicePixelRatio || 1;
    const { scale } = camera;
    const view = { x: camera.x - (MARGIN * width) / scale, y: camera.y - (MARGIN * height) / scale, w: wide / scale, h: high / scale, scale };
    for (const { canvas, context, painter } of this.all) {
      if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(high * ratio)) {
        canvas.width = Math.round(wide * ratio);
        canvas.height = Math.round(high * ratio);
        Object.assign(canvas.style, { width: `${wide}px`, height: `${high}px` });
      }
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.fillStyle = state.theme.back;
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.setTransform(scale * ratio, 0, 0, scale * ratio, -view.x * scale * ratio, -view.y * scale * ratio);
      painter.draw(new CanvasPen(context), drawing, root, state, view);
    }
    this.painted = view;
  }

  /** Move and scale the pictures to where the view is now. */
  shift(camera) {
    const { painted } = this;
    const [x, y] = [(painted.x - camera.x) * camera.scale, (painted.y - camera.y) * camera.scale];
    for (const { canvas } of this.all) canvas.style.transform = `translate(${x}px, ${y}px) scale(${camera.scale / painted.scale})`;
  }

  /** Whether the view shows something that the pictures lack, or shows them too large. */
  uncovered(view) {
    const { x, y, w, h, scale } = this.painted;
    return view.x < x || view.y < y || view.x + view.w > x + w || view.y + view.h > y + h || view.scale > BLURRED * scale;
  }

  /** The whole drawing as an SVG file. */
  svg(drawing, root, state) {
    const { w, h } = drawing;
    const pen = new SvgPen((w + 20) * this.all.length, h + 20, state.theme.back);
    this.all.forEach(({ painter }, number) => {
      pen.parts.push(`<g transform="translate(${10 + number * (w + 20)} 10)">`);
      painter.draw(pen, drawing, root, { ...state, export: true }, { x: -10, y: -10, w: w + 20, h: h + 20, scale: 1 });
      pen.parts.push("</g>");
    });
    return pen.toString();
  }
}
