// Short forms of types and shapes.

const KINDS = { float32: "f32", float16: "f16", bfloat16: "bf16", float64: "f64" };

/** `W int8[16,8,3,3]` as `W int8 16×8×3×3`; `float32[N,10]` as `f32 N×10`. */
export function shapeText(type) {
  return type.replace(/(\w+)\[([^\]]*)\]$/, (_, kind, extents) => `${KINDS[kind] ?? kind} ${extentsText(extents)}`.trim());
}

/** Only the extents of a type: `N×10`; empty for a scalar or an unknown shape. */
export function extentsOf(type) {
  const match = type.match(/\[([^\]]*)\]$/);
  return match ? extentsText(match[1]) : "";
}

const extentsText = (extents) => extents.split(",").map((one) => (one.length > 12 ? `${one.slice(0, 11)}\u2026` : one)).join("\u00d7");

/** Whether an operator only says how values are stored. */
export const onlyStores = (operator) => operator === "QuantizeLinear" || operator === "DequantizeLinear";
