"""Variances that cancel, and squares that may overflow under the root of a normalization."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from dovetail.ir import input_of, is_onnx

from dovetail_precision.conditioning.findings import ConditioningFinding, moves_data
from dovetail_precision.conditioning.moments import FOLLOWED, Moments
from dovetail_precision.ranges.range import NARROW, Range

if TYPE_CHECKING:
    import onnx_ir as ir


# Operators allowed between a variance and its root, besides sums and products with constants.
_BOUNDS = frozenset({"Abs", "Clip", "Max", "Min", "Relu"})
_ROOTS = frozenset({"Pow", "Sqrt"})
_MAX_STEPS = 8  # operators between a mean square and its root

_Square: TypeAlias = "tuple[ir.Value, *tuple[ir.Node, ...]]"  # a mean square, and the nodes that bound and scale it


def find_statistics(
    nodes: Sequence[ir.Node], interval: Callable[[ir.Value | None], Range], measured: Collection[int]
) -> Iterator[ConditioningFinding]:
    """Find variances and covariances computed as differences of means, and mean squares under a root.

    E[x^2] - E[x]^2 is often a small difference of large values: with b significant bits nothing is left of a variance
    that is 2^b times smaller than the squared mean. So everything between x and the difference stays high, with the
    bounds and scales up to its root or reciprocal, and x - E[x] for the same x. Rounding x itself is harmless: the
    result is the exact variance of the rounded x. E[(x - E[x])^2] is well conditioned, but its squares, like those of
    a root mean square, may leave float16 for |x| >= 256. They stay out of float16 unless they were measured.

    Args:
        nodes: All nodes in topological order.
        interval: Returns the interval of a value.
        measured: Values with measured ranges, by `id`.
    """
    if FOLLOWED.isdisjoint({node.op_type for node in nodes}):
        return
    moments = Moments(interval)
    differences: dict[int, str] = {}  # by the id of a variance: the reason
    squares: dict[int, _Square] = {}  # by the id of a mean square
    variances: dict[frozenset[int], str] = {}  # by the ids of its one or two arguments: the reason
    made: dict[frozenset[int], set[int]] = {}  # by the same ids: the nodes already found to compute it
    centered: dict[int, list[ir.Node]] = {}  # by the id of a value x: the nodes that compute x - E[x]
    for node in nodes:
        moments.add(node)
        if not is_onnx(node) or not node.outputs:
            continue
        result = node.outputs[0]
        if roots := _cancels(node, moments):
            known_makers = made.setdefault(roots, set())
            makers = [
                maker
                for value in node.inputs
                if value is not None
                for maker in moments.between(value, roots, known_makers)
            ]
            why = variances.setdefault(roots, _why_difference(makers, moments, roots))
            differences[id(result)] = why
            yield ConditioningFinding((node, *makers), why)
        elif known := next((differences[id(value)] for value in node.inputs if id(value) in differences), ""):
            if _is_scaling(node, moments) or node.op_type in ("Pow", "Reciprocal", "Sqrt"):
                yield ConditioningFinding((node,), known)
                if node.op_type not in ("Pow", "Reciprocal"):
                    differences[id(result)] = known
        elif node.op_type in _ROOTS:
            value = node.inputs[0]
            mean = moments.means_of_products.get(id(value))
            steps = squares.get(id(value))
            if steps is None and value is not None and mean is not None and len(mean.of) == 1:
                steps = (value,)
            if steps is not None and _is_root(node, interval):
                yield from _root_mean_square(node, steps, moments, measured)
        elif _is_scaling(node, moments):
            _follow_square(node, moments, squares)
        elif (root := _centers(node, moments)) is not None:
            centered.setdefault(root, []).append(node)
    for roots, why in variances.items():
        for node in centered.get(next(iter(roots)), ()) if len(roots) == 1 else ():
            yield ConditioningFinding((node, *moments.between(input_of(node, 1), roots, made[roots])), why)


def _centers(node: ir.Node, moments: Moments) -> int | None:
    """Return the `id` of x if `node` computes x - E[x]; else None."""
    if node.op_type != "Sub":
        return None
    root, mean = moments.root(node.inputs[0]), moments.means.get(id(node.inputs[1]))
    return root if mean is not None and mean.of == {root} else None


def _cancels(node: ir.Node, moments: Moments) -> frozenset[int]:
    """Return the values whose (co)variance `node` computes as a difference of means; empty if it does not."""
    if node.op_type not in ("Add", "Sub"):
        return frozenset()
    for one, other in (node.inputs, node.inputs[::-1]):
        mean, square = moments.means_of_products.get(id(one)), moments.products_of_means.get(id(other))
        if mean is None or square is None or mean.of != square.of:
            continue
        if (mean.sign == square.sign) == (node.op_type == "Sub"):
            return mean.of
    return frozenset()


def _why_difference(makers: list[ir.Node], moments: Moments, roots: frozenset[int]) -> str:
    names = _names(makers, moments, roots)
    what = f"variance of {names} as E[x^2] - E[x]^2" if len(roots) == 1 else f"covariance of {names}"
    return f"it is part of the {what}, whose digits cancel"


def _names(makers: list[ir.Node], moments: Moments, roots: frozenset[int]) -> str:
    read = {
        value.name
        for maker in makers
        for value in maker.inputs
        if value is not None and value.name and moments.root(value) in roots
    }
    return " and ".join(f"'{name}'" for name in sorted(read)[: len(roots)])


def _is_scaling(node: ir.Node, moments: Moments) -> bool:
    """Check whether `node` only bounds, shifts, scales or moves its input."""
    if node.op_type in ("Add", "Mul", "Div"):
        return any(map(moments.is_factor, node.inputs))
    return node.op_type in _BOUNDS or moves_data(node)


def _follow_square(node: ir.Node, moments: Moments, squares: dict[int, _Square]) -> None:
    """Record that the result of `node` is a bounded, shifted or scaled mean square."""
    result = node.outputs[0]
    if id(result) in moments.means_of_products:
        return
    for value in node.inputs:
        mean = moments.means_of_products.get(id(value))
        alone = value is not None and mean is not None and len(mean.of) == 1
        steps = squares.get(id(value)) or ((value,) if alone else None)
        if steps is not None and len(steps) < _MAX_STEPS:
            squares[id(result)] = (*steps, node)
            return


def _is_root(node: ir.Node, interval: Callable[[ir.Value | None], Range]) -> bool:
    return node.op_type == "Sqrt" or abs(interval(node.inputs[1]).low) == abs(interval(node.inputs[1]).high) == 0.5


def _root_mean_square(
    node: ir.Node, steps: _Square, moments: Moments, measured: Collection[int]
) -> Iterator[ConditioningFinding]:
    mean, *between = steps
    roots = moments.means_of_products[id(mean)].of
    makers = moments.between(mean, roots)
    if all(id(value) in measured for maker in makers for value in maker.outputs):
        return
    why = f"the squares of {_names(makers, moments, roots)} overflow {NARROW} from 256 on, and so may their mean"
    yield ConditioningFinding((*makers, *between, node), why, frozenset({NARROW}))
