"""Smaller arrays in a model that is already small: fewer outputs, shorter extents, plain weights and inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from dovetail.ir import name_of

from dovetail_verify.reducing.parts import FailingModel

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir


_MOST_PAIRS = 8  # axes of one extent that are also tried in pairs
_FILLS = ("zeros", "ones", "largest")

Test = Callable[[str, FailingModel], bool]
"""Tests a candidate, which a text names; the text is the same in every run."""

Axis = tuple[str, int]
"""Name of an input or a weight, and the number of its axis."""


class Shrinking:
    """Shrinks a candidate step by step, as long as it fails.

    Args:
        candidate: A candidate that fails.
        fails: Tests a smaller one.
        runs: Whether a candidate runs at all: shorter arrays need not fit together.

    Attributes:
        best: The smallest candidate found so far.
    """

    def __init__(self, candidate: FailingModel, fails: Test, runs: Callable[[FailingModel], bool]):
        self.best = candidate
        self._fails, self._runs = fails, runs

    def outputs(self) -> None:
        """Keep a single output, if one is enough."""
        graph = self.best.model.graph
        if len(graph.outputs) < 2:
            return
        for position, value in enumerate(graph.outputs):
            copy = self.best.model.clone()
            copy.graph.outputs[:] = [copy.graph.outputs[position]]
            if self._accept(f"output {position} {value.name}", FailingModel(copy, self.best.feeds)):
                return

    def extents(self) -> None:
        """Shorten extents: those that are equal together, then pairs of them, then each alone."""
        for extent in sorted(_axes_by_extent(self.best), reverse=True):
            axes = _axes_by_extent(self.best).get(extent, [])
            for group in _groups(axes):
                if all(_extent(self.best, axis) == extent for axis in group):
                    self._shorten(group, extent)

    def values(self) -> None:
        """Replace the elements of weights and inputs by zeros, ones, or the largest of them."""
        for name, array in list(_arrays(self.best)):
            if array.dtype.kind not in "fV" or not array.size:  # ml_dtypes are of kind V or f
                continue
            for fill in _FILLS:
                filled = _filled(array, fill)
                if (array == filled).all():
                    break
                if self._accept(f"{fill} {name}", _with_arrays(self.best, {name: filled})):
                    break

    def _shorten(self, axes: Sequence[Axis], extent: int) -> None:
        """Find the smallest extent that still fails, by halving."""
        passes, fails = 0, extent
        wanted = 1
        while fails - passes > 1:
            if self._accept(f"extent {wanted} of {sorted(axes)}", _sliced(self.best, axes, wanted), shorter=True):
                fails = wanted
            else:
                passes = wanted
            wanted = (passes + fails) // 2

    def _accept(self, label: str, candidate: FailingModel, shorter: bool = False) -> bool:
        if shorter and not self._runs(candidate):
            return False
        if not self._fails(label, candidate):
            return False
        self.best = candidate
        return True


def _arrays(candidate: FailingModel) -> Iterator[tuple[str, np.ndarray]]:
    """Yield inputs and weights by name."""
    yield from candidate.feeds.items()
    for name, value in candidate.model.graph.initializers.items():
        if value.const_value is not None and name not in candidate.feeds:
            yield name, value.const_value.numpy()


def _axes_by_extent(candidate: FailingModel) -> dict[int, list[Axis]]:
    """Return the axes of inputs and of float weights, by extent; integer weights are shapes, axes and indices."""
    found: dict[int, list[Axis]] = {}
    for name, array in _arrays(candidate):
        if name in candidate.feeds or array.dtype.kind not in "iub":
            for axis, extent in enumerate(array.shape):
                if extent > 1:
                    found.setdefault(extent, []).append((name, axis))
    return found


def _groups(axes: Sequence[Axis]) -> Iterator[Sequence[Axis]]:
    yield axes
    if 2 < len(axes) <= _MOST_PAIRS:
        yield from combinations(axes, 2)
    if len(axes) > 1:
        yield from ((axis,) for axis in axes)


def _extent(candidate: FailingModel, axis: Axis) -> int:
    name, number = axis
    if name in candidate.feeds:
        return candidate.feeds[name].shape[number]
    tensor = candidate.model.graph.initializers[name].const_value
    return int(tensor.shape.numpy()[number]) if tensor is not None else 0


def _sliced(candidate: FailingModel, axes: Sequence[Axis], extent: int) -> FailingModel:
    """Keep the first elements along some axes."""
    arrays = dict(_arrays(candidate))
    changed: dict[str, np.ndarray] = {}
    for name, axis in axes:
        array = changed.get(name, arrays[name])
        changed[name] = array[(slice(None),) * axis + (slice(extent),)]
    return _with_arrays(candidate, changed)


def _filled(array: np.ndarray, fill: str) -> np.ndarray:
    import numpy as np

    if fill == "largest":
        finite = np.nan_to_num(array.astype(np.float64), nan=np.inf, posinf=np.inf, neginf=-np.inf)
        return np.full_like(array, array.reshape(-1)[np.abs(finite).argmax()])
    return np.zeros_like(array) if fill == "zeros" else np.ones_like(array)


def _with_arrays(candidate: FailingModel, changed: Mapping[str, np.ndarray]) -> FailingModel:
    """Replace inputs and weights; shapes that no longer hold are removed from the model."""
    import numpy as np
    import onnx_ir as ir

    copy = candidate.model.clone()
    graph, feeds = copy.graph, dict(candidate.feeds)
    reshaped = False
    for name, array in changed.items():
        array = np.ascontiguousarray(array)
        if name in feeds:
            reshaped |= feeds[name].shape != array.shape
            feeds[name] = array
            continue
        value = graph.initializers[name]
        reshaped |= value.const_value is None or tuple(value.const_value.shape.numpy()) != array.shape
        value.const_value, value.shape = ir.tensor(array, name=name), ir.Shape(array.shape)
    if reshaped:
        _declare_shapes(graph, feeds)
    return FailingModel(copy, feeds)


def _declare_shapes(graph: ir.Graph, feeds: Mapping[str, np.ndarray]) -> None:
    """Give inputs the shapes of their arrays where they declare fixed extents, and let all other shapes be inferred."""
    import onnx_ir as ir

    for value in graph.inputs:
        array = feeds.get(name_of(value))
        if array is not None and value.shape is not None:
            extents = [
                found if isinstance(declared, int) else declared for declared, found in zip(value.shape, array.shape)
            ]
            value.shape = ir.Shape(extents)
    for node in graph:
        for value in node.outputs:
            value.shape = None
