// Elements made of text nodes only: nothing of a model is ever parsed as HTML.

export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = value;
    else if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export function bytes(number) {
  if (number === null || number === undefined) return "?";
  if (number < 1000) return `${number} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let power = -1;
  while (number >= 1000 && power < units.length - 1) {
    number /= 1000;
    power += 1;
  }
  return `${number.toPrecision(3)} ${units[power]}`;
}

export function figure(number, digits = 4) {
  return typeof number === "number" ? String(Number(number.toPrecision(digits))) : String(number ?? "");
}

export function copyable(command) {
  const button = el("button", {
    class: "copy",
    title: "Copy the command",
    onclick: async () => {
      try {
        await navigator.clipboard.writeText(command);
      } catch {
        const area = el("textarea", { value: command }); // pages from files may have no clipboard
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
      }
      button.textContent = "copied";
      setTimeout(() => (button.textContent = "copy"), 1500);
    },
  }, "copy");
  return el("div", { class: "command" }, el("code", {}, command), button);
}
