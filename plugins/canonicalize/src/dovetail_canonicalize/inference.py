"""Types and shapes by onnx's own inference, with what it leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail_canonicalize.names import all_nodes
from dovetail_canonicalize.pooling_extents import explicit_windows

if TYPE_CHECKING:
    import onnx

__all__ = ["infer"]

# onnx 1.23 has no inference for these, so that everything behind them would have no type either.
_LIKE_THEIR_INPUT = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
_MOST_ROUNDS = 8


def infer(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `proto` with the types and shapes that follow from its inputs.

    Operators whose result is like their first input, and for which onnx has no inference, are inferred as `Identity`;
    pooling whose extents onnx gets wrong is inferred with explicit padding.
    """
    inferred = _inferred(proto)
    stand_ins = {}
    # What is corrected gives those behind it other extents to be wrong about.
    for _ in range(_MOST_ROUNDS):
        wrong = explicit_windows(inferred)
        if not wrong:
            break
        stand_ins |= wrong
        inferred = _inferred_with(proto, stand_ins)
    return inferred


def _inferred_with(proto: onnx.ModelProto, stand_ins: Mapping[int, onnx.NodeProto]) -> onnx.ModelProto:
    """What is inferred while other nodes stand in the places of some; names of values are the same."""
    import onnx

    work = onnx.ModelProto()
    work.CopyFrom(proto)
    # What the file says of their results, and of what follows from them, was inferred the same way.
    stale = {name for node in stand_ins.values() for name in node.output}
    for index, node in enumerate(all_nodes(work.graph)):
        if index in stand_ins:
            node.CopyFrom(stand_ins[index])
        elif node.domain in ("", "ai.onnx") and not stale.isdisjoint(node.input):
            stale.update(name for name in node.output if name)
    for value in [value for value in work.graph.value_info if value.name in stale]:
        work.graph.value_info.remove(value)
    inferred = _inferred(work)
    originals = dict(enumerate(all_nodes(proto.graph)))
    for index, node in enumerate(all_nodes(inferred.graph)):
        if index in stand_ins:
            node.CopyFrom(originals[index])
    return inferred


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    import onnx.shape_inference

    stand_ins = {
        index: node.op_type
        for index, node in enumerate(all_nodes(proto.graph))
        if node.op_type in _LIKE_THEIR_INPUT and node.domain in ("", "ai.onnx")
    }
    if not stand_ins:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True)
    _rename(proto.graph, dict.fromkeys(stand_ins, "Identity"))
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    finally:
        _rename(proto.graph, stand_ins)
    _rename(inferred.graph, stand_ins)
    return inferred


def _rename(graph: onnx.GraphProto, op_types: dict[int, str]) -> None:
    for index, node in enumerate(all_nodes(graph)):
        node.op_type = op_types.get(index, node.op_type)
