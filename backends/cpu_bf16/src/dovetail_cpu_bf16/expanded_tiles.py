"""Tile written as Expand, which OpenVINO computes for every shape and whatever the repeats are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.ir import input_of
from dovetail_transforms import Fusion, Rewrite, extents

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

_LEAST_RANK = 4  # from which on OpenVINO may choose a layout for channels
_MOST_AXES = 10  # of the result of Expand, as many as were measured


def _why_not(node: ir.Node) -> str:
    x = input_of(node, 0)
    known = extents(x)
    if known is None:
        return "the rank of its input is unknown"
    if _repeats(node) is not None and (len(known) < _LEAST_RANK or None not in known):
        return "its repeats are constant, and OpenVINO computes it as it is"
    if not known or len(known) + len(_repeated(node, known)) > _MOST_AXES:
        return "its input has no axes, or too many"
    return ""


def _repeats(node: ir.Node) -> np.ndarray | None:
    """Return the repeats of a Tile if they are constant."""
    value = input_of(node, 1)
    return None if value.const_value is None or value.is_graph_input() else value.const_value.numpy()


def _repeated(node: ir.Node, known: list[int | None]) -> list[int]:
    """Return the axes that may have several elements, and may be repeated: each needs an axis of its own before it."""
    repeats = _repeats(node)
    return [axis for axis, extent in enumerate(known) if extent != 1 and (repeats is None or int(repeats[axis]) != 1)]


def _expanded(op: Any, node: ir.Node) -> ir.Value:
    import numpy as np
    import onnx_ir as ir

    def constant(numbers: list[int], what: str) -> ir.Value:
        return op.constant(ir.tensor(np.array(numbers, np.int64)), what)

    x, repeats = input_of(node, 0), input_of(node, 1)
    known = extents(x) or []
    apart = _repeated(node, known)
    if not apart:
        return op.Expand(x, repeats)
    # [d, e] becomes [1, d, 1, e], is expanded to [r, d, s, e], and joined to [r * d, s * e].
    fresh = [axis + position for position, axis in enumerate(apart)]
    # For each axis of the result of Expand, its place in the repeats, or behind them, where a one stands.
    places = [place for axis in range(len(known)) for place in ([axis, len(known)] if axis in apart else [axis])]
    with_one = op.Concat(repeats, constant([1], "one"), axis=0)
    target = op.Gather(with_one, constant(places, "places"), axis=0)
    repeated = op.Expand(op.Unsqueeze(x, constant(fresh, "axes")), target)
    return op.Reshape(repeated, op.Mul(op.Shape(x), repeats), allowzero=1)


class ExpandTiles(Fusion):
    """`Tile(x, repeats)` as `Expand(x, repeats)` where only axes of one element are repeated.

    Other axes get an axis before them: `[d]` becomes `[1, d]`, is expanded to `[r, d]`, and joined to `[r * d]`. Only
    the forms that the limits of Tile refuse are replaced: with computed repeats OpenVINO leaves memory unwritten, and
    with open extents it may leave out the channels of a layout.
    """

    name, operator, opset = "expand-tiles", "Expand", 14
    general = False
    rewrites = (Rewrite("expand-tiles", lambda op: op.Tile(...), _expanded, _why_not),)
