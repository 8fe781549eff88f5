"""How often the bodies of a model run each time that the model does: what costs in a loop costs every time around."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.flat_graph import FlatGraph

__all__ = ["trip_counts"]

_UNKNOWN = 64  # as an extent that is not known
_MOST = 4096  # a loop that runs until its condition fails is often given the largest number there is


def trip_counts(flat: FlatGraph) -> dict[int, int]:
    """The number of times that each body runs, by the `id` of its graph; without those that run once at most."""
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
        shape = holder.inputs[-scanned].shape if scanned else None
        extent = shape[axes.as_ints()[0] if axes is not None else 0] if shape else _UNKNOWN
        return max(1, extent) if isinstance(extent, int) else _UNKNOWN
    return _UNKNOWN if holder.op_type == "SequenceMap" else 1
