"""Flows: between which variables every float value goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir.types import float_name

from dovetail_precision.rules import choices, follows
from dovetail_precision.type_attributes import carries_type

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable

__all__ = ["Flow", "find_flows"]


@dataclass(slots=True, eq=False)
class Flow:
    """The way of one float value.

    Attributes:
        value: The value.
        present: Its type in the source model.
        producer: The variable that decides its type; without one it has the type of the source model.
        constant: It is a weight, of which there is one version per type that it is read in.
        readers: Variables that read it, one entry per reading.
        followers: Inputs of Casts that read it in the type that it has.
        kept: It is also read in the type of the source model: by control flow, or as the output of a graph.
        carried: Its type stands in an attribute. It is low if all of its readers read it so, else as it was.
    """

    value: ir.Value
    present: str
    producer: Variable | None
    constant: bool
    readers: list[Variable] = field(default_factory=list)
    followers: list[Variable] = field(default_factory=list)
    kept: bool = False
    carried: bool = False

    @property
    def held(self) -> str:
        """The type it is computed in, once its producer has one."""
        return self.producer.chosen if self.producer else self.present

    @property
    def wanted(self) -> set[str]:
        """The types it is read in, once its readers have one."""
        types = {variable.chosen for variable in (*self.readers, *self.followers)}
        return types | {self.present} if self.kept else types

    def follow(self) -> None:
        """Let a value that carries its type have that of its readers, which they have by now."""
        if not self.carried:
            return
        producer = self.producer
        producer.chosen = producer.low if self.wanted == {producer.low} else producer.present
        if producer.chosen == producer.low:
            producer.policy, producer.why = "follow-consumer", f"{producer.low}, as all of its readers want it"

    def lead(self) -> None:
        """Let the followers have the type of the value, which its producer has by now, or the next that they take."""
        for variable in self.followers:
            variable.chosen = self.held if self.held in variable.allowed else variable.present


def find_flows(problem: TypingProblem) -> list[Flow]:
    """The flows of all float values that a variable reads or computes, in graph order."""
    found: dict[int, Flow] = {}

    def flow(value: ir.Value) -> Flow:
        known = found.get(id(value))
        if known is None:
            producer, constant = problem.defined_by(value), problem.is_constant(value)
            known = found[id(value)] = Flow(value, float_name(value), producer, constant)
        return known

    for variable in problem.variables:
        for _, value in variable.inputs:
            known = flow(value)
            (known.followers if follows(problem, variable) else known.readers).append(variable)
        for _, value in variable.outputs:
            flow(value)
    for value in _kept(problem):
        if id(value) in found:
            found[id(value)].kept = True
    for known in found.values():
        known.carried = _is_carried(problem, known)
    return list(found.values())


def _is_carried(problem: TypingProblem, flow: Flow) -> bool:
    producer = flow.producer
    if producer is None or producer.inputs or flow.kept or flow.followers or not flow.readers:
        return False
    # With two low types among the readers it stays as it is.
    types = {kind for reader in flow.readers for kind in choices(problem, reader)}
    return carries_type(producer) and types <= {producer.low, producer.present}


def _kept(problem: TypingProblem) -> list[ir.Value]:
    typed = {id(variable.node) for variable in problem.variables}
    kept = [value for node in problem.model.nodes() if id(node) not in typed for value in node.inputs]
    for _, graph in problem.model.graphs():
        free = graph is problem.model.graph and not problem.keeps_io_types
        for index, value in enumerate(graph.outputs):
            if (id(graph), index) not in problem.tied and (not free or problem.is_constant(value)):
                kept.append(value)
    return kept
