"""Layer normalization and its variant without mean, as exporters of older opsets write them.

Sources of the forms: the exporters of PyTorch, Paddle and TensorFlow, and models of transformers in ONNX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dovetail_transforms.fusions.fusion import Fusion
from dovetail_transforms.lowering.node_facts import attribute, closed, constant, extents
from dovetail_transforms.rewriting import Rewrite, number_of

if TYPE_CHECKING:
    import onnx_ir as ir


_FLOAT = 1  # the element type in which half floats are widened


def _axes(mean: ir.Node) -> list[int] | None:
    """Return the axes of a ReduceMean; None if they are unknown before run time."""
    given = attribute(mean, "axes")
    if given is not None:
        return list(given)
    found = constant(mean.inputs[1], mean.version or 18) if len(mean.inputs) > 1 else None
    return None if found is None else [int(axis) for axis in found.reshape(-1)]


def _normalized(mean: ir.Node, x: ir.Value) -> list[int] | str:
    """Return the extents of the axes that a mean is taken over, which must be the last ones; else the reason."""
    axes, known = _axes(mean), extents(x)
    if axes is None or known is None:
        return "its axes or the rank of its input are unknown"
    if not attribute(mean, "keepdims", 1):
        return "its mean drops the axes"
    ordered = sorted(axis % len(known) for axis in axes)
    if not ordered or ordered != list(range(len(known) - len(ordered), len(known))):
        return "its axes are not the last ones"
    found = closed(known[-len(ordered) :])
    return "an extent of its axes is open" if found is None else found


def _check(node: ir.Node, x: ir.Value, means: Sequence[ir.Node], parameters: Sequence[ir.Value | None]) -> str:
    if x.dtype is None or not x.dtype.is_floating_point():
        return "its input holds no floats"
    taken = [_normalized(mean, x) for mean in means]
    if isinstance(taken[0], str):
        return taken[0]
    if any(other != taken[0] for other in taken):
        return "its means are taken over different axes"
    for value in parameters:
        known = closed(extents(value)) if value is not None else taken[0]
        if known != taken[0]:
            return "its scale or bias has another shape than the normalized axes"
        if value is not None and value.dtype != x.dtype:
            return "its scale or bias has another type than its input"
    return ""


def _epsilon(value: ir.Value) -> float:
    return number_of(value) or 0.0


def _ones(op: Any, x: ir.Value, mean: ir.Node) -> ir.Value:
    import numpy as np
    import onnx_ir as ir

    shape = _normalized(mean, x)
    assert not isinstance(shape, str) and x.dtype is not None, "the check asks for them"
    return op.constant(ir.tensor(np.ones(shape, x.dtype.numpy()), dtype=x.dtype), "ones")


def _inverse(op: Any, root: Any, value: Any) -> Any:
    """Return the pattern of `value / root`, as a quotient or as a product with the reciprocal."""
    reciprocal = op.either(op.Reciprocal(root), op.Div(op.number(1), root))
    return op.either(op.Div(value, root), op.Mul(value, reciprocal))


def _centered(op: Any, x: Any) -> tuple[Any, Any]:
    """Return the patterns of the normalized input of a layer norm, with one difference or with two equal ones."""
    mean = op.ReduceMean(x, ..., called="mean")
    one, other = op.Sub(x, mean), op.Sub(x, mean)

    def normal(numerator: Any, squared: Any) -> Any:
        square = op.either(op.Pow(squared, op.number(2)), op.Mul(squared, squared))
        variance = op.ReduceMean(square, ..., called="variance")
        return _inverse(op, op.Sqrt(op.Add(variance, op.number(called="epsilon"))), numerator)

    return normal(one, one), normal(one, other)


def _scaled_and_shifted(at: int) -> Callable:
    def pattern(op, x, scale, bias):
        return op.Add(op.Mul(_centered(op, x)[at], scale), bias)

    return pattern


def _scaled(at: int) -> Callable:
    def pattern(op, x, scale):
        return op.Mul(_centered(op, x)[at], scale)

    return pattern


def _check_layer_norm(
    node: ir.Node,
    x: ir.Value,
    mean: ir.Node,
    variance: ir.Node,
    scale: ir.Value | None = None,
    bias: ir.Value | None = None,
) -> str:
    return _check(node, x, (mean, variance), (scale, bias))


def _layer_norm(
    op: Any,
    x: ir.Value,
    mean: ir.Node,
    epsilon: ir.Value,
    scale: ir.Value | None = None,
    bias: ir.Value | None = None,
) -> ir.Value:
    inputs = [x, _ones(op, x, mean) if scale is None else scale, *([] if bias is None else [bias])]
    return op.LayerNormalization(*inputs, axis=-len(_axes(mean) or ()), epsilon=_epsilon(epsilon))


def _plain(quotient: bool) -> Callable:
    """Return the pattern without scale, whose last node divides, or multiplies with the reciprocal."""

    def pattern(op, x):
        mean = op.ReduceMean(x, ..., called="mean")
        centered = op.Sub(x, mean)
        square = op.either(op.Pow(centered, op.number(2)), op.Mul(centered, centered))
        root = op.Sqrt(op.Add(op.ReduceMean(square, ..., called="variance"), op.number(called="epsilon")))
        if quotient:
            return op.Div(centered, root)
        return op.Mul(centered, op.either(op.Reciprocal(root), op.Div(op.number(1), root)))

    return pattern


def _rearranged(op, x, scale, bias):
    """Return the pattern of Keras and TensorFlow: `x * factor + (bias - mean * factor)`."""
    mean = op.ReduceMean(x, ..., called="mean")
    centered = op.Sub(x, mean)
    square = op.either(op.Pow(centered, op.number(2)), op.Mul(centered, centered))
    shifted = op.Add(op.ReduceMean(square, ..., called="variance"), op.number(called="epsilon"))
    root = op.Sqrt(shifted)
    inverse = op.either(op.Reciprocal(root), op.Div(op.number(1), root), op.Pow(shifted, op.number(-0.5)))
    factor = op.Mul(inverse, scale)
    return op.Add(op.Mul(x, factor), op.Sub(bias, op.Mul(mean, factor)))


class FuseLayerNorm(Fusion):
    """The mean, the difference, the variance and the quotient of a layer norm, with scale and bias if it has these."""

    name, operator, opset = "fuse-layernorm", "LayerNormalization", 17
    rewrites = tuple(
        Rewrite("fuse-layernorm", pattern, _layer_norm, _check_layer_norm, commutes=True)
        for pattern in (
            _rearranged,
            *map(_scaled_and_shifted, (0, 1)),
            *map(_scaled, (0, 1)),
            *map(_plain, (True, False)),
        )
    )


def _over_root_mean_square(op: Any, x: Any) -> Any:
    """Return the pattern of the quotient; JAX and Keras raise the mean to the power of -0.5."""
    square = op.either(op.Pow(x, op.number(2)), op.Mul(x, x))
    shifted = op.Add(op.ReduceMean(square, ..., called="mean"), op.number(called="epsilon"))
    quotient = _inverse(op, op.Sqrt(shifted), x)
    return op.either(*quotient.parts, op.Mul(x, op.Pow(shifted, op.number(-0.5))))


def _rms(op, x, scale):
    return op.Mul(_over_root_mean_square(op, x), scale)


def _widened_rms(op, x, scale):
    wide = op.Cast(x, called="widen")
    return op.Mul(op.Cast(_over_root_mean_square(op, wide), called="narrow"), scale)


def _check_rms(node: ir.Node, x: ir.Value, scale: ir.Value, mean: ir.Node) -> str:
    return _check(node, x, (mean,), (scale,))


def _check_widened_rms(
    node: ir.Node, x: ir.Value, scale: ir.Value, mean: ir.Node, widen: ir.Node, narrow: ir.Node
) -> str:
    if attribute(widen, "to") != _FLOAT or x.dtype is None or attribute(narrow, "to") != int(x.dtype):
        return "its input is not widened to float32 and narrowed again"
    return _check(node, x, (mean,), (scale,))


def _rms_norm(op: Any, x: ir.Value, scale: ir.Value, mean: ir.Node, epsilon: ir.Value) -> ir.Value:
    return op.RMSNormalization(x, scale, axis=-len(_axes(mean) or ()), epsilon=_epsilon(epsilon))


class FuseRMSNorm(Fusion):
    """The mean of squares, its root and the quotient of an RMS norm, with its scale."""

    name, operator, opset = "fuse-rmsnorm", "RMSNormalization", 23
    rewrites = (
        Rewrite("fuse-rmsnorm", _rms, _rms_norm, _check_rms, commutes=True),
        Rewrite("fuse-rmsnorm", _widened_rms, _rms_norm, _check_widened_rms, commutes=True),
    )
