"""Checks of input shapes before a region runs on one thread, where OpenVINO loses its own errors."""

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


def loses_errors(compiled: ov.CompiledModel) -> bool:
    """Check whether a compiled region runs on one thread and has inputs of open extents.

    If a node of such a region does not accept the shapes of its inputs, OpenVINO 2026.4 reports no error: it returns
    memory that nothing has written, or ends the process. On two threads, the same node raises.
    """
    dynamic = any(port.get_partial_shape().is_dynamic for port in compiled.inputs)
    return dynamic and compiled.get_property("INFERENCE_NUM_THREADS") == 1


class ShapeChecks:
    """Propagates shapes through a region's graph, each combination once.

    Args:
        read: Reads the graph, when the first shapes are checked.
    """

    def __init__(self, read: Callable[[], ov.Model]):
        self._read = read
        self._graph: ov.Model | None = None
        self._known: set[Shapes] = set()
        self._lock = threading.Lock()

    def check(self, shapes: Shapes) -> None:
        """Check the shapes of all inputs, in order.

        Raises:
            RuntimeError: A node does not accept them, as OpenVINO says it.
        """
        if shapes in self._known:
            return
        with self._lock:
            if self._graph is None:
                self._graph = _without_weights(self._read())
                del self._read  # it holds the content of the file
            self._graph.reshape({index: list(shape) for index, shape in enumerate(shapes)})
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known.add(shapes)


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
