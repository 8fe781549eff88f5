"""Flows: between which variables every float value goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir.types import float_name

from dovetail_precision.rules import follows

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
    """

    value: ir.Value
    present: str
    producer: Variable | None
    constant: bool
    readers: list[Variable] = field(default_factory=list)
    followers: list[Variable] = field(default_factory=list)
    kept: bool = False

    @property
    def held(self) -> str:
        """The type it is computed in, once its producer has one."""
        return self.producer.chosen if self.producer else self.present

    @property
    def wanted(self) -> set[str]:
        """The types it is read in, once its readers have one."""
        types = {variable.chosen for variable in (*self.readers, *self.followers)}
        return types | {self.present} if self.kept else types

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
    return list(found.values())


def _kept(problem: TypingProblem) -> list[ir.Value]:
    typed = {id(variable.node) for variable in problem.variables}
    kept = [value for node in problem.model.nodes() if id(node) not in typed for value in node.inputs]
    for _, graph in problem.model.graphs():
        free = graph is problem.model.graph and not problem.keeps_io_types
        for index, value in enumerate(graph.outputs):
            if (id(graph), index) not in problem.tied and (not free or problem.is_constant(value)):
                kept.append(value)
    return kept
