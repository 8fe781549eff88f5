"""The typing problem as plain data: variables with choices, and the values between them.

A problem is built from a placed model by `dovetail_precision.problem_builder`, or by hand; solvers see nothing else.
Ports that must be equal, such as the ends of a loop-carried value, belong to one variable. Weights and conversions are
shared: a value is converted once per format, and a weight is stored once per format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail_precision.costs import CostModel, UnitJoins

if TYPE_CHECKING:
    from dovetail.ir.formats import Format

    from dovetail_precision.variable import Value, Variable


class Reasons:
    """Reasons against float formats, looked up on demand; by default there are none."""

    def of_values(self, variable: Variable, format_: Format) -> str:
        """Return which value of `variable` leaves the range of `format_`, in one clause; empty if none does."""
        return ""

    def of_conditioning(self, variable: Variable, format_: Format) -> str:
        """Return why `variable` is ill-conditioned in `format_`; empty if it is not, or the user asked for it."""
        return ""

    def warning(self, variable: Variable, format_: Format) -> str:
        """Return why `variable` is ill-conditioned in `format_`, even if the user asked for it."""
        return ""


class Results(NamedTuple):
    """What becomes of the results of a node, floats or not.

    Attributes:
        readers: The nodes with variables that read them.
        given: Whether one of them is an output of the model.
        leaves_body: Whether a body returns one of them.
    """

    readers: Sequence[Any]
    given: bool
    leaves_body: bool


@dataclass(eq=False)
class TypingProblem:
    """What a solver has to decide: a choice for every variable.

    Attributes:
        variables: In graph order; variables of bodies follow those of their control-flow node.
        keeps_io_types: Whether the model's inputs and outputs keep their types.
        reasons: Reasons against float formats.
        results_of: What becomes of the results of a node; None: the variables and `kept` of values say it all.
        cost_model: Makes the prices of choices, conversions and versions of weights.
        impossible: Nodes without a legal choice where they are, with the reasons; they must be placed elsewhere.
        overridden: The nodes that `--low` and `--high` select, with the override, in graph order.
    """

    variables: list[Variable] = field(default_factory=list)
    keeps_io_types: bool = True
    reasons: Reasons = field(default_factory=Reasons)
    results_of: Callable[[Any], Results] | None = None
    cost_model: Callable[[], CostModel] = UnitJoins
    impossible: list[tuple[Any, str]] = field(default_factory=list)
    overridden: list[tuple[Any, Any]] = field(default_factory=list)

    @cached_property
    def _producers(self) -> dict[int, tuple[Variable, str]]:
        return {id(value): (variable, port) for variable in self.variables for port, value in variable.outputs}

    def defined_by(self, value: Value) -> Variable | None:
        """Return the variable that decides the format of `value`; None for inputs and constants."""
        found = self._producers.get(id(value))
        return found and found[0]

    def port_of(self, value: Value) -> str:
        """Return the port that computes `value`; empty for inputs and constants."""
        found = self._producers.get(id(value))
        return found[1] if found else ""

    @cached_property
    def costs(self) -> CostModel:
        """The prices of choices, conversions and versions of weights."""
        return self.cost_model()

    def obstacle(self, variable: Variable, format_: Format) -> str:
        """Return the reason against float format `format_` for `variable`: range or conditioning; empty if none."""
        return self.reasons.of_values(variable, format_) or self.reasons.of_conditioning(variable, format_)

    def ill_conditioned(self, variable: Variable, format_: Format) -> bool:
        """Whether conditioning is the only reason against float format `format_` for `variable`."""
        found = self.reasons
        return not found.of_values(variable, format_) and bool(found.of_conditioning(variable, format_))

    def results(self, node: Any) -> Results:
        """Return what becomes of the results of a node."""
        return self.results_of(node) if self.results_of is not None else self._results[id(node)]

    @cached_property
    def _results(self) -> dict[int, Results]:
        """What becomes of the results, as far as the variables tell; values that are kept are given."""
        read: dict[int, list[Variable]] = {}
        for variable in self.variables:
            for _, value in variable.inputs:
                read.setdefault(id(value), []).append(variable)
        found: dict[int, tuple[list[Any], bool]] = {}
        for variable in self.variables:
            readers, given = found.get(id(variable.node), ([], False))
            for _, value in variable.outputs:
                readers = readers + [reader.node for reader in read.get(id(value), ())]
                given |= value.kept
            found[id(variable.node)] = readers, given
        return {key: Results(readers, given, False) for key, (readers, given) in found.items()}
