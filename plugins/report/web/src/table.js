// A table that sorts and filters, and holds only the rows in view.

import { el, figure } from "./dom.js";

const ROW = 26;

/**
 * columns: [{ key, title, width, number, show(row), color(row) }]; pick(row) is called by a click on a row.
 */
export function table(rows, columns, { pick = null, height = 420, filter = true, sort = null } = {}) {
  let shown = rows;
  let order = sort ?? { key: null, down: false };
  const text = (row, column) => (column.show ? column.show(row) : figure(row[column.key]));
  const grid = columns.map((column) => column.width ?? "minmax(80px, 1fr)").join(" ");
  const body = el("div", { class: "rows", role: "presentation" });
  const view = el("div", { class: "view", role: "rowgroup", tabIndex: 0, onscroll: () => draw(), onkeydown: (event) => step(event) }, body);
  const count = el("span", { class: "count" });
  const head = el("div", { class: "head", role: "row" }, columns.map((column) => {
    const cell = el("div", { class: "cell", role: "columnheader" }, el("button", { onclick: () => {
      order = { key: column.key, down: order.key === column.key ? !order.down : Boolean(column.number) };
      update();
    } }, column.title));
    cell.dataset.key = column.key;
    return cell;
  }));
  head.style.gridTemplateColumns = grid;
  const input = el("input", { type: "search", placeholder: "filter", oninput: () => update(), "aria-label": "filter rows" });

  function update() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = words.length
      ? rows.filter((row) => {
          const line = columns.map((column) => text(row, column)).join("\n").toLowerCase();
          return words.every((word) => line.includes(word));
        })
      : rows.slice();
    const column = columns.find((one) => one.key === order.key);
    if (column) {
      const value = (row) => (column.number ? (row[column.key] ?? -Infinity) : text(row, column));
      const keyed = shown.map((row) => [value(row), row]);
      keyed.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (order.down ? -1 : 1));
      shown = keyed.map(([, row]) => row);
    }
    for (const cell of head.children) {
      cell.dataset.order = cell.dataset.key === order.key ? (order.down ? "down" : "up") : "";
      cell.setAttribute("aria-sort", { up: "ascending", down: "descending" }[cell.dataset.order] ?? "none");
    }
    count.textContent = shown.length === rows.length ? `${rows.length} rows` : `${shown.length} of ${rows.length} rows`;
    body.style.height = `${shown.length * ROW}px`;
    view.style.maxHeight = `${Math.min(height, Math.max(1, shown.length) * ROW + 2)}px`;
    view.scrollTop = 0;
    draw();
  }

  function draw() {
    const first = Math.max(0, Math.floor(view.scrollTop / ROW) - 5);
    const last = Math.min(shown.length, first + Math.ceil(height / ROW) + 12);
    body.replaceChildren(...shown.slice(first, last).map((row, offset) => {
      const line = el("div", { class: "row", role: "row", onclick: pick ? () => pick(row) : () => {} }, columns.map((column) => {
        const cell = el("span", { class: column.number ? "cell number" : "cell", role: "cell", title: text(row, column) });
        if (column.color) {
          const dot = el("i", { class: "dot" });
          dot.style.background = column.color(row);
          cell.append(dot);
        }
        cell.append(text(row, column));
        return cell;
      }));
      line.style.top = `${(first + offset) * ROW}px`;
      line.style.gridTemplateColumns = grid;
      line.dataset.at = String(first + offset);
      if (pick) {
        line.classList.add("pick");
        line.tabIndex = -1;
      }
      return line;
    }));
  }

  /** Arrow keys go from row to row, Enter picks one. */
  function step(event) {
    const at = document.activeElement?.dataset.at === undefined ? -1 : Number(document.activeElement.dataset.at);
    if (event.key === "Enter" && at >= 0 && pick) pick(shown[at]);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: shown.length - 1 }[event.key];
    if (!pick || next === undefined || next < 0 || next >= shown.length) return;
    event.preventDefault();
    if (next * ROW < view.scrollTop) view.scrollTop = next * ROW;
    if ((next + 1) * ROW > view.scrollTop + view.clientHeight) view.scrollTop = (next + 1) * ROW - view.clientHeight;
    draw();
    body.querySelector(`[data-at="${next}"]`)?.focus();
  }

  update();
  return el("div", {}, filter && rows.length > 8 ? el("div", { class: "bar" }, input, count) : null,
    el("div", { class: "table", role: "table", "aria-rowcount": String(rows.length) }, head, view));
}
