"""Types and shapes by onnx's own inference, with what it leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_canonicalize.names import all_nodes

if TYPE_CHECKING:
    import onnx

__all__ = ["infer"]

# onnx 1.23 has no inference for these, so that everything behind them would have no type either.
_LIKE_THEIR_INPUT = frozenset({"GroupNormalization", "MeanVarianceNormalization"})


def infer(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `proto` with the types and shapes that follow from its inputs.

    Operators whose result is like their first input, and for which onnx has no inference, are inferred as `Identity`.
    """
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
