"""Operators on integers with scales: between DequantizeLinear and QuantizeLinear, and products of integers.

Where a kernel computes integers exactly, so do these nodes. Where it rounds a result in another order, a result may be
one step away, in few elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dovetail.ir import dtype_of

from dovetail_transforms.decompositions.rules.attention import self_attention
from dovetail_transforms.decompositions.rules.products import to_channels_first, to_channels_last
from dovetail_transforms.decompositions.rules.scores import to_heads

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula

    Results = Sequence[ir.Value | None]


def _real(op: Formula, value: ir.Value, scale: ir.Value, zero: ir.Value | None, axis: int | None = None) -> ir.Value:
    """Return the numbers that integers stand for, of one scale or of one per index of an axis."""
    _check_zero_point(op, zero, dtype_of(value))
    if axis is None or op.extent(scale, 0) == 1 or op.rank(scale) == 0:
        return op.DequantizeLinear(value, op.scalar(scale), *([] if zero is None else [op.scalar(zero)]))
    op.refuse_if(op.rank(scale) > 1, "its scales have several axes")
    if zero is not None and (op.rank(zero) == 0 or op.extent(zero, 0) == 1):
        zero = _repeated(op, zero, scale)
    return op.DequantizeLinear(value, scale, *([] if zero is None else [zero]), axis=axis)


def _repeated(op: Formula, one: ir.Value, like: ir.Value) -> ir.Value:
    """Return a value of one element as often as another one has elements; a constant stays one."""
    import numpy as np

    known, count = op.known(one), op.extent(like, 0)
    if known is None or count is None:
        return op.Expand(op.scalar(one), op.Shape(like))
    return op.tensor(np.repeat(known.reshape(-1), count), "repeated")


def _check_zero_point(op: Formula, zero: ir.Value | None, dtype: ir.DataType) -> None:
    if zero is not None and dtype_of(zero) != dtype:
        op.refuse(f"its zero point '{zero.name}' is {dtype_of(zero).name}, and its integers are {dtype.name}")


def _input(op: Formula, name: str, stem: str) -> ir.Value:
    return _real(op, op.required(name), op.required(f"{stem}_scale"), op.input(f"{stem}_zero_point"))


def _integers(op: Formula, value: ir.Value, scale: ir.Value, zero: ir.Value | None, dtype: ir.DataType) -> ir.Value:
    """Return integers of one scale that stand for numbers, in a type that the zero point has, too."""
    _check_zero_point(op, zero, dtype)
    zero = op.number(0, dtype, "zero_point") if zero is None else op.scalar(zero)
    return op.QuantizeLinear(value, op.scalar(scale), zero)


def _output(op: Formula, value: ir.Value, stem: str, dtype: ir.DataType) -> ir.Value:
    return _integers(op, value, op.required(f"{stem}_scale"), op.input(f"{stem}_zero_point"), dtype)


def _added(op: Formula) -> ir.Value:
    """The sum of two values, on the real numbers that they represent."""
    return _of_pair(op, op.Add)


def _multiplied(op: Formula) -> ir.Value:
    """The product of two values, on the real numbers that they represent."""
    return _of_pair(op, op.Mul)


def _of_pair(op: Formula, operator: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    return _output(op, op.core(operator(_input(op, "A", "A"), _input(op, "B", "B"))), "C", dtype_of(op.required("A")))


def _sigmoid(op: Formula) -> ir.Value:
    """Sigmoid of the real numbers that the input represents."""
    return _output(op, op.core(op.Sigmoid(_input(op, "X", "X"))), "Y", dtype_of(op.required("X")))


def _leaky_relu(op: Formula) -> ir.Value:
    """LeakyRelu of the real numbers that the input represents."""
    result = op.LeakyRelu(_input(op, "X", "X"), alpha=op.attribute("alpha"))
    return _output(op, op.core(result), "Y", dtype_of(op.required("X")))


def _softmax(op: Formula) -> ir.Value:
    """Softmax over one axis, or up to opset 12 over all axes from one on."""
    x = op.required("X")
    real = _real(op, x, op.required("X_scale"), op.input("x_zero_point"))
    axis, rank = op.attribute("axis"), op.rank(x)
    if op.attribute("opset") < 13 and axis % rank != rank - 1:
        flat = op.core(op.Softmax(op.reshape(real, *[0] * (axis % rank), -1), axis=-1))
        result = op.shaped_like(flat, x)
    else:
        result = op.core(op.Softmax(real, axis=axis))
    return _integers(op, result, op.required("y_scale"), op.input("y_zero_point"), dtype_of(x))


def _where(op: Formula) -> ir.Value:
    """Where, on the real numbers that both sides represent."""
    x, y = (_real(op, op.required(n), op.required(f"{s}_scale"), op.input(f"{s}_zero_point")) for n, s in ("Xx", "Yy"))
    chosen = op.core(op.Where(op.required("condition"), x, y))
    return _integers(op, chosen, op.required("z_scale"), op.input("z_zero_point"), dtype_of(op.required("X")))


def _concat(op: Formula) -> ir.Value:
    """Concat of values with individual scales, on the real numbers that they represent."""
    values = op.node.inputs[2:]
    if any(value is None for value in values):
        op.refuse("it leaves out a scale or zero point")
    parts = [_real(op, *values[index : index + 3]) for index in range(0, len(values), 3)]  # type: ignore[arg-type]
    zero = op.required("Y_zero_point")
    return _integers(
        op, op.core(op.Concat(*parts, axis=op.attribute("axis"))), op.required("Y_scale"), zero, dtype_of(zero)
    )


def _pooled(op: Formula, pool: Callable[[ir.Value], ir.Value], x: ir.Value, names: tuple[str, str]) -> ir.Value:
    last = op.attribute("channels_last")
    real = _real(op, x, op.required(f"{names[0]}_scale"), op.input(f"{names[0]}_zero_point"))
    result = op.core(pool(to_channels_first(op, real) if last else real))
    result = to_channels_last(op, result) if last else result
    return _output(op, result, names[1], dtype_of(x))


def _average_pool(op: Formula) -> ir.Value:
    """AveragePool in either layout, on the real numbers that the input represents."""
    kept = {
        name: op.attribute(name)
        for name in ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    }
    return _pooled(op, lambda real: op.AveragePool(real, **kept), op.required("X"), ("x", "y"))


def _global_average_pool(op: Formula) -> ir.Value:
    """GlobalAveragePool in either layout, on the real numbers that the input represents."""
    return _pooled(op, op.GlobalAveragePool, op.required("X"), ("x", "y"))


def _reduce_mean(op: Formula) -> ir.Value:
    """Mean over axes, on the real numbers that the input represents."""
    real, axes = _input(op, "data", "data"), op.attribute("axes")
    if op.version < 18:
        result = op.ReduceMean(real, axes=axes, keepdims=op.attribute("keepdims"))
    else:
        result = op.ReduceMean(real, op.integers(axes, "axes"), keepdims=op.attribute("keepdims"))
    return _output(op, op.core(result), "reduced", dtype_of(op.required("data")))


def _conv(op: Formula) -> ir.Value:
    """Conv of the real numbers that integers represent, with the channels of input and result second or last."""
    last, x, bias = op.attribute("channels_last", 0), op.required("x"), op.input("B")
    scale, weights = op.required("x_scale"), op.required("w_scale")
    real = _real(op, x, scale, op.required("x_zero_point"))
    w = _real(op, op.required("w"), weights, op.required("w_zero_point"), 0)
    kept = {n: op.attribute(n) for n in ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")}
    inputs = [to_channels_first(op, real) if last else real, w]
    if bias is not None:
        op.refuse_if(dtype_of(bias).name != "INT32", f"its bias is {dtype_of(bias).name}, and not INT32")
        inputs.append(_real(op, bias, _product_of_scales(op, scale, weights), None, 0))
    result = op.core(op.Conv(*inputs, **kept))
    return _output(op, to_channels_last(op, result) if last else result, "y", dtype_of(op.required("y_zero_point")))


def _matmul(op: Formula) -> ir.Value:
    """MatMul of the real numbers that integers represent; each operand may have a scale per row or column."""
    a, b = op.required("a"), op.required("b")
    left = _real(op, a, op.required("a_scale"), op.required("a_zero_point"), max(op.rank(a) - 2, 0))
    right = _real(op, b, op.required("b_scale"), op.required("b_zero_point"), op.rank(b) - 1)
    return _output(op, op.core(op.MatMul(left, right)), "y", dtype_of(op.required("y_zero_point")))


def _product_of_scales(op: Formula, one: ir.Value, other: ir.Value) -> ir.Value:
    """Return the scale of a sum of products, which its bias has, too; a constant if both are."""
    first, second = op.known(one), op.known(other)
    if first is None or second is None:
        return op.Mul(op.scalar(one), other)
    return op.tensor((first.reshape(()) if first.size == 1 else first) * second, "scale")


def _max_pool(op: Formula) -> ir.Value:
    """MaxPool of integers with the channels last."""
    kept = {n: op.attribute(n) for n in ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")}
    return to_channels_last(op, op.MaxPool(to_channels_first(op, op.required("x")), **kept))


def _mul_integer(op: Formula) -> ir.Value:
    """`(A - A_zero_point) * (B - B_zero_point)` in int32."""
    import onnx_ir as ir

    sides = []
    for name in "AB":
        value, zero = op.cast(op.required(name), ir.DataType.INT32), op.input(f"{name}_zero_point")
        sides.append(value if zero is None else op.Sub(value, op.cast(op.scalar(zero), ir.DataType.INT32)))
    return op.Mul(*sides)


def _product(op: Formula, a: ir.Value, a_zero: ir.Value | None, b: ir.Value, b_zero: ir.Value | None) -> ir.Value:
    """Return the exact product of integers in float32; a weight may have a zero point per column.

    Columns with zero points of their own, of a weight of more than two axes, are centered before the product.
    """
    import onnx_ir as ir

    if b_zero is not None and op.rank(b) > 2 and op.rank(b_zero) >= 1 and op.extent(b_zero, 0) != 1:
        wide, zero = op.cast(b, ir.DataType.INT32), op.cast(b_zero, ir.DataType.INT32)
        left = op.cast(a, ir.DataType.INT32)
        left = left if a_zero is None else op.Sub(left, op.cast(op.scalar(a_zero), ir.DataType.INT32))
        exact = op.MatMul(op.cast(left, ir.DataType.DOUBLE), op.cast(op.Sub(wide, zero), ir.DataType.DOUBLE))
        return op.cast(exact, ir.DataType.FLOAT)
    zeros = [None if a_zero is None else op.scalar(a_zero), _column_zero(op, b_zero)]
    while zeros and zeros[-1] is None:
        zeros.pop()
    return op.cast(op.MatMulInteger(a, b, *zeros), ir.DataType.FLOAT)


def _column_zero(op: Formula, zero: ir.Value | None) -> ir.Value | None:
    return op.scalar(zero) if zero is not None and op.extent(zero, 0) == 1 else zero


def _scale_of_columns(op: Formula, scale: ir.Value) -> ir.Value:
    return op.scalar(scale) if op.extent(scale, 0) == 1 else scale


def _product_to_floats(op: Formula) -> ir.Value:
    """The product of the real numbers that integers represent, plus a bias; a weight may have a scale per column."""
    a, b = _factors(op, "A", "a", "B", "b")
    result = op.plus_optional(op.core(op.MatMul(a, b)), op.wide_or_none("bias"))
    return op.cast(result, dtype_of(op.required("a_scale")))


def _factors(op: Formula, x: str, x_stem: str, w: str, w_stem: str) -> tuple[ir.Value, ir.Value]:
    """Return the real numbers of an input and of a weight with a scale or a zero point per column, in wide floats."""
    weight = op.required(w)
    scale, zero = _per_column(op, op.wide(op.required(f"{w_stem}_scale")), op.input(f"{w_stem}_zero_point"))
    left = _real(op, op.required(x), op.wide(op.required(f"{x_stem}_scale")), op.input(f"{x_stem}_zero_point"))
    return left, _real(op, weight, scale, zero, op.rank(weight) - 1)


def _per_column(op: Formula, scale: ir.Value, zero: ir.Value | None) -> tuple[ir.Value, ir.Value | None]:
    """Return one scale for all columns as often as there are zero points."""
    if zero is None or op.rank(zero) == 0 or op.extent(zero, 0) == 1:
        return scale, zero
    one = op.rank(scale) == 0 or op.extent(scale, 0) == 1
    return _repeated(op, scale, zero) if one else scale, zero


def _dynamic_product(op: Formula) -> ir.Value:
    """The product of the input, rounded to 8 bits by its own range, and integers; plus a bias."""
    a, b = op.required("A"), op.required("B")
    rounded, a_scale, a_zero = op.DynamicQuantizeLinear(a, outputs=3)
    product = _product(op, rounded, a_zero, b, op.input("b_zero_point"))
    scale = op.Mul(a_scale, _scale_of_columns(op, op.required("b_scale")))
    return op.plus_optional(op.Mul(product, scale), op.input("bias"))


def _q_gemm(op: Formula) -> ir.Value:
    """Gemm of the real numbers that integers represent, in floats or rounded to a scale."""
    turned, alpha, c = op.attribute("transB"), op.attribute("alpha"), op.input("C")
    scale, zero = _per_column(op, op.required("b_scale"), op.required("b_zero_point"))
    a = _input(op, "A", "a")
    inputs = [a, _real(op, op.required("B"), scale, zero, 0 if turned else 1)]
    if c is not None:
        inputs.append(_real(op, c, _product_of_scales(op, op.required("a_scale"), scale), None, op.rank(c) - 1))
    kept = {"transA": op.attribute("transA"), "transB": turned, "alpha": alpha, "beta": alpha}
    real = op.core(op.Gemm(*inputs, **{name: value for name, value in kept.items() if value != _DEFAULTS[name]}))
    return real if op.input("y_scale") is None else _output(op, real, "y", dtype_of(op.required("A")))


_DEFAULTS = {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0}


def _q_attention(op: Formula) -> Results:
    """Attention of the projections of integers by integers, which are exact before their scales."""
    weight = op.required("weight")
    whole = op.Add(
        op.core(op.MatMul(*_factors(op, "input", "input", "weight", "weight"))), op.wide(op.required("bias"))
    )
    op.refuse_if(bool(op.attribute("do_rotary", 0)), "it turns heads by angles that are not documented")
    op.refuse_if(bool(op.attribute("past_present_share_buffer", 0)), "its cache is shared, and its length is not given")
    width, heads = op.required_extent(weight, 1, "last extent of its weight"), op.attribute("num_heads")
    q, k, v = (to_heads(op, part, heads) for part in op.split(whole, 2, [width // 3] * 3))
    return self_attention(op, q, k, v, dtype_of(op.required("input_scale")), "mask_index")


def _quantize_linear(op: Formula) -> ir.Value:
    """QuantizeLinear of ONNX; without an axis, of one scale."""
    import onnx_ir as ir

    x, scale, zero = op.required("x"), op.required("y_scale"), op.input("y_zero_point")
    dtype = ir.DataType.UINT8 if zero is None else dtype_of(zero)
    _check_dtype(op, dtype)
    axis = op.attribute("axis", None)
    if axis is None or op.extent(scale, 0) is None and op.rank(scale) == 0:
        return _integers(op, x, scale, zero, dtype)
    zeros = [] if zero is None else [zero]
    return op.QuantizeLinear(x, scale, *zeros, axis=axis)


def _dequantize_linear(op: Formula) -> ir.Value:
    """DequantizeLinear of ONNX; without an axis, of one scale."""
    x, scale, zero = op.required("x"), op.required("x_scale"), op.input("x_zero_point")
    _check_dtype(op, dtype_of(x))
    axis = op.attribute("axis", None)
    if axis is None or op.rank(scale) == 0:
        return _real(op, x, scale, zero)
    return op.DequantizeLinear(x, scale, *([] if zero is None else [zero]), axis=axis)


def _check_dtype(op: Formula, dtype: ir.DataType) -> None:
    """Refuse integers that the operators of ONNX read from opset 21 on."""
    if op.version < 21 and dtype.name not in ("INT8", "UINT8", "INT32"):
        op.refuse(f"ONNX has {dtype.name} with a scale from opset 21 on, and the model has {op.version}")


RULES: Mapping = {
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "com.microsoft.QLinearAdd": _added,
    "com.microsoft.QLinearMul": _multiplied,
    "com.microsoft.QLinearSigmoid": _sigmoid,
    "com.microsoft.QLinearLeakyRelu": _leaky_relu,
    "com.microsoft.QLinearSoftmax": _softmax,
    "com.microsoft.QLinearWhere": _where,
    "com.microsoft.QLinearConcat": _concat,
    "com.microsoft.QLinearAveragePool": _average_pool,
    "com.microsoft.QLinearGlobalAveragePool": _global_average_pool,
    "com.microsoft.QLinearReduceMean": _reduce_mean,
    "com.microsoft.QLinearConv": _conv,
    "com.microsoft.NhwcMaxPool": _max_pool,
    "com.microsoft.MulInteger": _mul_integer,
    "com.microsoft.MatMulIntegerToFloat": _product_to_floats,
    "com.microsoft.DynamicQuantizeMatMul": _dynamic_product,
    "com.microsoft.QGemm": _q_gemm,
    "com.microsoft.QAttention": _q_attention,
    "com.microsoft.QuantizeLinear": _quantize_linear,
    "com.microsoft.DequantizeLinear": _dequantize_linear,
}

LOWEST = 13
"""The opset from which on these operators are written out, except for attention: it has scales per axis."""

FROM_LOWEST = RULES.keys() - {"com.microsoft.QAttention"}
