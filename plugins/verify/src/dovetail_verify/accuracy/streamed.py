"""Lockstep run of original and result that measures every node once.

Only a few numbers per node are kept: the values of one part of the graph are in memory together, and are freed after
the next part has run. The host runs everything in the types of the result, so that no fusion of an engine hides a
value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import float_name, name_of
from dovetail_runtime.data.batches import as_given, batches

from dovetail_verify.accuracy.integer_results import with_floats
from dovetail_verify.accuracy.per_node_errors import ErrorSums, NodeResult, PerNodeErrors
from dovetail_verify.accuracy.watched import Watched, first_float, is_quantized, seen_by_readers

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail_runtime.engines import GuardedEngine


_PART = 32  # nodes whose values are in memory together


@dataclass(slots=True)
class NodeErrors:
    """Errors of one node, measured on its first float result as its readers see it.

    Attributes:
        own: The error of its low arithmetic on exact inputs; empty for nodes that are not low.
        accumulated: The error accumulated up to and including it.
        moves: Whether its result is the exact result rounded once, so that it adds no error beyond rounding.
    """

    own: ErrorSums = field(default_factory=ErrorSums)
    accumulated: ErrorSums = field(default_factory=ErrorSums)
    moves: bool = False


@dataclass
class Streamed:
    """Measurements of a streamed run.

    Attributes:
        errors: Errors by node name.
        shapes: The shape of every value of the original, by name, in the first batch.
        batches: Number of batches measured.
        failure: Why nothing was measured: the model is too large, or no engine of the host accepts a part; else empty.
    """

    errors: dict[str, NodeErrors] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    batches: int = 0
    failure: str = ""


def stream(
    original: Model, exact: Model, low: Model, engines: Mapping[str, Sequence[GuardedEngine]], data: object
) -> Streamed:
    """Measure every node on one batch, unless the model is large.

    Args:
        original: The model, for its inputs.
        exact: The model with everything high; its nodes have the same names as in `low`.
        low: The compiled model.
        engines: The host's engines.
        data: See `dovetail_runtime.data.sources.read_data`.
    """
    from dovetail_runtime.loading import too_large

    # Three sets of sessions hold the weights at the same time.
    if why := too_large(exact):
        return Streamed(failure=why)
    try:
        _, exact, low = as_given(original, data, exact, low)
        return SideBySide(exact, low, engines).run(original, data, 1)
    except DovetailError as error:
        return Streamed(failure=error.message)


class SideBySide:
    """The exact model and a result, prepared to run in lockstep part by part.

    Args:
        exact: The model with everything high; its nodes have the same names as in `low`.
        low: The compiled model.
        engines: The host's engines.

    Raises:
        DovetailError: No engine of the host accepts a part.
    """

    def __init__(self, exact: Model, low: Model, engines: Mapping[str, Sequence[GuardedEngine]]):
        low, together = with_floats(low, exact)
        self._model, nodes = exact, list(exact.graph)
        number = {name_of(node): index // _PART for index, node in enumerate(nodes)}
        by_name = {name_of(node): node for node in low.graph}
        self._results: dict[int, list[tuple[str, str, str]]] = {}
        for node in nodes:
            value = first_float(node)
            if value is not None:
                name = name_of(node)
                result = together.get(name, name_of(value))
                seen = _seen(by_name.get(name), number) or result
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
        """Measure every node.

        Args:
            original: The model, for its inputs.
            data: See `dovetail_runtime.data.sources.read_data`.
            most: Maximum number of batches; None for all.
            progress: Called after every batch.

        Raises:
            DovetailError: The data does not match, or one of the models cannot be run.
        """
        found = Streamed()
        for found.batches, (feeds, _) in enumerate(islice(batches(original, data, self._model), most), start=1):
            low_steps = self._low.steps(feeds)
            reached, low = next(low_steps, (math.inf, {}))
            for part, exact in self._exact.steps(feeds):
                while reached < part:
                    reached, low = next(low_steps, (math.inf, {}))
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
        """Yield the outputs of the named low nodes on exact inputs, each with its exact result."""
        parts = {self._number[name] for name in names}
        for part, exact in self._exact.steps(feeds):
            for alone in self._alone.run(part, exact, names) if part in parts else ():
                yield alone, exact[alone.value]


def _errors(found: Streamed, name: str) -> NodeErrors:
    return found.errors.setdefault(name, NodeErrors())


def _is_there(value: ir.Value, part: int, number: Mapping[str, int]) -> bool:
    """Check whether a value is available after a part: all floats, and other values from outside of the part."""
    producer = value.producer()
    return producer is None or bool(float_name(value)) or number.get(name_of(producer), part) != part


def _seen(node: ir.Node | None, number: Mapping[str, int]) -> str:
    """Return the name of the value that readers of a node's first float result see; empty if it is that result."""
    value = first_float(node) if node is not None and is_quantized(node) else None
    chain = seen_by_readers(value, number) if value is not None else ()
    return name_of(chain[-1].outputs[0]) if chain else ""
