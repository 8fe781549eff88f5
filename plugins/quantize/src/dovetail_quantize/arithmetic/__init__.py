"""Quantized nodes in integer operators: what each operator computes, bit for bit, whatever engine runs it.

A value in integers stands for `(integer - zero point) * scale`. What follows holds for the zero point 0; others are
subtracted first and added last. `M` is computed in float64 from the float32 scales, products and quotients from left to
right; `round` rounds halves to even; `clip` is to the range of the element type.

- Products (Conv, ConvTranspose, Gemm, MatMul): the exact sum of products and bias. In integers it is
  `clip(round(sum * M))`, M = scale of X * scale of W / scale of the result, in float64, one per output channel where
  weights have one. Where it leaves as a float it is `float32(sum) * (scale of X * scale of W)` in float32, what
  DequantizeLinear makes of int32.
- A Relu or Clip that is computed together with its producer bounds the clip: each bound is `round(bound / scale)`.
- Add, Sub, Sum: `clip(round(a * Ma + b * Mb))`, each M = scale of the operand / scale of the result, summed in
  float64 in the order of the operands.
- Mul: `clip(round(a * b * M))`, M = scale of a * scale of b / scale of the result.
- BatchNormalization: `clip(round(x * M + shift))` in float64 with slope = scale / sqrt(var + epsilon), M = slope *
  scale of X / scale of the result, and shift = (B - mean * slope) / scale of the result.
- Averages and sums over axes or windows: the exact sum, and `clip(round(sum * M))` with M = scale of the operand /
  (scale of the result * number of summed elements), the latter 1 for ReduceSum.
- Movement, MaxPool, Max, Min, ReduceMax and such: the integers themselves. Where scales differ, an operand is quantized
  again: `clip(round(x * M))`, M = its scale / scale of the result. The indices of TopK are those before that.
- Comparisons: the integers themselves; where scales differ, the numbers that they stand for, which float64 holds
  exactly.
- Functions of one number: a table with an entry per integer, `clip(round(f(integer * scale) / scale of the result))`
  in float64, made when compiling. Infinities saturate, and NaN is zero.
- Operands of 16 bits are 256 * high + low in products, so that the integer operators of ONNX take both.

Everything else computes floats between DequantizeLinear and QuantizeLinear, with a remark that says so.
"""
