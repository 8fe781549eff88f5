"""Trip counts: how often each body runs per inference, as a factor on its costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.required import input_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.flat_graph import FlatGraph


_UNKNOWN = 64  # like an unknown extent
_MOST = 4096  # loops that end by their condition often have INT64_MAX as their trip count


def trip_counts(flat: FlatGraph) -> dict[int, int]:
    """Return how often each body runs, by the `id` of its graph; bodies that run at most once are left out."""
    found: dict[int, int] = {}
    for graph in flat.graphs:
        holder = flat.holders.get(id(graph))
        if holder is None:
            continue
        times = min(_trip_count(holder) * found.get(id(holder.graph), 1), _MOST)
        if times > 1:
            found[id(graph)] = times
    return found


def _trip_count(holder: ir.Node) -> int:
    if holder.op_type == "Loop":
        count = holder.inputs[0]
        given = count.const_value if count is not None and not count.is_graph_input() else None
        times = int(given.numpy().item()) if given is not None else _UNKNOWN
        return max(1, times) if times <= _MOST else _UNKNOWN
    if holder.op_type == "Scan":
        scanned = holder.attributes.get_int("num_scan_inputs", 0)
        axes = holder.attributes.get("scan_input_axes")
        shape = input_of(holder, -scanned).shape if scanned else None
        extent = shape[axes.as_ints()[0] if axes is not None else 0] if shape else _UNKNOWN
        return max(1, extent) if isinstance(extent, int) else _UNKNOWN
    return _UNKNOWN if holder.op_type == "SequenceMap" else 1
