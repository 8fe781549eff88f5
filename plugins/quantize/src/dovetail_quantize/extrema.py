"""Extrema of the slices of a value over all batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import numpy as np
import onnx_ir as ir
from dovetail.ir import FreshNames, name_of
from dovetail.text import pluralize

if TYPE_CHECKING:
    from dovetail.ir import Format, Model


class Extrema:
    """Running extrema of every slice; independent of the order and size of the batches."""

    def __init__(self) -> None:
        self._low = self._high = np.zeros(0)

    def widen(self, low: np.ndarray, high: np.ndarray) -> None:
        """Widen by the extrema of one batch.

        Raises:
            ValueError: An extremum is infinite or NaN, or the number of slices changed.
        """
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError("a number is infinite or NaN")
        if not self._low.size:
            self._low, self._high = low, high
            return
        if low.size != self._low.size:
            raise ValueError(f"one batch has {pluralize(low.size, 'slice')} along the axis, others {self._low.size}")
        self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)

    def range(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest number of every slice.

        Raises:
            ValueError: No number was seen.
        """
        if not self._low.size:
            raise ValueError("no number was seen")
        return self._low, self._high

    def state(self) -> dict[str, np.ndarray]:
        """Return what was seen, for `merge` of another process; empty if nothing was."""
        return {"low": self._low, "high": self._high} if self._low.size else {}

    def merge(self, state: Mapping[str, np.ndarray]) -> None:
        """Widen by what another process saw.

        Raises:
            ValueError: The state is not valid, or of another number of slices.
        """
        if state:
            self.widen(state["low"], state["high"])


_STEM = "dovetail_extrema"
_AXES_ARE_INPUTS = {"ReduceMin": 18, "ReduceMax": 18, "ReduceSum": 13}  # opset from which the axes are an input


class ExtremaNames(NamedTuple):
    """Names of the graph values that hold a value's extrema.

    Attributes:
        low: The smallest numbers, one per slice.
        high: The largest numbers, one per slice.
        finite: Zero, or NaN if a number is infinite or NaN; needed because a maximum may drop NaN.
    """

    low: str
    high: str
    finite: str


class ExtremaNodes:
    """Builder of nodes that compute extrema in the main graph of a model.

    Args:
        model: The model to change.

    Attributes:
        added: The nodes added so far; callers may clear it.
    """

    def __init__(self, model: Model):
        self._graph, self._opset = model.graph, model.opset
        self._names = FreshNames.of(model.graph)
        self._zero: ir.Value | None = None
        self.added: list[ir.Node] = []

    def add(self, value: ir.Value, format_: Format) -> ExtremaNames | None:
        """Add nodes for the per-slice extrema of a value; return None if an engine may not be able to compute them.

        That is the case for floats other than float32, for groups, and for values that may be empty.
        """
        shape = value.shape
        if value.dtype != ir.DataType.FLOAT or format_.group is not None or not self._has_numbers(shape):
            return None
        rank = len(shape)
        if format_.axis is not None and not (rank > 1 and -rank <= format_.axis < rank):
            return None
        kept = None if format_.axis is None else format_.axis % rank
        axes = [index for index in range(rank) if index != kept]
        found = [
            self._reduced("ReduceMin", value, axes),
            self._reduced("ReduceMax", value, axes),
            self._reduced("ReduceSum", self._node("Mul", value, self._constant_zero()), list(range(rank))),
        ]
        for result in found:
            result.type = ir.TensorType(ir.DataType.FLOAT)
            result.shape = ir.Shape([] if kept is None or result is found[2] else [shape[kept]])
            self._graph.outputs.append(result)
        return ExtremaNames(*map(name_of, found))

    def _has_numbers(self, shape: ir.Shape | None) -> TypeGuard[ir.Shape]:
        """Check whether a value is nonempty in every batch: open extents must be batch sizes, and no batch is empty."""
        if shape is None or not len(shape):
            return False
        counts = {getattr(one.shape[0], "value", None) for one in self._graph.inputs if one.shape} - {None}
        return all(
            extent > 0 if isinstance(extent, int) else getattr(extent, "value", None) in counts for extent in shape
        )

    def _constant_zero(self) -> ir.Value:
        if self._zero is None:
            self._zero = self._constant(np.zeros((), np.float32))
        return self._zero

    def _reduced(self, operator: str, value: ir.Value, axes: list[int]) -> ir.Value:
        if self._opset >= _AXES_ARE_INPUTS[operator]:
            return self._node(operator, value, self._constant(np.array(axes, np.int64)), keepdims=0)
        return self._node(operator, value, keepdims=0, axes=axes)

    def _node(self, operator: str, *inputs: ir.Value, **attributes: int | list[int]) -> ir.Value:
        name = self._names.fresh(_STEM)
        node = ir.node(operator, inputs, attributes, outputs=[ir.Value(name=name)], name=name)
        self._graph.append(node)
        self.added.append(node)
        return node.outputs[0]

    def _constant(self, array: np.ndarray) -> ir.Value:
        tensor = ir.Tensor(array, name=self._names.fresh(f"{_STEM}_constant"))
        value = ir.Value(name=tensor.name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
        self._graph.register_initializer(value)
        return value
