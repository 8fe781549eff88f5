"""Element-wise operators, bounds of integers, and extreme elements."""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING

from dovetail.ir import dtype_of, input_of

from dovetail_transforms.lowering.node_facts import UNRELATED, attribute, constant, is_float
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


def scalar(op: Replacement, number: float, like: ir.Value, what: str) -> ir.Value:
    """Make a constant scalar of the type of `like`."""
    import numpy as np
    import onnx_ir as ir

    return op.constant(ir.tensor(np.array(number, dtype_of(like).numpy()), dtype=like.dtype), what)


def _gelu(op: Replacement, node: ir.Node, x: ir.Value) -> ir.Value:
    half, one = scalar(op, 0.5, x, "half"), scalar(op, 1.0, x, "one")
    if attribute(node, "approximate", "none") == "tanh":
        cube = op.Mul(op.Mul(op.Mul(x, x), x), scalar(op, 0.044715, x, "cubic"))
        bounded = op.Tanh(op.Mul(op.Add(x, cube), scalar(op, math.sqrt(2 / math.pi), x, "scale")))
    else:
        bounded = op.Erf(op.Mul(x, scalar(op, math.sqrt(0.5), x, "scale")))
    return op.Mul(op.Mul(x, half), op.Add(bounded, one))


def integers(op: Replacement, numbers: int | list[int], what: str) -> ir.Value:
    """Make a constant of type int64: a scalar, or a vector of a list."""
    import numpy as np
    import onnx_ir as ir

    return op.constant(ir.tensor(np.array(numbers, np.int64)), what)


def untyped(x: ir.Value) -> str:
    """Return why a rule that needs the type of its input does not apply; empty if it is known."""
    return "" if x.dtype is not None else "the type of its input is unknown"


def _cast_like(op: Replacement, x: ir.Value, like: ir.Value) -> ir.Value:
    return op.Cast(x, to=int(dtype_of(like)))


def _cast_like_check(like: ir.Value) -> str:
    return "" if like.dtype is not None else "the type that it casts to is unknown"


def _pow_check(x: ir.Value, y: ir.Value) -> str:
    import numpy as np

    if not is_float(x):
        return "its base is an integer"
    known, wanted = constant(y), dtype_of(x).numpy()
    exact = np.can_cast(dtype_of(y).numpy(), wanted) if known is None else np.array_equal(_cast(known, wanted), known)
    return "" if exact else f"its exponent ('{y.name}') may not be exact in the type of the base"


def _cast(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    import numpy as np

    with np.errstate(all="ignore"):
        return array.astype(dtype)


def _pow(op: Replacement, x: ir.Value, y: ir.Value) -> ir.Value:
    import onnx_ir as ir

    known = constant(y)
    if known is None:
        return op.Pow(x, op.Cast(y, to=int(dtype_of(x))))
    return op.Pow(x, op.constant(ir.tensor(_cast(known, dtype_of(x).numpy()), dtype=x.dtype), "exponent"))


def _dropout_check(training: ir.Value | None) -> str:
    if training is None:
        return ""
    known = constant(training)
    return "" if known is not None and not known.any() else "it may be in training mode"


def _dropout(op: Replacement, node: ir.Node, data: ir.Value) -> list[ir.Value]:
    import numpy as np
    import onnx_ir as ir

    # Outside of training the ratio has no effect, and everything is kept. Older kernels leave the mask undefined.
    made = op.Dropout(data)
    if len(node.outputs) == 1 or not (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
        return [made]
    return [made, op.Expand(op.constant(ir.tensor(np.array(True)), "kept"), op.Shape(data))]


def _larger(op: Replacement, one: ir.Value, other: ir.Value) -> ir.Value:
    return op.Where(op.Greater(one, other), one, other)


def _smaller(op: Replacement, one: ir.Value, other: ir.Value) -> ir.Value:
    return op.Where(op.Less(one, other), one, other)


def _integers(node: ir.Node) -> str:
    first = input_of(node, 0)
    # For floats, NaNs would be lost.
    return "" if first.dtype is not None and first.dtype.is_integer() else UNRELATED


def _max(op: Replacement, node: ir.Node) -> ir.Value:
    return _folded(op, node, _larger)


def _min(op: Replacement, node: ir.Node) -> ir.Value:
    return _folded(op, node, _smaller)


def _folded(op: Replacement, node: ir.Node, choose) -> ir.Value:
    first, *rest = [value for value in node.inputs if value is not None]
    return reduce(lambda one, other: choose(op, one, other), rest, first) if rest else op.Identity(first)


def _clip(op: Replacement, x: ir.Value, low: ir.Value | None, high: ir.Value | None) -> ir.Value:
    bounded = x if low is None else _larger(op, x, low)
    bounded = bounded if high is None else _smaller(op, bounded, high)
    return op.Identity(x) if bounded is x else bounded


def _relu(op: Replacement, x: ir.Value) -> ir.Value:
    return op.Max(x, scalar(op, 0, x, "zero"))


_FLOAT, _INT32 = 1, 6  # onnx.TensorProto.DataType
_TO_THE_START = -(1 << 63)
_NARROW = ("BOOL", "INT8", "UINT8")


def _last_index(op: Replacement, node: ir.Node, x: ir.Value) -> ir.Value:
    """Return the last index of the extreme, by searching in reverse order."""

    def integers(numbers: list[int] | int, what: str) -> ir.Value:
        import numpy as np
        import onnx_ir as ir

        return op.constant(ir.tensor(np.array(numbers, np.int64)), what)

    axis = attribute(node, "axis", 0)
    backwards = op.Slice(
        x,
        integers([-1], "starts"),
        integers([_TO_THE_START], "ends"),
        integers([axis], "axes"),
        integers([-1], "steps"),
    )
    extent = op.Gather(op.Shape(x), integers(axis, "axis"))
    last = op.Sub(extent, integers(1, "one"))
    return op.Sub(last, op.like(node, backwards, select_last_index=None))


def _narrow(node: ir.Node) -> str:
    dtype = input_of(node, 0).dtype
    return "" if dtype is not None and dtype.name in _NARROW else UNRELATED


def _pooled(op: Replacement, node: ir.Node, x: ir.Value) -> list[ir.Value]:
    """Select among the same elements in a type that represents all of them."""
    made = op.like(node, op.Cast(x, to=_FLOAT))
    first, *others = [made] if len(node.outputs) == 1 else made
    return [op.Cast(first, to=int(dtype_of(x))), *others]


def _reduced(op: Replacement, node: ir.Node, x: ir.Value, axes: ir.Value | None) -> ir.Value:
    """Reduce in 32 bits, and clamp the result: an empty reduction yields the extreme of the type."""
    import numpy as np
    import onnx_ir as ir

    kind = dtype_of(x)
    dtype = kind.numpy()
    lowest, highest = (0, 1) if kind.name == "BOOL" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    made = op.like(node, op.Cast(x, to=_INT32), *([] if axes is None else [axes]))
    largest = node.op_type == "ReduceMax"
    bound = op.constant(ir.tensor(np.array(lowest if largest else highest, np.int32)), "bound")
    inside = op.Greater(made, bound) if largest else op.Less(made, bound)
    return op.Cast(op.Where(inside, made, bound), to=int(kind))


RULES = (
    Rewrite("gelu", lambda op, x: op.Gelu(x), _gelu, untyped),
    Rewrite("cast-like", lambda op, x, like: op.CastLike(x, like), _cast_like, _cast_like_check),
    Rewrite("exponent-of-one-type", lambda op, x, y: op.Pow(x, y), _pow, _pow_check),
    Rewrite(
        "inference-dropout",
        lambda op, data, ratio=None, training=None: op.Dropout(data, ratio, training),
        _dropout,
        _dropout_check,
    ),
    Rewrite("integer-max", lambda op: op.Max(...), _max, _integers),
    Rewrite("integer-min", lambda op: op.Min(...), _min, _integers),
    Rewrite("integer-clip", lambda op, x, low=None, high=None: op.Clip(x, low, high), _clip, _integers),
    Rewrite("integer-relu", lambda op, x: op.Relu(x), _relu, _integers),
    Rewrite("last-index", lambda op, x: op.any_of("ArgMax", "ArgMin")(x), _last_index),
    Rewrite("narrow-pooling", lambda op, x: op.MaxPool(x), _pooled, _narrow),
    Rewrite(
        "narrow-reduction", lambda op, x, axes=None: op.any_of("ReduceMax", "ReduceMin")(x, axes), _reduced, _narrow
    ),
)
