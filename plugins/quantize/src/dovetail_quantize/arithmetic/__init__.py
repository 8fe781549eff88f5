"""Integer arithmetic for quantized nodes: the bit-exact definition of every operator, independent of the engine.

An integer represents the real number `(integer - zero point) * scale`. The definitions assume a zero point of 0; any
other is subtracted first and added last. `M` is computed in float64 from the float32 scales, products and quotients
from left to right; `round` rounds half to even; `clip` saturates to the range of the element type.

- Products (Conv, ConvTranspose, Gemm, MatMul): the exact sum of products and bias. An integer result is
  `clip(round(sum * M))`, M = scale of X * scale of W / scale of the result, in float64, one per output channel for
  per-channel weights. A float result is `float32(sum) * (scale of X * scale of W)` in float32, like DequantizeLinear of
  int32.
- A Relu or Clip that is fused with its producer narrows the clip: each bound is `round(bound / scale)`.
- Add, Sub, Sum: `clip(round(a * Ma + b * Mb))`, each M = scale of the operand / scale of the result, summed in
  float64 in the order of the operands.
- Mul: `clip(round(a * b * M))`, M = scale of a * scale of b / scale of the result.
- BatchNormalization: `clip(round(x * M + shift))` in float64 with slope = scale / sqrt(var + epsilon), M = slope *
  scale of X / scale of the result, and shift = (B - mean * slope) / scale of the result.
- Averages and sums over axes or windows: the exact sum, and `clip(round(sum * M))` with M = scale of the operand /
  (scale of the result * number of summed elements), the latter 1 for ReduceSum.
- Data movement, MaxPool, Max, Min, ReduceMax and the like: the integers themselves. Where scales differ, an operand is
  requantized: `clip(round(x * M))`, M = its scale / scale of the result. The indices of TopK are taken before
  requantization.
- Comparisons: the integers themselves; where scales differ, the real numbers, which float64 represents exactly.
- Elementwise unary functions: a lookup table with an entry per integer, `clip(round(f(integer * scale) / scale of the
  result))` in float64, built at compile time. Infinities saturate, and NaN becomes the zero point.
- In products, a 16-bit operand is split into 256 * high + low, because ONNX integer operators take 8 bits.

Every other operator computes in floats between DequantizeLinear and QuantizeLinear, and a remark reports it.
"""
