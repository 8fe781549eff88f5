"""Checks of input shapes before a region runs, where OpenVINO loses its own errors or leaves results unwritten."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino as ov

Shapes = tuple[tuple[int, ...], ...]

_SHAPE_LIKE = 1024  # constants with more elements are weights, whose values decide no shape
_MOST_KNOWN = 1 << 14
_ATTENTION = "ScaledDotProductAttention"


def loses_errors(compiled: ov.CompiledModel) -> bool:
    """Check whether a compiled region has inputs of open extents, and may not say that these do not fit.

    If a node of a region on one thread does not accept the shapes of its inputs, OpenVINO 2026.4 reports no error: it
    returns uninitialized memory, or crashes the process. On two threads, the same node raises, unless it is a product
    with weights on a CPU without AVX-512: that reads as many numbers as its weights have rows.
    """
    if not any(port.get_partial_shape().is_dynamic for port in compiled.inputs):
        return False
    return compiled.get_property("INFERENCE_NUM_THREADS") == 1 or any(
        node.get_rt_info()["layerType"] == "FullyConnected" and _last_is_open(node)
        for node in compiled.get_runtime_model().get_ops()
    )


def _last_is_open(node: ov.Node) -> bool:
    shape = node.get_input_partial_shape(0)
    return shape.rank.is_dynamic or shape[len(shape) - 1].is_dynamic


def may_attend_to_nothing(model: ov.Model) -> bool:
    """Check whether a graph has attention whose number of keys depends on its inputs, and so may be zero.

    OpenVINO 2026.4 computes a product, Softmax and product in one kernel, like attention that is a single operation.
    If there are no keys, the kernel leaves its result uninitialized, so an earlier call's result is returned.
    """
    return any(
        node.get_type_name() in ("Softmax", _ATTENTION) and node.get_output_partial_shape(0).is_dynamic
        for node in model.get_ordered_ops()
    )


class ShapeChecks:
    """Propagates shapes through a region's graph, each combination once.

    Args:
        read: Reads the graph, when the first shapes are checked.
        always: Whether every call needs it; else those with an empty input.
    """

    def __init__(self, read: Callable[[], ov.Model], always: bool):
        self._read, self.always = read, always
        self._graph: ov.Model | None = None
        self._known: dict[Shapes, bool] = {}
        self._lock = threading.Lock()

    def check(self, shapes: Shapes) -> bool:
        """Check the shapes of all inputs, in order.

        Returns:
            Whether a Softmax has no elements although it has rows: attention without keys.

        Raises:
            RuntimeError: A node does not accept them, with OpenVINO's message; or attention that is a single operation
                has no keys.
        """
        found = self._known.get(shapes)
        if found is not None:
            return found
        with self._lock:
            if self._graph is None:
                self._graph = _without_weights(self._read())
                del self._read  # it holds the content of the file
            self._graph.reshape({index: list(shape) for index, shape in enumerate(shapes)})
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            nodes = self._graph.get_ordered_ops()
            for node in nodes:
                if _has_no_keys(node):
                    raise RuntimeError(f"{node.get_friendly_name()}: attention has no keys, and so no result")
            found = self._known[shapes] = any(map(_has_empty_rows, nodes))
        return found


def _has_no_keys(node: ov.Node) -> bool:
    if node.get_type_name() != _ATTENTION or node.get_input_partial_shape(1).is_dynamic:
        return False
    return node.get_input_shape(1)[-2] == 0 and math.prod(node.get_output_shape(0)) > 0


def _has_empty_rows(node: ov.Node) -> bool:
    if node.get_type_name() != "Softmax" or node.get_output_partial_shape(0).is_dynamic:
        return False
    extents = list(node.get_output_shape(0))
    return extents.pop(node.get_attributes().get("axis", -1)) == 0 and math.prod(extents) > 0


def _without_weights(model: ov.Model) -> ov.Model:
    """Replace weights by inputs of their shapes, in place, which frees their memory."""
    from openvino import opset13

    weights = [
        node
        for node in model.get_ordered_ops()
        if node.get_type_name() == "Constant" and math.prod(node.get_output_shape(0)) > _SHAPE_LIKE
    ]
    stand_ins = [opset13.parameter(node.get_output_shape(0), node.get_element_type()) for node in weights]
    for node, stand_in in zip(weights, stand_ins, strict=True):
        node.output(0).replace(stand_in.output(0))
    model.add_parameters(stand_ins)
    return model
