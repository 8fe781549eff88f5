"""One run of original and result side by side, part by part, that looks at every node once.

Nothing is kept but a few numbers per node: the values of a part of the graph are there together, and go when the next
part has run. The host runs all of it, in the types of the result, so no engine's fusions hide a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import float_name, name_of
from dovetail_runtime.data.batches import batches

from dovetail_verify.accuracy.integer_results import with_floats
from dovetail_verify.accuracy.per_node_errors import ErrorSums, NodeResult, PerNodeErrors
from dovetail_verify.accuracy.watched import Watched, first_float, is_quantized, seen_by_readers

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail_runtime.engines import GuardedEngine


_PART = 32  # nodes whose values are there at the same time


@dataclass(slots=True)
class NodeErrors:
    """What one node did to the accuracy, seen in its first float result as its readers get it.

    Attributes:
        own: The error of its low arithmetic on exact inputs; nothing was seen of nodes that are not low.
        accumulated: The error of everything up to and with it.
        moves: Its result is its exact result, rounded once: it adds nothing to the rounding of what it reads.
    """

    own: ErrorSums = field(default_factory=ErrorSums)
    accumulated: ErrorSums = field(default_factory=ErrorSums)
    moves: bool = False


@dataclass
class Streamed:
    """What a streamed run found.

    Attributes:
        errors: By node name.
        shapes: The shape of every value of the original, by name, in the first batch.
        batches: How many batches were looked at.
        failure: Why it found nothing, where the model is too large or no engine of the host takes a part; else empty.
    """

    errors: dict[str, NodeErrors] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    batches: int = 0
    failure: str = ""


def stream(
    original: Model, exact: Model, low: Model, engines: Mapping[str, Sequence[GuardedEngine]], data: object
) -> Streamed:
    """Look at every node in one batch, unless the model is large.

    Args:
        original: The model, for its inputs.
        exact: The model with everything high; its nodes have the names that they have in `low`.
        low: The model as it is compiled.
        engines: The host's engines.
        data: See `dovetail_runtime.data.sources.read_data`.
    """
    from dovetail_runtime.loading import too_large

    # Three sets of sessions hold the weights at the same time.
    if why := too_large(exact):
        return Streamed(failure=why)
    try:
        return SideBySide(exact, low, engines).run(original, data, 1)
    except DovetailError as error:
        return Streamed(failure=error.message)


class SideBySide:
    """The exact model and a result, ready to run part by part.

    Args:
        exact: The model with everything high; its nodes have the names that they have in `low`.
        low: The model as it is compiled.
        engines: The host's engines.

    Raises:
        DovetailError: No engine of the host takes a part.
    """

    def __init__(self, exact: Model, low: Model, engines: Mapping[str, Sequence[GuardedEngine]]):
        low, together = with_floats(low, exact)
        self._model, nodes = exact, list(exact.graph)
        number = {name_of(node): index // _PART for index, node in enumerate(nodes)}
        beside = {name_of(node): node for node in low.graph}
        self._results: dict[int, list[tuple[str, str, str]]] = {}
        for node in nodes:
            value = first_float(node)
            if value is not None:
                name = name_of(node)
                result = together.get(name, name_of(value))
                seen = _seen(beside.get(name), number) or result
                self._results.setdefault(number[name], []).append((name, result, seen))
        wanted = {name for listed in self._results.values() for one in listed for name in one[1:]}
        self._number = number
        self._exact, self._low = Watched(exact, number, engines), Watched(low, number, engines, wanted)
        there: dict[int, set[str]] = {part: set() for part in number.values()}
        for node in nodes:
            part = number[name_of(node)]
            values = (value for value in (*node.inputs, *node.outputs) if value is not None)
            there[part].update(name_of(value) for value in values if _is_there(value, part, number))
        self._alone = PerNodeErrors(low, number, there, engines)

    def run(
        self,
        original: Model,
        data: object,
        most: int | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Streamed:
        """Look at every node.

        Args:
            original: The model, for its inputs.
            data: See `dovetail_runtime.data.sources.read_data`.
            most: How many batches are looked at; None for all.
            progress: Told after every batch.

        Raises:
            DovetailError: The data does not fit, or one of both cannot be run.
        """
        found = Streamed()
        for found.batches, (feeds, _) in enumerate(islice(batches(original, data, self._model), most), start=1):
            beside = self._low.steps(feeds)
            reached, low = next(beside, (math.inf, {}))
            for part, exact in self._exact.steps(feeds):
                while reached < part:
                    reached, low = next(beside, (math.inf, {}))
                for name, result, seen in self._results.get(part, ()) if reached == part else ():
                    given = low.get(seen, low.get(result))
                    if result in exact and given is not None:
                        _errors(found, name).accumulated.add(exact[result], given)
                for alone in self._alone.run(part, exact):
                    errors = _errors(found, alone.node)
                    errors.moves = alone.moves and (errors.moves or not errors.own.elements)
                    errors.own.add(exact[alone.value], alone.array)
                for name, array in exact.items():
                    if hasattr(array, "shape"):
                        found.shapes.setdefault(name, array.shape)
            if progress:
                progress("layers", found.batches, 0)
        return found

    def alone(self, feeds: Mapping[str, np.ndarray], names: frozenset[str]) -> Iterator[tuple[NodeResult, np.ndarray]]:
        """What the low nodes of these names compute of exact inputs, each with its exact result."""
        parts = {self._number[name] for name in names}
        for part, exact in self._exact.steps(feeds):
            for alone in self._alone.run(part, exact, names) if part in parts else ():
                yield alone, exact[alone.value]


def _errors(found: Streamed, name: str) -> NodeErrors:
    return found.errors.setdefault(name, NodeErrors())


def _is_there(value: ir.Value, part: int, number: Mapping[str, int]) -> bool:
    """Whether a value is shown when a part has run: every float is, and of others those from outside of it."""
    producer = value.producer()
    return producer is None or bool(float_name(value)) or number.get(name_of(producer), part) != part


def _seen(node: ir.Node | None, number: Mapping[str, int]) -> str:
    """The name of the value in which the readers of a node's first float result see it; empty if it is that itself."""
    value = first_float(node) if node is not None and is_quantized(node) else None
    chain = seen_by_readers(value, number) if value is not None else ()
    return name_of(chain[-1].outputs[0]) if chain else ""
