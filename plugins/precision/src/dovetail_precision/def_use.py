"""Def-use chains over nested graphs: where a value is defined and read, in which scope, and how often it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir import FLOAT32, graph_of, input_of

from dovetail_precision.choices import uniform
from dovetail_precision.constraints import candidates, follows_readers, reads_any_type

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import FlatGraph, Format

    from dovetail_precision.choices import SharedFormat
    from dovetail_precision.conversions import Conversion
    from dovetail_precision.problem import FormatVariable, TypingProblem, Value


@dataclass(slots=True, eq=False)
class DefUseChain:
    """The definition and the uses of one float value.

    Attributes:
        value: The value.
        producer: The variable that decides its format; None if it keeps the format of the source model.
        produced_at: The port of the producer.
        readers: Variables that read it, one entry per use. The readers of a recurrent input also count as readers of
            the output that feeds it.
        read_at: The port of each reader.
        cast_readers: Inputs of Casts, which accept any type.
        follows: The low format that it takes if all readers want it; otherwise it keeps the present one. Set for values
            with a type attribute, and for model inputs that need not keep their types.
    """

    value: Value
    producer: FormatVariable | None
    produced_at: str
    readers: list[FormatVariable] = field(default_factory=list)
    read_at: list[str] = field(default_factory=list)
    cast_readers: list[FormatVariable] = field(default_factory=list)
    follows: Format | None = None

    @property
    def present(self) -> Format:
        """Its format in the source model."""
        return self.value.present

    @property
    def constant(self) -> bool:
        """Whether it is a weight."""
        return self.value.constant

    @property
    def kept(self) -> bool:
        """Whether it is also read in its present format."""
        return self.value.kept

    @property
    def uses(self) -> Iterator[tuple[FormatVariable, str]]:
        """Yield each reader with its port, except for Casts."""
        return zip(self.readers, self.read_at, strict=True)

    @property
    def held(self) -> Format | SharedFormat:
        """The format it is computed in. Valid once the producer, or the readers of a value that follows, are typed."""
        if self.producer is not None:
            return self.producer.held_at(self.produced_at)
        follows = self.follows
        return follows if follows is not None and self.wanted == {follows} else self.present

    @property
    def wanted(self) -> set[Format | SharedFormat]:
        """The formats it is read in. Valid once the readers are typed."""
        formats = {variable.held_at(port) for variable, port in self.uses}
        formats.update(variable.format for variable in self.cast_readers)
        return formats | {self.present} if self.kept else formats

    def adopt_type_of_readers(self) -> None:
        """Type a producer that follows its readers, which must be typed already."""
        producer = self.producer
        if self.follows is None or producer is None:
            return
        low = self.wanted == {producer.low}
        producer.chosen = uniform(producer.low if low else producer.present)
        if low:
            producer.policy, producer.why = "follow-consumer", f"{producer.low}, as all of its readers do"

    def type_cast_readers(self) -> None:
        """Type the inputs of Casts like the value itself, where they allow it; the producer must be typed already."""
        for variable in self.cast_readers:
            variable.chosen = uniform(self.held if self.held in variable.choices.floats else variable.present)


def def_use_chains(problem: TypingProblem) -> list[DefUseChain]:
    """Return the chains of all values that a variable reads or computes, in graph order."""
    found: dict[int, DefUseChain] = {}

    def chain(value: Value) -> DefUseChain:
        known = found.get(id(value))
        if known is None:
            known = found[id(value)] = DefUseChain(value, problem.defined_by(value), problem.port_of(value))
        return known

    for variable in problem.variables:
        any_type = variable.takes_any and reads_any_type(problem, variable)
        for port, value in variable.inputs:
            known = chain(value)
            # A Cast does not read integers that express floats, because it does not know their scale.
            if any_type and not (known.producer is not None and known.producer.choices.quantized):
                known.cast_readers.append(variable)
            else:
                known.readers.append(variable)
                known.read_at.append(port)
        for _, value in variable.outputs:
            chain(value)
    chains = list(found.values())
    for known in chains:
        if known.value.free:
            known.follows = _low_of_readers(problem, known)
    for known in chains:
        fed = found.get(id(known.value.input_of_state))
        if fed is not None and fed.follows and len({id(one) for one in fed.readers}) == 1:
            known.readers.append(fed.readers[0])
            known.read_at.append(fed.read_at[0])
    for known in chains:
        producer = known.producer
        if producer is not None and follows_readers(producer) and not problem.obstacle(producer, producer.low):
            known.follows = _low_of_readers(problem, known)
    return chains


def _low_of_readers(problem: TypingProblem, chain: DefUseChain) -> Format | None:
    """Return the low format that all readers of `chain` allow; None if there is none or their low formats differ."""
    if chain.kept or chain.cast_readers or not chain.readers or chain.present is not FLOAT32:
        return None
    low = chain.readers[0].low
    formats = {choice.format_of(port) for reader, port in chain.uses for choice in candidates(problem, reader)}
    return low if low in formats and low is not chain.present and formats <= {low, chain.present} else None


_REPEATS = frozenset({"Loop", "Scan", "SequenceMap"})


class Scopes:
    """The nesting of a model's graphs."""

    def __init__(self, flat: FlatGraph):
        self._holders = flat.holders
        self._of_inputs: dict[int, ir.Graph] = {}
        for graph in flat.graphs:
            for value in (*graph.inputs, *graph.initializers.values()):
                self._of_inputs[id(value)] = graph

    def graph_of(self, value: ir.Value) -> ir.Graph:
        """Return the graph that defines `value`."""
        producer = value.producer()
        return graph_of(producer) if producer is not None else self._of_inputs[id(value)]

    def place_for(self, conversion: Conversion) -> ir.Graph:
        """Return the innermost graph that contains all readers, hoisted out of loops.

        A conversion that only one branch of an If reads stays in that branch, so that it runs only when needed.
        """
        home = self.graph_of(conversion.value)
        readers = [graph_of(node) for node, _ in conversion.uses] + [graph for graph, _ in conversion.outputs]
        chains = [self._chain(graph, home) for graph in readers]
        common = chains[0]
        for chain in chains[1:]:
            shared = [ours for ours, theirs in zip(common, chain, strict=False) if ours is theirs]
            common = common[: len(shared)]
        for depth, graph in enumerate(common[1:], start=1):
            if self._holders[id(graph)].op_type in _REPEATS:
                return common[depth - 1]
        return common[-1]

    def _chain(self, graph: ir.Graph, home: ir.Graph) -> list[ir.Graph]:
        """Return the graphs from `home` inwards to `graph`."""
        chain = [graph]
        while chain[-1] is not home:
            chain.append(graph_of(self._holders[id(chain[-1])]))
        return chain[::-1]


_UNKNOWN = 64  # like an unknown extent
_MOST = 4096  # loops that end by their condition often have INT64_MAX as their trip count


def trip_counts(flat: FlatGraph) -> dict[int, int]:
    """Return how often each body runs, by the `id` of its graph; bodies that run at most once are left out."""
    found: dict[int, int] = {}
    for graph in flat.graphs:
        holder = flat.holders.get(id(graph))
        if holder is None:
            continue
        times = min(_trip_count(holder) * found.get(id(holder.graph), 1), _MOST)
        if times > 1:
            found[id(graph)] = times
    return found


def _trip_count(holder: ir.Node) -> int:
    if holder.op_type == "Loop":
        count = holder.inputs[0]
        given = count.const_value if count is not None and not count.is_graph_input() else None
        times = int(given.numpy().item()) if given is not None else _UNKNOWN
        return max(1, times) if times <= _MOST else _UNKNOWN
    if holder.op_type == "Scan":
        scanned = holder.attributes.get_int("num_scan_inputs", 0)
        axes = holder.attributes.get("scan_input_axes")
        shape = input_of(holder, -scanned).shape if scanned else None
        extent = shape[axes.as_ints()[0] if axes is not None else 0] if shape else _UNKNOWN
        return max(1, extent) if isinstance(extent, int) else _UNKNOWN
    return _UNKNOWN if holder.op_type == "SequenceMap" else 1
