// The whole drawing in small, with a frame around what is in view; a click or a drag moves the view.

import { el } from "../dom.js";

const WIDTH = 190;
const HEIGHT = 130;

export class Minimap {
  constructor(camera) {
    this.camera = camera;
    this.canvas = el("canvas", { class: "minimap", width: WIDTH * 2, height: HEIGHT * 2, "aria-hidden": "true" });
    const go = (event) => {
      const box = this.canvas.getBoundingClientRect();
      camera.center((event.clientX - box.left - this.left) / this.scale, (event.clientY - box.top - this.top) / this.scale);
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      go(event);
    });
    this.canvas.addEventListener("pointermove", (event) => event.buttons && go(event));
  }

  /** Draw the things once for a drawing; the frame is drawn with every change of the view. */
  prepare(drawing, root, theme, colorOf) {
    this.scale = Math.min((WIDTH - 8) / drawing.w, (HEIGHT - 8) / drawing.h);
    this.left = (WIDTH - drawing.w * this.scale) / 2;
    this.top = (HEIGHT - drawing.h * this.scale) / 2;
    this.theme = theme;
    this.picture = document.createElement("canvas");
    this.picture.width = WIDTH * 2;
    this.picture.height = HEIGHT * 2;
    const context = this.picture.getContext("2d", { willReadFrequently: true });
    context.scale(2, 2);
    const draw = (group) => {
      for (const child of group.children) {
        context.fillStyle = colorOf(child) ?? theme.dim;
        context.globalAlpha = child.open ? 0.16 : 0.8;
        context.fillRect(this.left + child.x * this.scale, this.top + child.y * this.scale, Math.max(1, child.w * this.scale), Math.max(1, child.h * this.scale));
        if (child.open) draw(child);
      }
    };
    draw(root);
  }

  draw(view, drawing) {
    const whole = view.x <= 0 && view.y <= 0 && view.x + view.w >= drawing.w && view.y + view.h >= drawing.h;
    this.canvas.hidden = whole;
    if (whole) return;
    const context = this.canvas.getContext("2d", { willReadFrequently: true });
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, WIDTH * 2, HEIGHT * 2);
    context.drawImage(this.picture, 0, 0);
    context.scale(2, 2);
    context.strokeStyle = this.theme.select;
    context.lineWidth = 2;
    context.strokeRect(this.left + view.x * this.scale, this.top + view.y * this.scale, view.w * this.scale, view.h * this.scale);
  }
}
