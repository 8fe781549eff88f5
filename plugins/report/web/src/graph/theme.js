// The colors of the graph, in light and in dark; texts reach the contrast of WCAG AA on what they stand on.

const LIGHT = {
  back: "#ffffff", box: "#ffffff", text: "#1d2126", dim: "#565e68", line: "#b9c0c9", edge: "#8a939e", frame: "#c9ced6", badge: "#eef1f4",
  select: "#1a5fb4", path: "#8d3fc0", cause: "#b04a00", change: "#b3261e", find: "#fff3c4", conversion: "#fdf0dd", conversionLine: "#a05a00", end: "#eef1f4", group: "#f6f7f9",
};
const DARK = {
  back: "#1b1e22", box: "#25292f", text: "#e8ebee", dim: "#aab3bd", line: "#4b535d", edge: "#7f8893", frame: "#49515b", badge: "#353b43",
  select: "#7db4f0", path: "#d59bf6", cause: "#f0a356", change: "#f28b82", find: "#4d4420", conversion: "#3c3223", conversionLine: "#e0a55a", end: "#30353c", group: "#20242a",
};

export const themeOf = (dark) => (dark ? DARK : LIGHT);

/** A color over another one: `part` of 1 is the color alone. */
export function mixed(color, over, part) {
  const [a, b] = [channels(color), channels(over)];
  return `#${a.map((value, i) => Math.round(value * part + b[i] * (1 - part)).toString(16).padStart(2, "0")).join("")}`;
}

const channels = (color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));

/** Black or white, whichever can be read on a color. */
export function readable(color) {
  const [r, g, b] = channels(color).map((value) => {
    const part = value / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#111418" : "#ffffff";
}

/** The color of a share between 0 and 1: from pale to strong, in one hue. */
export function heatColor(share, dark) {
  const [pale, strong] = dark ? ["#3a3030", "#ff8a5c"] : ["#fff3ea", "#c23a10"];
  return mixed(strong, pale, share);
}
