"""The `ppl-operators` pass: rewrite arithmetic with constants to operators that PPL computes in int8."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import onnx_ir as ir
from dovetail.ir import input_of
from dovetail.passes import Pass
from dovetail_transforms import Rewrite, rewrite_model

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_transforms import Replacement


_CLIP_TAKES_INPUTS = 11  # opset


class PplOperators(Pass):
    """Rewrite arithmetic with constants to operators that PPL computes in int8, if `ppl-int8` is requested.

    Given:  %a = Sub(%x, c)    %b = Max(%a, 0.1)     %t = Transpose(%conv)   %d = Mul(%t, k)       %e = Div(%x, 8)
    Result: %a = Add(%x, -c)   %b = Clip(%a, 0.1)    %m = Mul(%conv, k')     %d = Transpose(%m)    %e = Mul(%x, 0.125)

    The results are the same; a division by numbers that are not powers of two changes the last digit of float32, and
    a remark says so. A division by zero, or by a number whose reciprocal float32 does not hold, stays. Scales and
    shifts directly after a convolution, without a Transpose in between, are then folded into it.
    """

    name = "ppl-operators"
    stage = "normalize"
    for_backend = "ppl-int8"
    after = ("normalize", "fold-constants", "remove-identity")
    before = ("fold-affine",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Apply the rewrites."""
        if model.opset < _CLIP_TAKES_INPUTS:
            return False
        return rewrite_model(model, ctx, _REWRITES)


def _constant(value: ir.Value | None) -> np.ndarray | None:
    """Return the numbers of a float32 constant; None for any other value."""
    if value is None or value.const_value is None or value.is_graph_input() or value.dtype != ir.DataType.FLOAT:
        return None
    return value.const_value.numpy()


def _known(value: ir.Value) -> np.ndarray:
    """Return the numbers of a value known to be a float32 constant."""
    return cast("np.ndarray", _constant(value))


def _shift(op: Replacement, x: ir.Value, c: ir.Value) -> ir.Value:
    return op.Add(x, op.constant(ir.tensor(-_known(c)), "shift"))


def _shifts(x: ir.Value, c: ir.Value) -> str:
    return "it does not subtract a constant in float32" if _constant(c) is None or _constant(x) is not None else ""


def _reciprocal(c: ir.Value) -> np.ndarray:
    """Return the reciprocals of a constant in float32."""
    with np.errstate(divide="ignore", over="ignore"):
        return (1 / _known(c).astype(np.float64)).astype(np.float32)


def _factor(op: Replacement, x: ir.Value, c: ir.Value) -> ir.Value:
    return op.Mul(x, op.constant(ir.tensor(_reciprocal(c)), "reciprocal"))


def _divides(x: ir.Value, c: ir.Value) -> str:
    if _constant(c) is None or _constant(x) is not None:
        return "it does not divide by a constant in float32"
    known = _reciprocal(c)
    if not np.isfinite(known).all() or (np.abs(known) < np.finfo(np.float32).tiny).any():
        return "float32 does not hold the reciprocal of its divisor"
    return ""


def _divides_exactly(x: ir.Value, c: ir.Value) -> str:
    why = _divides(x, c)
    exact = why or (np.abs(np.frexp(_known(c))[0]) == 0.5).all()
    return why or ("" if exact else "its divisor is not a power of two")


def _bounded(node: ir.Node) -> tuple[ir.Value, ir.Value] | None:
    """Return the value and the scalar bound of a Max or Min, or None."""
    if len(node.inputs) != 2:
        return None
    for value, bound in (tuple(node.inputs), tuple(reversed(node.inputs))):
        number = _constant(bound)
        if value is None or bound is None or _constant(value) is not None:
            continue
        if number is not None and number.size == 1:
            # A bound of higher rank would increase the rank of the result.
            return (value, bound) if value.shape is not None and number.ndim <= len(value.shape) else None
    return None


def _bounds(node: ir.Node) -> str:
    return "" if _bounded(node) else "it has no scalar bound in float32"


def _clip(op: Replacement, node: ir.Node) -> ir.Value:
    value, bound = cast("tuple[ir.Value, ir.Value]", _bounded(node))
    scalar = op.constant(ir.tensor(_known(bound).reshape(())), "bound")
    return op.Clip(value, scalar) if node.op_type == "Max" else op.Clip(value, None, scalar)


def _order(transpose: ir.Node) -> tuple[int, ...] | None:
    """Return the permutation of a Transpose; None if the rank is unknown."""
    given, shape = transpose.attributes.get_ints("perm", None), input_of(transpose, 0).shape
    if given is not None:
        return tuple(given)
    return None if shape is None else tuple(reversed(range(len(shape))))


def _before(c: ir.Value, transpose: ir.Node) -> np.ndarray | None:
    """Permute a constant to its layout before a Transpose; None if it is not constant, or has a higher rank."""
    order, numbers = _order(transpose), _constant(c)
    if order is None or numbers is None or numbers.ndim > len(order):
        return None
    padded = numbers.reshape((1,) * (len(order) - numbers.ndim) + numbers.shape)
    return np.ascontiguousarray(np.transpose(padded, np.argsort(order)))


def _moves(c: ir.Value, transpose: ir.Node) -> str:
    if input_of(transpose, 0).producer() is None:
        return "nothing is computed in front of the Transpose"
    return "it has no constant in float32 that can be transposed" if _before(c, transpose) is None else ""


def _move(op: Replacement, node: ir.Node, x: ir.Value, c: ir.Value, transpose: ir.Node) -> ir.Value:
    turned = op.constant(ir.tensor(cast("np.ndarray", _before(c, transpose))), "turned")
    return op.like(transpose, op.like(node, x, turned))


def _activations(transpose: ir.Node) -> str:
    return "" if input_of(transpose, 0).producer() is not None else "nothing is computed in front of the Transpose"


def _activate(op: Replacement, node: ir.Node, x: ir.Value, transpose: ir.Node) -> ir.Value:
    return op.like(transpose, op.like(node, x, *node.inputs[1:]))


_SAME = "it replaces '{node}', with the same results"
_NEARLY = "it replaces '{node}': the reciprocal is rounded, which changes a result by at most a part in 2^22 of it"
_REWRITES = (
    Rewrite("subtract-constant", lambda op, x, c: op.Sub(x, c), _shift, _shifts, _SAME),
    Rewrite("divide-by-power-of-two", lambda op, x, c: op.Div(x, c), _factor, _divides_exactly, _SAME),
    Rewrite("divide-by-constant", lambda op, x, c: op.Div(x, c), _factor, _divides, _NEARLY),
    Rewrite("scalar-bound", lambda op: op.any_of("Max", "Min")(...), _clip, _bounds, _SAME),
    Rewrite(
        "transpose-behind",
        lambda op, x, c: op.any_of("Add", "Mul")(op.any_of("Transpose", called="transpose")(x), c),
        _move, _moves, _SAME,
    ),
    Rewrite(
        "transpose-behind-activation",
        lambda op, x: op.any_of("Clip", "Relu")(op.any_of("Transpose", called="transpose")(x), ...),
        _activate, _activations, _SAME,
    ),
)  # fmt: skip
