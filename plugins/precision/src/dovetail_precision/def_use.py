"""Def-use chains of float values: the variable that defines a value and the variables that read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir.formats import FLOAT32, float_format

from dovetail_precision.constraints import choices, reads_any_type
from dovetail_precision.recurrent_io import find_recurrent_io
from dovetail_precision.type_attributes import has_type_attribute

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.formats import Format

    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable

__all__ = ["DefUseChain", "def_use_chains"]


@dataclass(slots=True, eq=False)
class DefUseChain:
    """The definition and the uses of one float value.

    Attributes:
        value: The value.
        present: Its type in the source model.
        producer: The variable that decides its type; None if it keeps the type of the source model.
        constant: It is a weight: one version is stored per type that it is read in.
        readers: Variables that read it, one entry per use. The readers of a recurrent input also count as readers of
            the output that feeds it.
        cast_readers: Inputs of Casts, which accept any type.
        kept: It is also read in the type of the source model: by control flow, or as the output of a graph.
        follows: The low type that it takes if all readers want it; otherwise it keeps `present`. Set for values whose
            type stands in an attribute, and for model inputs that need not keep their types.
    """

    value: ir.Value
    present: Format
    producer: Variable | None
    constant: bool
    readers: list[Variable] = field(default_factory=list)
    cast_readers: list[Variable] = field(default_factory=list)
    kept: bool = False
    follows: Format | None = None

    @property
    def held(self) -> Format:
        """The type it is computed in. Valid once the producer is typed, or the readers of a value that follows them."""
        if self.producer:
            return self.producer.chosen
        return self.follows if self.wanted == {self.follows} else self.present

    @property
    def wanted(self) -> set[Format]:
        """The types it is read in. Valid once the readers are typed."""
        types = {variable.chosen for variable in (*self.readers, *self.cast_readers)}
        return types | {self.present} if self.kept else types

    def adopt_type_of_readers(self) -> None:
        """Type a producer that follows its readers, which must be typed already."""
        producer = self.producer
        if self.follows is None or producer is None:
            return
        producer.chosen = producer.low if self.wanted == {producer.low} else producer.present
        if producer.chosen == producer.low:
            producer.policy, producer.why = "follow-consumer", f"{producer.low}, as all of its readers do"

    def type_cast_readers(self) -> None:
        """Type the inputs of Casts like the value itself, where they allow it; the producer must be typed already."""
        for variable in self.cast_readers:
            variable.chosen = self.held if self.held in variable.allowed else variable.present


def def_use_chains(problem: TypingProblem) -> list[DefUseChain]:
    """Return the chains of all float values that a variable reads or computes, in graph order."""
    found: dict[int, DefUseChain] = {}

    def chain(value: ir.Value) -> DefUseChain:
        known = found.get(id(value))
        if known is None:
            producer, constant = problem.defined_by(value), problem.is_constant(value)
            known = found[id(value)] = DefUseChain(value, float_format(value), producer, constant)
        return known

    for variable in problem.variables:
        for _, value in variable.inputs:
            known = chain(value)
            (known.cast_readers if reads_any_type(problem, variable) else known.readers).append(variable)
        for _, value in variable.outputs:
            chain(value)
    for value in _kept(problem):
        if id(value) in found:
            found[id(value)].kept = True
    if not problem.keeps_io_types:
        _free_inputs(problem, found)
    for known in found.values():
        producer = known.producer
        if producer is None or producer.inputs or not has_type_attribute(producer):
            continue
        if not problem.obstacle(producer, producer.low):
            known.follows = _low_of_readers(problem, known)
    return list(found.values())


def _free_inputs(problem: TypingProblem, found: dict[int, DefUseChain]) -> None:
    """Let model inputs follow their readers, and a recurrent output be read like its input."""
    for value in problem.model.graph.inputs:
        known = found.get(id(value))
        if known is not None and not value.is_initializer() and not value.is_graph_output():
            known.follows = _low_of_readers(problem, known)
    for value, output in find_recurrent_io(problem.model.graph):
        known, back = found.get(id(value)), found.get(id(output))
        if known is not None and back is not None and known.follows and len({id(one) for one in known.readers}) == 1:
            back.readers.append(known.readers[0])


def _low_of_readers(problem: TypingProblem, chain: DefUseChain) -> Format | None:
    """Return the low format that all readers of `chain` allow; None if there is none or their low types differ."""
    if chain.kept or chain.cast_readers or not chain.readers or chain.present is not FLOAT32:
        return None
    low = chain.readers[0].low
    types = {kind for reader in chain.readers for kind in choices(problem, reader)}
    return low if low in types and low != chain.present and types <= {low, chain.present} else None


def _kept(problem: TypingProblem) -> list[ir.Value]:
    typed = {id(variable.node) for variable in problem.variables}
    kept = [value for node in problem.model.nodes() if id(node) not in typed for value in node.inputs]
    for _, graph in problem.model.graphs():
        free = graph is problem.model.graph and not problem.keeps_io_types
        for index, value in enumerate(graph.outputs):
            if (id(graph), index) not in problem.equated_outputs and (not free or problem.is_constant(value)):
                kept.append(value)
    return kept
