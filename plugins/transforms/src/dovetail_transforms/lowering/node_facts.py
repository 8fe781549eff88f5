"""Predicates and queries on nodes and values, for lowering rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.ir import is_onnx

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir


UNRELATED = "the rule is for other nodes"  # a check does not apply; the older version rejects the node as written
_DEEPEST = 32  # nodes between a constant and a value computed from it
_MOST_ELEMENTS = 64


def constant(value: ir.Value | None, opset: int | None = None) -> np.ndarray | None:
    """Return the content of a constant; None for an absent value, and for one known only at run time.

    Small integers that follow from constants and from static shapes are constants as well: function bodies compute
    their axes and sizes.

    Args:
        value: The value.
        opset: The opset of nodes that do not specify theirs.
    """
    return _constant(value, opset, _DEEPEST)


def _constant(value: ir.Value | None, opset: int | None, depth: int) -> np.ndarray | None:
    import onnx_ir as ir

    # An initializer that is also an input is only a default.
    if value is None or value.is_graph_input():
        return None
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is not None:
        return tensor.numpy()
    node = value.producer()
    if node is None or not depth or not _small_integers(value) or not is_onnx(node):
        return None
    if node.op_type == "Shape":
        given = extents(node.inputs[0])
        part = slice(attribute(node, "start", 0), attribute(node, "end"))
        found = None if given is None else closed(given[part])
        return None if found is None else _int64(found)
    if not all(map(_small_integers, filter(None, node.inputs))) or len(node.outputs) > 1:
        return None
    inputs = [_constant(one, opset, depth - 1) for one in node.inputs]
    if any(known is None and one is not None for known, one in zip(inputs, node.inputs)):
        return None
    return _run(node, node.version or opset, inputs)


def _small_integers(value: ir.Value) -> bool:
    known = closed(extents(value))
    small = known is not None and math.prod(known) <= _MOST_ELEMENTS
    return small and value.dtype is not None and (value.dtype.is_integer() or value.dtype.name == "BOOL")


def _int64(numbers: Sequence[int]) -> np.ndarray:
    import numpy as np

    return np.array(numbers, np.int64)


def _run(node: ir.Node, opset: int | None, inputs: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Run one node with onnx's evaluator; None if it cannot."""
    import onnx
    import onnx_ir as ir
    from onnx.reference import ReferenceEvaluator

    if opset is None:
        return None
    names = ["" if found is None else f"in{index}" for index, found in enumerate(inputs)]
    attributes = [ir.to_proto(one) for one in node.attributes.values()]
    proto = onnx.NodeProto(op_type=node.op_type, input=names, output=["out"], attribute=attributes)
    given = {name: found for name, found in zip(names, inputs) if name}
    graph = onnx.helper.make_graph([proto], "one", [onnx.ValueInfoProto(name=name) for name in given], [])
    graph.output.add(name="out")
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        results: Any = ReferenceEvaluator(model).run(None, given)
        return results[0]
    except Exception:  # not supported by the evaluator: the value is known only at run time
        return None


def rank(value: ir.Value | None) -> int | None:
    """Return the number of axes; None if it is unknown."""
    return None if value is None or value.shape is None else len(value.shape)


def extents(value: ir.Value | None) -> list[int | None] | None:
    """Return the extent of each axis, None if open; None if the rank is unknown."""
    if value is None or value.shape is None:
        return None
    return [extent if isinstance(extent, int) else None for extent in value.shape]


def closed(known: Sequence[int | None] | None) -> list[int] | None:
    """Return extents if none of them is open; else None."""
    found = [extent for extent in known or () if extent is not None]
    return found if known is not None and len(found) == len(known) else None


def required_constant(value: ir.Value) -> np.ndarray:
    """Return the content of a value already known to be constant."""
    found = constant(value)
    assert found is not None, f"'{value.name}' is not constant"
    return found


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """Return the value of an attribute as written, or `default`."""
    found = node.attributes.get(name)
    if found is None:
        return default
    return list(found.value) if isinstance(found.value, (list, tuple)) else found.value


def is_float(value: ir.Value | None) -> bool:
    """Check whether the value holds floats."""
    return value is not None and value.dtype is not None and value.dtype.is_floating_point()


def _last_axis(node: ir.Node) -> bool:
    """Check whether all axes after `axis` have one element, so that flattening them changes nothing."""
    axis, known = attribute(node, "axis", -1), extents(node.inputs[0])
    return axis == -1 or known is not None and all(extent == 1 for extent in known[axis % len(known) + 1 :])


def _bounds_in_order(node: ir.Node) -> bool:
    """Check whether bounds that are both constant are in order. Older versions do not define crossed bounds."""
    low, high = ([*map(constant, node.inputs[1:3]), None, None])[:2]
    return low is None or high is None or not low > high


def _scalar_scale(node: ir.Node) -> bool:
    return rank(node.inputs[1]) == 0


def _integers_or_fmod(node: ir.Node) -> bool:
    return bool(attribute(node, "fmod", 0)) or not is_float(node.inputs[0])


def _output_half_pixel(node: ir.Node) -> bool:
    return attribute(node, "coordinate_transformation_mode") == "output_half_pixel"


def _two_spatial_axes(node: ir.Node) -> bool:
    return rank(node.inputs[0]) == 4


def _no_window_in_padding(node: ir.Node) -> bool:
    """Check whether no window starts in the padding at the end."""
    if not attribute(node, "ceil_mode", 0):
        return True
    kernel = attribute(node, "kernel_shape", [])
    ones = [1] * len(kernel)
    strides, dilations = attribute(node, "strides", ones), attribute(node, "dilations", ones)
    ends = attribute(node, "pads", [0] * 2 * len(kernel))[len(kernel) :]
    if attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return True  # the extents follow from the strides alone
    return all(
        not end and stride <= (size - 1) * dilation + 1
        for end, stride, size, dilation in zip(ends, strides, kernel, dilations)
    )


CONDITIONS: Mapping[str, Callable[[ir.Node], bool]] = {
    "bounds-in-order": _bounds_in_order,
    "integers-or-fmod": _integers_or_fmod,
    "last-axis": _last_axis,
    "no-window-in-padding": _no_window_in_padding,
    "output-half-pixel": _output_half_pixel,
    "scalar-scale": _scalar_scale,
    "two-spatial-axes": _two_spatial_axes,
}
