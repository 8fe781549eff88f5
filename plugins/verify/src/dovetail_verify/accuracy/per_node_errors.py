"""Outputs of every low node of a result, run alone on exact inputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import FreshNames, bodies, dtype_of, float_name, name_of
from dovetail.planning import given_regions

from dovetail_verify.accuracy.watched import OPTIONS, first_float, float_of, is_quantized, seen_by_readers

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail_runtime.engines import GuardedEngine
    from dovetail_runtime.executor import RegionExecutor


_DEEPEST = 32  # largest number of conversions before a node, and between its integer result and a float
_LOADED = 64  # parts whose sessions are kept between batches


class NodeResult(NamedTuple):
    """Output of one node run alone on exact inputs.

    Attributes:
        node: Its name.
        value: Name of its first float result.
        array: Its output, rounded as its readers see it.
        moves: Whether its result is the exact result rounded once, so that it adds no error beyond rounding. False if
            another node of its part could not be isolated.
    """

    node: str
    value: str
    array: np.ndarray
    moves: bool


class PerNodeErrors:
    """Isolated low nodes of a model, each with separate inputs.

    A node is isolated together with the conversions before it and those that round its result. A part of the graph
    becomes a model on its first run.

    Args:
        model: The result; it is not changed.
        number: The part of each planned node; other nodes are conversions.
        there: Names of the exact values that are available after each part. A node that needs others is skipped.
        engines: The host's engines.
    """

    def __init__(
        self,
        model: Model,
        number: Mapping[str, int],
        there: Mapping[int, Collection[str]],
        engines: Mapping[str, Sequence[GuardedEngine]],
    ):
        self._model, self._number, self._there, self._engines = model, number, there, engines
        self._names = FreshNames.of(model.graph)
        self._nodes: dict[int, list[ir.Node]] = {}
        for node in model.graph:
            part = number.get(name_of(node))
            if part is not None and _is_low(node):
                self._nodes.setdefault(part, []).append(node)
        self._loaded: dict[int, _Part] = {}

    def run(
        self, part: int, exact: Mapping[str, np.ndarray], names: Collection[str] | None = None
    ) -> Iterator[NodeResult]:
        """Compute the outputs of low nodes of a part on exact values; `names` selects nodes, None selects all.

        Raises:
            DovetailError: No engine of the host runs them.
        """
        if part not in self._nodes:
            return
        loaded = self._loaded.get(part)
        if loaded is None:
            loaded = _Part(self._model, self._nodes[part], self._number, self._there[part], self._engines, self._names)
            if len(self._nodes) <= _LOADED:
                self._loaded[part] = loaded
        yield from loaded.run(exact, names)


class _Cut(NamedTuple):
    """An isolated node: names of its result, and of the exact result after the same conversions, if any."""

    node: str
    value: str
    result: str
    rounded: str


class _MissingError(Exception):
    """Raised if a node needs a value that is not available in isolation."""


class _Part:
    """The isolated nodes of one part, as a model."""

    def __init__(
        self,
        model: Model,
        nodes: Sequence[ir.Node],
        number: Mapping[str, int],
        there: Collection[str],
        engines: Mapping[str, Sequence[GuardedEngine]],
        names: FreshNames,
    ):
        self._number, self._there, self._names = number, there, names
        self._fed: dict[str, tuple[str, np.dtype]] = {}
        self._inputs: list[ir.Value] = []
        self._made: list[ir.Node] = []
        self._cuts: list[_Cut] = []
        outputs: list[ir.Value] = []
        for node in nodes:
            outputs += self._isolate(node)
        # If nodes are missing, a node taken for pure movement could tie units together that a search must separate.
        self._is_whole = len(self._cuts) == len(nodes)
        self._executor = _executor(model, self._inputs, outputs, self._made, engines) if outputs else None
        for node in self._made:  # leave no uses of the result's weights
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
        self._made.clear()

    def run(self, exact: Mapping[str, np.ndarray], names: Collection[str] | None) -> Iterator[NodeResult]:
        import numpy as np

        if self._executor is None or names is not None and not any(cut.node in names for cut in self._cuts):
            return
        with np.errstate(over="ignore"):
            fed = {name: np.asarray(exact[at]).astype(dtype, copy=False) for name, (at, dtype) in self._fed.items()}
        results = self._executor.run(fed)
        for cut in self._cuts:
            if names is None or cut.node in names:
                array = results[cut.result]
                once = results[cut.rounded] if cut.rounded else exact[cut.value]
                moves = self._is_whole and _is_rounded(once, array, bool(cut.rounded))
                yield NodeResult(cut.node, cut.value, array, moves)

    def _isolate(self, node: ir.Node) -> list[ir.Value]:
        """Copy a node with its conversions; return the values to observe: its result, and the rounded exact result."""
        value = float_of(node)
        name = name_of(value)
        known: dict[int, ir.Value] = {}
        begun, fed = len(self._made), len(self._inputs)
        try:
            if name not in self._there:
                raise _MissingError
            copy = self._copy(node, [self._own(given, known, 0) for given in node.inputs])
        except _MissingError:
            # Drop copies without readers.
            for input_ in self._inputs[fed:]:
                del self._fed[name_of(input_)]
            del self._made[begun:], self._inputs[fed:]
            return []
        result = copy.outputs[list(node.outputs).index(value)]
        behind = seen_by_readers(value, self._number) if is_quantized(node) else []
        if not behind:
            self._cuts.append(_Cut(name_of(node), name, name_of(result), ""))
            return [result]
        found = []
        for given in (result, self._fresh(value)):
            for conversion in behind:
                given = self._copy(conversion, [given, *conversion.inputs[1:]]).outputs[0]
            found.append(given)
        self._cuts.append(_Cut(name_of(node), name, *map(name_of, found)))
        return found

    def _own(self, value: ir.Value | None, known: dict[int, ir.Value], depth: int) -> ir.Value | None:
        """Return the replacement of `value` as an operand of one node: an input, after copies of its conversions."""
        if value is None or value.is_initializer():
            return value
        if id(value) not in known:
            producer = value.producer()
            if producer is not None and producer.name not in self._number:
                if depth == _DEEPEST or len(producer.outputs) > 1 or bodies(producer):
                    raise _MissingError
                inputs = [self._own(given, known, depth + 1) for given in producer.inputs]
                known[id(value)] = self._copy(producer, inputs).outputs[0]
            else:
                known[id(value)] = self._fresh(value)
        return known[id(value)]

    def _copy(self, node: ir.Node, inputs: Sequence[ir.Value | None]) -> ir.Node:
        import onnx_ir as ir

        outputs = [
            ir.Value(name=self._names.fresh(old.name) if old.name else "", type=old.type, shape=old.shape)
            for old in node.outputs
        ]
        attributes = list(node.attributes.values())
        name = self._names.fresh(node.name or node.op_type)
        copy = ir.Node(node.domain, node.op_type, inputs, attributes, outputs=outputs, name=name)
        self._made.append(copy)
        return copy

    def _fresh(self, value: ir.Value) -> ir.Value:
        """Create an input of the type of `value` that is fed with the exact model's value.

        Raises:
            _MissingError: That value is not available after the part.
        """
        import onnx_ir as ir

        if value.name not in self._there:
            raise _MissingError
        name = self._names.fresh(f"{value.name}/exact")
        self._fed[name] = name_of(value), dtype_of(value).numpy()
        self._inputs.append(ir.Value(name=name, type=value.type, shape=None))
        return self._inputs[-1]


def _executor(
    model: Model,
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    nodes: Sequence[ir.Node],
    engines: Mapping[str, Sequence[GuardedEngine]],
) -> RegionExecutor:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail_runtime.executor import RegionExecutor

    weights = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    view = ir.GraphView(
        inputs,
        outputs,
        nodes=nodes,
        initializers=tuple(value for value in weights if value.is_initializer()),
        opset_imports=model.graph.opset_imports,
        name="isolated",
    )
    part = Model(ir.Model(view.clone(), ir_version=model.ir.ir_version), dialect=model.dialect)
    return RegionExecutor(part, engines, OPTIONS, regions=given_regions(part.graph, [list(part.graph)]))


def _is_low(node: ir.Node) -> bool:
    """Check whether a node computes in a low precision and can be isolated."""
    if bodies(node) or first_float(node) is None or not all(map(_is_tensor, node.inputs)):
        return False
    kinds = {float_name(value) for value in (*node.inputs, *node.outputs) if value is not None}
    return bool(kinds & {"bfloat16", "float16"}) or is_quantized(node)


def _is_tensor(value: ir.Value | None) -> bool:
    import onnx_ir as ir

    return value is None or value.is_initializer() or isinstance(value.type, ir.TensorType)


def _is_rounded(exact: np.ndarray, given: np.ndarray, is_rounded: bool) -> bool:
    """Check whether an array is the exact one rounded once; `is_rounded` means that `exact` is rounded already."""
    import numpy as np

    if not is_rounded and given.dtype.itemsize > 2 or given.shape != exact.shape:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool((exact.astype(given.dtype, copy=False) == given).all())


_CHUNK = 1 << 13  # numbers whose sums are taken at once: they stay in cache, and no threads have to wait for each other


@dataclass(slots=True)
class ErrorSums:
    """Running error sums over pairs of an exact and a given array.

    Attributes:
        signal: Sum of squares of the exact numbers.
        noise: Sum of squares of the differences. A nonfinite number that differs counts as much as the whole signal.
        energy: Sum of squares of the given numbers.
        elements: Count of numbers.
    """

    signal: float = 0.0
    noise: float = 0.0
    energy: float = 0.0
    elements: int = 0

    def add(self, exact: np.ndarray, given: np.ndarray) -> None:
        """Add a pair of arrays, whose types may differ; pairs with different shapes are skipped."""
        import numpy as np

        a, b = np.asarray(exact), np.asarray(given)
        if a.shape != b.shape:
            return
        a, b = a.reshape(-1), b.reshape(-1)
        signal, lost = 0.0, 0
        for begin in range(0, a.size, _CHUNK):
            x, y = (each[begin : begin + _CHUNK].astype(np.float64) for each in (a, b))
            own, energy = float(x @ x), float(y @ y)
            if not math.isfinite(own + energy):
                both = np.isfinite(x) & np.isfinite(y)
                same = (x == y) | (np.isnan(x) & np.isnan(y))
                lost += int((~both & ~same).sum())
                x, y = x[both], y[both]
                own, energy = float(x @ x), float(y @ y)
            y -= x
            signal += own
            self.energy += energy
            self.noise += float(y @ y)
        self.signal += signal
        self.noise += lost * max(signal, 1.0)
        self.elements += a.size

    def __add__(self, other: ErrorSums) -> ErrorSums:
        """Return the sums over the pairs of both."""
        return ErrorSums(
            self.signal + other.signal, self.noise + other.noise, self.energy + other.energy,
            self.elements + other.elements,
        )  # fmt: skip

    @property
    def share(self) -> float:
        """Noise over signal; 1 for any noise if the exact numbers are all zero."""
        return self.noise / self.signal if self.signal else float(self.noise > 0)

    @property
    def snr_db(self) -> float:
        """Signal over noise in decibels; infinite without noise."""
        return math.inf if not self.share else -10 * math.log10(self.share)

    @property
    def cosine(self) -> float:
        """Cosine similarity; 1 if both are zero, 0 if one of them is."""
        if not self.signal or not self.energy:
            return float(self.signal == self.energy)
        # The dot product follows from the three sums.
        product = (self.signal + self.energy - self.noise) / 2
        return max(min(product / math.sqrt(self.signal * self.energy), 1.0), -1.0)

    @property
    def mse(self) -> float:
        """Mean squared error."""
        return self.noise / self.elements if self.elements else 0.0
