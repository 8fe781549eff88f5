"""Ranks of results that onnx's inference leaves out, although they do not depend on unknown values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import is_onnx

if TYPE_CHECKING:
    import onnx

_FREQUENCIES = "STFT"
_REDUCTIONS = frozenset({
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
})  # fmt: skip
_SAME_RANK = frozenset({"CenterCropPad", "DFT", "Pad"})
_WINDOWS = frozenset({"BlackmanWindow", "HammingWindow", "HannWindow"})


class _Given(NamedTuple):
    """A node, and the types that are known."""

    node: onnx.NodeProto
    types: Mapping[str, onnx.TypeProto.Tensor]

    def shape(self, index: int) -> list[onnx.TensorShapeProto.Dimension] | None:
        """Return the extents of an input; None if the rank is unknown, or there is none."""
        known = self.types.get(self.node.input[index]) if index < len(self.node.input) else None
        return list(known.shape.dim) if known is not None and known.HasField("shape") else None

    def elements(self, index: int) -> int | None:
        """Return the number of elements of an input that is a list; None if it is unknown."""
        shape = self.shape(index)
        known = shape is not None and len(shape) == 1 and shape[0].HasField("dim_value")
        return shape[0].dim_value if shape is not None and known else None


def add_ranks(proto: onnx.ModelProto) -> bool:
    """Give values whose rank onnx did not infer a shape of unnamed extents, in place.

    Args:
        proto: A model after inference.

    Returns:
        Whether a value got one; more may then follow from it.
    """
    return _add(proto.graph, {})


def _add(graph: onnx.GraphProto, outer: Mapping[str, onnx.TypeProto.Tensor]) -> bool:
    types = {**outer, **dict(_types(graph))}
    found = False
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _add(attribute.g, types)
        target = types.get(node.output[0]) if node.output and is_onnx(node) else None
        if target is None or target.HasField("shape") or not target.elem_type:
            continue
        rank = _rank(_Given(node, types))
        if rank is not None:
            target.shape.SetInParent()
            for _ in range(rank):
                target.shape.dim.add()
            found = True
    return found


def _rank(given: _Given) -> int | None:
    """Return the rank of the first result of a node; None if it depends on unknown values."""
    operator, shape = given.node.op_type, given.shape(0)
    if operator == _FREQUENCIES:
        return 4  # batch, frames, bins, real and imaginary part
    if operator in _WINDOWS:
        return 1
    if operator == "MelWeightMatrix":
        return 2
    if shape is None:
        return None
    rank = len(shape)
    if operator in _SAME_RANK:
        return rank
    count = given.elements(1)
    if operator == "Unsqueeze":
        return None if count is None else rank + count
    if operator == "Squeeze":
        return None if count is None else rank - count
    if operator in _REDUCTIONS:
        if _number(given.node, "keepdims", 1):
            return rank
        return rank - count if count else None  # no axes may mean all
    return None


def _types(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TypeProto.Tensor]]:
    import onnx

    for tensor in graph.initializer:
        yield tensor.name, onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims).tensor_type
    for value in (*graph.value_info, *graph.input, *graph.output):
        if value.type.HasField("tensor_type"):
            yield value.name, value.type.tensor_type


def _number(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == name), default)
