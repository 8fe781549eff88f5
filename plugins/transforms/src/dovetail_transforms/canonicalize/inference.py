"""Infer types and shapes with onnx, and work around its gaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail_transforms.canonicalize.names import all_nodes
from dovetail_transforms.canonicalize.pooling_extents import explicit_windows

if TYPE_CHECKING:
    import onnx


# onnx 1.23 has no inference for these, which would leave everything behind them untyped.
_SHAPE_PRESERVING = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
_MOST_ROUNDS = 8


def infer(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of `proto` with inferred types and shapes.

    Shape-preserving operators without inference in onnx are inferred as `Identity`; pooling for which onnx infers wrong
    extents is inferred with explicit padding.
    """
    inferred = _inferred(proto)
    stand_ins: dict[int, onnx.NodeProto] = {}
    # Each correction changes the extents behind it, where onnx may be wrong again.
    for _ in range(_MOST_ROUNDS):
        wrong = explicit_windows(inferred)
        if not wrong:
            break
        stand_ins |= wrong
        inferred = _inferred_with(proto, stand_ins)
    return inferred


def _inferred_with(proto: onnx.ModelProto, stand_ins: Mapping[int, onnx.NodeProto]) -> onnx.ModelProto:
    """Infer with some nodes replaced by stand-ins; value names do not change."""
    import onnx

    work = onnx.ModelProto()
    work.CopyFrom(proto)
    # Declared shapes of their results, and of values behind them, are wrong in the same way and dropped.
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
        if node.op_type in _SHAPE_PRESERVING and node.domain in ("", "ai.onnx")
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
