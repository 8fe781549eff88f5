"""Broadcasting as of numpy (opset 7), and softmaxes along one axis (opset 13)."""

from __future__ import annotations

from dovetail_transforms.raising.writer import Writer


def _trailing_axes(op: Writer, value: str, axes: int | None, counted: str) -> str:
    """Append axes of one element to `value`.

    Args:
        op: The writer.
        value: Name of the value.
        axes: Their number, if it is known.
        counted: Otherwise, a list of one int64 that holds it at run time.
    """
    if axes is not None:
        rank = op.rank(value)
        assert rank is not None
        return op.add("Unsqueeze", value, axes=list(range(rank, rank + axes)), hint="aligned") if axes > 0 else value
    ones = op.add("Tile", op.integers([1], "one"), counted, hint="ones")
    shape = op.add("Concat", op.add("Shape", value, hint="shape"), ones, axis=0, hint="aligned_shape")
    return op.add("Reshape", value, shape, hint="aligned")


def _rank_at_run_time(op: Writer, value: str) -> str:
    """Write the rank of a value as a list of one int64."""
    return op.add("Shape", op.add("Shape", value, hint="extents"), hint="rank")


def _numpy_broadcast(op: Writer) -> None:
    """Align the second operand with the axes of the first from `axis` on."""
    left, right = op.node.input
    axis = op.attribute("axis") if op.attribute("broadcast", 0) else None
    if axis is not None:
        ranks = op.rank(left), op.rank(right)
        if ranks[0] is not None and ranks[1] is not None:
            start = axis + ranks[0] if axis < 0 else axis
            op.node.input[1] = _trailing_axes(op, right, ranks[0] - start - ranks[1], "")
        else:
            behind = _rank_at_run_time(op, right)
            if axis < 0:
                missing = op.add("Sub", op.integers([-axis], "axis"), behind, hint="missing")
            else:
                free = op.add("Sub", _rank_at_run_time(op, left), op.integers([axis], "axis"), hint="free")
                missing = op.add("Sub", free, behind, hint="missing")
            op.node.input[1] = _trailing_axes(op, right, None, missing)
    op.keep()


def _slope_per_channel(op: Writer) -> None:
    """Align the slopes of PRelu, a list with one for each channel, with the axis of channels."""
    x, slope = op.node.input
    extents = op.values.extents(slope)
    if extents is None or len(extents) == 1 and extents != [1]:
        rank = op.rank(x)
        if rank is not None and extents is not None:
            op.node.input[1] = _trailing_axes(op, slope, rank - 2, "")
        else:
            axes = op.add("Sub", _rank_at_run_time(op, x), op.integers([2], "two"), hint="missing")
            op.node.input[1] = _trailing_axes(op, slope, None, axes)
    op.keep()


def _coerced_to_rows(op: Writer) -> None:
    """Write a softmax of all axes from `axis` on, taken as one, as one of rows."""
    x = op.node.input[0]
    axis, rank = op.take("axis", 1), op.rank(x)
    if rank is not None and axis in (rank - 1, -1):
        op.write(axis=-1)
        op.keep()
        return
    rows = op.add("Flatten", x, axis=axis, hint="rows")
    result = op.add(op.node.op_type, rows, axis=-1, hint="of_rows")
    op.finish("Reshape", result, op.add("Shape", x, hint="shape"))


RULES = {
    "coerced-to-rows": _coerced_to_rows,
    "numpy-broadcast": _numpy_broadcast,
    "slope-per-channel": _slope_per_channel,
}
