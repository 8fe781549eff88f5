"""One run of original and result side by side, part by part, that looks at every node once.

Nothing is kept but a few numbers per node: the values of a part of the graph are there together, and go when the next
part has run. The host runs all of it, in the types of the result, so no engine's fusions hide a value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.bodies import bodies
from dovetail.ir.fresh_names import FreshNames
from dovetail.ir.types import float_name
from dovetail_regions.regions import given_regions
from dovetail_runtime.data.batches import batches, fitted

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail_runtime.guard import GuardedEngine

__all__ = ["NodeErrors", "Streamed", "stream"]

_PART = 32  # nodes whose values are there at the same time
_BATCHES = 1
_OPTIONS = {"optimise": "none"}


@dataclass(slots=True)
class NodeErrors:
    """What one node did to the accuracy, as noise over signal of its first float result.

    Attributes:
        own: Of its low arithmetic on exact inputs; 0 for nodes that are not low.
        accumulated: Of everything up to and with it.
        moves: Its result is its exact result, rounded once: it adds nothing to the rounding of what it reads.
    """

    own: float = 0.0
    accumulated: float = 0.0
    moves: bool = False


@dataclass
class Streamed:
    """What a streamed run found.

    Attributes:
        errors: By node name.
        shapes: The shape of every value of the original, by name, in the first batch.
        failure: Why it found nothing, where the model is too large or no engine of the host takes a part; else empty.
    """

    errors: dict[str, NodeErrors] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    failure: str = ""


def stream(
    original: Model, exact: Model, low: Model, engines: Mapping[str, Sequence[GuardedEngine]], data: object
) -> Streamed:
    """Look at every node.

    Args:
        original: The model, for its inputs.
        exact: The model with everything high; its nodes have the names that they have in `low`.
        low: The model as it is compiled.
        engines: The host's engines.
        data: See `dovetail_runtime.data.sources.read_data`; a few batches are looked at.
    """
    from dovetail_runtime.loading import too_large

    # Three sets of sessions hold the weights at the same time.
    if why := too_large(exact):
        return Streamed(failure=why)
    try:
        return _Streaming(exact, low, engines).run(original, data)
    except DovetailError as error:
        return Streamed(failure=error.message)


class _Watched:
    """A copy of a model that gives out every float, and runs in parts.

    Args:
        model: The model.
        number: The part that each node of the plan is in; a conversion stays where its place in the order is.
        engines: The host's engines.
    """

    def __init__(self, model: Model, number: Mapping[str, int], engines: Mapping[str, Sequence[GuardedEngine]]):
        from dovetail_runtime.executor import Executor

        self._model = work = model.clone()
        parts: dict[int, list[ir.Node]] = {}
        part = 0
        for node in work.graph:
            part = max(part, number.get(node.name, part))
            parts.setdefault(part, []).append(node)
        values = [value for node in work.graph for value in node.outputs if value.name and float_name(value)]
        outputs = dict.fromkeys((*(value for value in work.graph.outputs if value.producer() is not None), *values))
        work.graph.outputs[:] = list(outputs)
        work.touch()
        regions = given_regions(work.graph, list(parts.values()))
        self._part = dict(zip((region.index for region in regions), parts))
        self._executor = Executor(work, engines, _OPTIONS, regions=regions)

    def steps(self, feeds: Mapping[str, np.ndarray]) -> Iterator[tuple[int, Mapping[str, np.ndarray]]]:
        """Run part by part: its number, and the values that are there."""
        for runner, values in self._executor.steps(fitted(self._model, feeds)):
            yield self._part[runner.index], values


class _Streaming:
    def __init__(self, exact: Model, low: Model, engines: Mapping[str, Sequence[GuardedEngine]]):
        nodes = list(exact.graph)
        number = {node.name: index // _PART for index, node in enumerate(nodes)}
        self._results: dict[int, list[tuple[str, str]]] = {}
        for node in nodes:
            value = next((value for value in node.outputs if float_name(value)), None)
            if value is not None:
                self._results.setdefault(number[node.name], []).append((node.name, value.name))
        self._exact, self._low = _Watched(exact, number, engines), _Watched(low, number, engines)
        self._alone = _Alone(low, number, engines)

    def run(self, original: Model, data: object) -> Streamed:
        found = Streamed()
        sums: dict[str, list[float]] = {}
        moves: dict[str, bool] = {}
        for feeds, _ in islice(batches(original, data), _BATCHES):
            beside = self._low.steps(feeds)
            reached, low = next(beside, (math.inf, {}))
            for part, exact in self._exact.steps(feeds):
                while reached < part:
                    reached, low = next(beside, (math.inf, {}))
                for name, result in self._results.get(part, ()) if reached == part else ():
                    if result in exact and result in low:
                        _add(sums.setdefault(name, [0.0] * 4), 0, exact[result], low[result])
                for name, result, array in self._alone.run(part, exact):
                    if result in exact:
                        _add(sums.setdefault(name, [0.0] * 4), 2, exact[result], array)
                        moves[name] = moves.get(name, True) and _is_rounded(exact[result], array)
                for name, array in exact.items():
                    if hasattr(array, "shape"):
                        found.shapes.setdefault(name, array.shape)
        for name, (signal, noise, own_signal, own_noise) in sums.items():
            found.errors[name] = NodeErrors(
                _share(own_noise, own_signal), _share(noise, signal), moves.get(name, False)
            )
        return found


class _Alone:
    """Every low node by itself, on exact inputs.

    Args:
        model: The result.
        number: The part that each node is in.
        engines: The host's engines.
    """

    def __init__(self, model: Model, number: Mapping[str, int], engines: Mapping[str, Sequence[GuardedEngine]]):
        from dovetail_runtime.executor import Executor

        self._fed: dict[str, tuple[str, np.dtype]] = {}
        work = model.clone()
        names = FreshNames.of(work.graph)
        sources = {
            id(value): _source(value, number) for node in work.graph for value in node.inputs if value is not None
        }
        chosen: dict[int, list[ir.Node]] = {}
        for node in list(work.graph):
            if node.name in number and _is_low(node) and not bodies(node) and all(map(_is_tensor, node.inputs)):
                self._isolate(node, sources, names)
                chosen.setdefault(number[node.name], []).append(node)
        kept = {id(node) for nodes in chosen.values() for node in nodes}
        work.graph.outputs[:] = []
        rest = [node for node in work.graph if id(node) not in kept]
        for node in rest:
            for value in node.outputs:
                for reader, index in list(value.uses()):
                    reader.replace_input_with(index, None)
        work.graph.remove(rest, safe=True)
        work.graph.outputs[:] = [v for nodes in chosen.values() for node in nodes for v in node.outputs if v.name]
        work.touch()
        self._model = work
        self._regions = dict(zip(sorted(chosen), given_regions(work.graph, [chosen[key] for key in sorted(chosen)])))
        executor = Executor(work, engines, _OPTIONS, regions=list(self._regions.values()))
        runners = {runner.index: runner for runner in executor.runners}
        self._executor = executor
        self._runners = {
            part: runners[region.index] for part, region in self._regions.items() if region.index in runners
        }

    def run(self, part: int, exact: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str, np.ndarray]]:
        """The name of each low node of a part, that of its first float result, and what it computes."""
        import numpy as np

        runner = self._runners.get(part)
        if runner is None:
            return
        fed = {}
        for name in runner.inputs:
            source, dtype = self._fed[name]
            if source not in exact:
                return
            with np.errstate(over="ignore"):
                fed[name] = np.asarray(exact[source]).astype(dtype, copy=False)
        results = runner.run(fed)
        for node in self._regions[part].nodes:
            value = next((value for value in node.outputs if float_name(value)), None)
            if value is not None and value.name in results:
                yield node.name, value.name, results[value.name]

    def _isolate(self, node: ir.Node, sources: Mapping[int, str], names: FreshNames) -> None:
        """Let `node` read inputs of its own."""
        import onnx_ir as ir

        for index, value in enumerate(node.inputs):
            if value is None or value.is_initializer():
                continue
            name = names.fresh(f"{node.name}/in{index}")
            fresh = ir.Value(name=name, type=value.type, shape=None)
            self._fed[name] = sources[id(value)], value.dtype.numpy()
            node.replace_input_with(index, fresh)


def _source(value: ir.Value, planned: Mapping[str, int]) -> str:
    """The name of the value of the plan that `value` holds: it may come through conversions."""
    node = value.producer()
    while node is not None and node.name not in planned and node.inputs and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value.name


def _is_tensor(value: ir.Value | None) -> bool:
    import onnx_ir as ir

    return value is None or value.is_initializer() or isinstance(value.type, ir.TensorType)


def _is_low(node: ir.Node) -> bool:
    kinds = {float_name(value) for value in (*node.inputs, *node.outputs) if value is not None}
    return bool(kinds & {"bfloat16", "float16"})


def _is_rounded(exact: np.ndarray, given: np.ndarray) -> bool:
    import numpy as np

    if given.dtype.itemsize > 2:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return given.shape == exact.shape and bool((exact.astype(given.dtype) == given).all())


def _add(sums: list[float], at: int, exact: np.ndarray, given: np.ndarray) -> None:
    """Add signal and noise of two arrays; where they do not go together, or what is no number, all is noise."""
    import numpy as np

    a, b = np.asarray(exact, np.float64), np.asarray(given, np.float64)
    if a.shape != b.shape:
        return
    both = np.isfinite(a) & np.isfinite(b)
    lost = a.size - int(both.sum()) - int((~both & ((a == b) | (np.isnan(a) & np.isnan(b)))).sum())
    x, difference = a[both], (b - a)[both] if both.all() else b[both] - a[both]
    signal = float(x @ x)
    sums[at] += signal
    sums[at + 1] += float(difference @ difference) + lost * max(signal, 1.0)


def _share(noise: float, signal: float) -> float:
    return noise / signal if signal else float(noise > 0)
