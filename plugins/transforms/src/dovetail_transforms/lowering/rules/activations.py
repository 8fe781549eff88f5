"""Activations in elementary operators, and other element-wise operators."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail.ir.required import dtype_of

from dovetail_transforms.lowering.node_facts import attribute, constant, is_float
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


def _typed(x: ir.Value) -> str:
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

    # Outside of training the ratio changes nothing, and everything is kept. Older kernels leave the mask open.
    made = op.Dropout(data)
    if len(node.outputs) == 1 or not (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
        return [made]
    return [made, op.Expand(op.constant(ir.tensor(np.array(True)), "kept"), op.Shape(data))]


RULES = (
    Rewrite("gelu", lambda op, x: op.Gelu(x), _gelu, _typed),
    Rewrite("cast-like", lambda op, x, like: op.CastLike(x, like), _cast_like, _cast_like_check),
    Rewrite("exponent-of-one-type", lambda op, x, y: op.Pow(x, y), _pow, _pow_check),
    Rewrite(
        "inference-dropout",
        lambda op, data, ratio=None, training=None: op.Dropout(data, ratio, training),
        _dropout,
        _dropout_check,
    ),
)
