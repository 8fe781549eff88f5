// The part of the drawing in view, and how the mouse, a pen or fingers move it.

const CLOSEST = 4;

export class Camera {
  /** `panes` are of one size, and show the same part. */
  constructor(panes, changed, clicked) {
    Object.assign(this, { pane: panes[0], changed, x: 0, y: 0, scale: 1, w: 1, h: 1 });
    this.pointers = new Map();
    for (const pane of panes) {
      pane.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      pane.addEventListener("pointerdown", (event) => this.down(event));
      pane.addEventListener("pointermove", (event) => this.move(event));
      for (const kind of ["pointerup", "pointercancel"]) pane.addEventListener(kind, (event) => this.up(event, clicked));
    }
  }

  /** What is in view, in the coordinates of the drawing. */
  view() {
    const { width, height } = this.window();
    return { x: this.x, y: this.y, w: width / this.scale, h: height / this.scale, scale: this.scale };
  }

  window() {
    return { width: this.pane.clientWidth || 800, height: this.pane.clientHeight || 600 };
  }

  fit(w, h, most = 1.15) {
    const { width, height } = this.window();
    this.drawing = { w, h };
    this.scale = Math.min(most, (width - 40) / w, (height - 40) / h);
    this.center(w / 2, h / 2);
  }

  center(x, y) {
    const { width, height } = this.window();
    this.x = x - width / this.scale / 2;
    this.y = y - height / this.scale / 2;
    this.changed(false);
  }

  zoom(factor, px, py) {
    const { width, height } = this.window();
    const [at, below] = [px ?? width / 2, py ?? height / 2];
    const scale = Math.min(CLOSEST, Math.max(this.least(), this.scale * factor));
    this.x += at / this.scale - at / scale;
    this.y += below / this.scale - below / scale;
    this.scale = scale;
    this.changed(true);
  }

  least() {
    const { width, height } = this.window();
    return this.drawing ? Math.min(0.3, 0.5 * Math.min(width / this.drawing.w, height / this.drawing.h)) : 0.02;
  }

  pan(dx, dy) {
    this.x += dx / this.scale;
    this.y += dy / this.scale;
    this.changed(true);
  }

  at(event) {
    const box = event.currentTarget.getBoundingClientRect();
    return { px: event.clientX - box.left, py: event.clientY - box.top };
  }

  toDrawing({ px, py }) {
    return { x: this.x + px / this.scale, y: this.y + py / this.scale };
  }

  wheel(event) {
    event.preventDefault();
    const { px, py } = this.at(event);
    if (event.shiftKey) this.pan(event.deltaY, 0);
    else this.zoom(Math.exp(-Math.max(-200, Math.min(200, event.deltaY)) * (event.deltaMode ? 0.05 : 0.0018)), px, py);
    this.zoomed?.(event.deltaY < 0, this.toDrawing({ px, py }));
  }

  down(event) {
    this.pointers.set(event.pointerId, this.at(event));
    event.currentTarget.setPointerCapture(event.pointerId);
    this.moved = 0;
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = this.at(event);
    if (this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      const distance = (one) => Math.hypot(one.px - other.px, one.py - other.py) || 1;
      this.zoom(distance(now) / distance(before), (now.px + other.px) / 2, (now.py + other.py) / 2);
    } else this.pan(before.px - now.px, before.py - now.py);
    this.moved += Math.abs(before.px - now.px) + Math.abs(before.py - now.py);
    this.pointers.set(event.pointerId, now);
  }

  up(event, clicked) {
    if (!this.pointers.delete(event.pointerId)) return;
    if (event.type === "pointerup" && this.moved < 4) clicked(this.toDrawing(this.at(event)), event);
  }
}
