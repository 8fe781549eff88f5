"""Pooling with `ceil_mode`, for which onnx infers one window too many.

A window that would start in the end padding is ignored (https://onnx.ai/onnx/operators/onnx__AveragePool.html), but
onnx's inference (1.23) counts it. For inference, such a node is replaced by one without `ceil_mode` and with padding
that gives the correct extents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dovetail_transforms.canonicalize.names import all_nodes

if TYPE_CHECKING:
    import onnx


_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})


def explicit_windows(proto: onnx.ModelProto) -> dict[int, onnx.NodeProto]:
    """Return stand-ins for pooling nodes with wrong inferred extents, by the position of the node.

    Args:
        proto: A model after inference.
    """
    if not any(node.op_type in _POOLS for node in all_nodes(proto.graph)):
        return {}
    shapes = {
        value.name: _extents(value) for value in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output)
    }
    found = {}
    for index, node in enumerate(all_nodes(proto.graph)):
        if node.op_type in _POOLS and node.domain in ("", "ai.onnx") and _attribute(node, "ceil_mode", 0):
            stand_in = _explicit(node, shapes)
            if stand_in is not None:
                found[index] = stand_in
    return found


def _explicit(node: onnx.NodeProto, shapes: Mapping[str, list[int | None] | None]) -> onnx.NodeProto | None:
    """Return the node without `ceil_mode` and with explicit padding; None if its extents are right or unknown."""
    import onnx

    given, inferred = shapes.get(node.input[0]), shapes.get(node.output[0])
    kernel = list(_attribute(node, "kernel_shape", ()))
    if (
        given is None
        or inferred is None
        or len(given) != len(kernel) + 2
        or _attribute(node, "auto_pad", b"NOTSET") != b"NOTSET"
    ):
        return None
    ones, none = [1] * len(kernel), [0] * 2 * len(kernel)
    strides, dilations = (list(_attribute(node, name, ones)) for name in ("strides", "dilations"))
    pads = list(_attribute(node, "pads", none))
    wrong = False
    for axis, (extent, size, stride, dilation) in enumerate(zip(given[2:], kernel, strides, dilations)):
        if extent is None or stride < 1:
            return None
        before, covered = pads[axis], (size - 1) * dilation + 1
        windows = -(-(extent + before + pads[axis + len(kernel)] - covered) // stride) + 1
        if (windows - 1) * stride >= extent + before:
            windows -= 1
        wrong |= inferred[axis + 2] != windows
        pads[axis + len(kernel)] = max((windows - 1) * stride + covered - extent - before, 0)
    if not wrong:
        return None
    stand_in = onnx.NodeProto()
    stand_in.CopyFrom(node)
    del stand_in.attribute[:]
    stand_in.attribute.extend(entry for entry in node.attribute if entry.name not in ("ceil_mode", "pads"))
    stand_in.attribute.append(onnx.helper.make_attribute("pads", pads))
    return stand_in


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    import onnx

    found = next((entry for entry in node.attribute if entry.name == name), None)
    return default if found is None else onnx.helper.get_attribute_value(found)


def _extents(value: onnx.ValueInfoProto) -> list[int | None] | None:
    if not value.type.tensor_type.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in value.type.tensor_type.shape.dim]
