"""The typing problem as plain data: variables with choices, and the values between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dovetail.ir import FLOAT32, Format

from dovetail_precision.costs import CostModel, UnitJoins

if TYPE_CHECKING:
    from dovetail_precision.choices import Choices, FormatChoice, SharedFormat


class FormatReasons:
    """Reasons against float formats, looked up on demand; by default there are none."""

    def of_values(self, variable: FormatVariable, format_: Format) -> str:
        """Return which value of `variable` leaves the range of `format_`, in one clause; empty if none does."""
        return ""

    def of_conditioning(self, variable: FormatVariable, format_: Format) -> str:
        """Return why `variable` is ill-conditioned in `format_`; empty if it is not, or the user asked for it."""
        return ""

    def warning(self, variable: FormatVariable, format_: Format) -> str:
        """Return why `variable` is ill-conditioned in `format_`, even if the user asked for it."""
        return ""


class Results(NamedTuple):
    """The uses of a node's results, of any type.

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
    """The input of a solver: choose a format for every variable.

    Attributes:
        variables: In graph order; variables of bodies follow those of their control-flow node.
        keeps_io_types: Whether the model's inputs and outputs keep their types.
        reasons: Reasons against float formats.
        results_of: Returns the uses of a node's results; if None, they follow from the variables and `kept` of values.
        cost_model: Creates the prices of choices, conversions and versions of weights.
        impossible: Nodes without a legal choice where they are, with rule and reason; they must be placed elsewhere.
        overridden: The nodes that `--low` and `--high` select, with the override, in graph order.
    """

    variables: list[FormatVariable] = field(default_factory=list)
    keeps_io_types: bool = True
    reasons: FormatReasons = field(default_factory=FormatReasons)
    results_of: Callable[[Any], Results] | None = None
    cost_model: Callable[[], CostModel] = UnitJoins
    impossible: list[tuple[Any, str, str]] = field(default_factory=list)
    overridden: list[tuple[Any, Any]] = field(default_factory=list)

    @cached_property
    def _producers(self) -> dict[int, tuple[FormatVariable, str]]:
        return {id(value): (variable, port) for variable in self.variables for port, value in variable.outputs}

    def defined_by(self, value: Value) -> FormatVariable | None:
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

    def obstacle(self, variable: FormatVariable, format_: Format) -> str:
        """Return the reason against float format `format_` for `variable`: range or conditioning; empty if none."""
        return self.reasons.of_values(variable, format_) or self.reasons.of_conditioning(variable, format_)

    def ill_conditioned(self, variable: FormatVariable, format_: Format) -> bool:
        """Check whether conditioning is the only reason against float format `format_` for `variable`."""
        found = self.reasons
        return not found.of_values(variable, format_) and bool(found.of_conditioning(variable, format_))

    def results(self, node: Any) -> Results:
        """Return the uses of a node's results."""
        return self.results_of(node) if self.results_of is not None else self._results[id(node)]

    @cached_property
    def _results(self) -> dict[int, Results]:
        """The uses of results, as far as the variables show; kept values count as outputs."""
        read: dict[int, list[FormatVariable]] = {}
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


@dataclass(slots=True, eq=False)
class Value:
    """A float value that variables compute or read.

    Attributes:
        name: Its name.
        present: Its format in the source model.
        constant: Whether it is a weight, which is stored once per format that it is read in.
        kept: Whether it is also read in its present format: by control flow, or as the output of a graph.
        adopted: The formats that the source model itself converts it to, or computes it from, free of cost.
        free: Whether it is an input of the model whose type may follow its readers.
        input_of_state: The model input that it feeds back to, if that input is free.
        source: The underlying value, for cost models; opaque to solvers.
    """

    name: str
    present: Format = FLOAT32
    constant: bool = False
    kept: bool = False
    adopted: frozenset[Format | SharedFormat] = frozenset()
    free: bool = False
    input_of_state: Value | None = None
    source: Any = None


@dataclass(slots=True, eq=False)
class FormatVariable:
    """The formats of some ports of one node: of a type parameter, or of ports that must be equal.

    Attributes:
        node: The node, for remarks and cost models; solvers only compare it.
        choices: The choices that schema, backend and user all allow; never empty.
        inputs: Port and value of each float input.
        outputs: Port and value of each float output.
        policy: The policy or role of the backend: `lower`, `fp32`, `promote`, `pass`, ..., `active`, `passive`, or ""
            (leave it). Also `pinned`, `keep` (the present type), and `angle` (see `trig_inputs.py`).
        present: The format in the source model.
        low, high: The low and the high precision of the backend; `present` if the backend has none.
        backend: Name of the backend.
        source: File and line of the rule.
        override: The option that set the policy, as the user wrote it: `--high type:Exp`.
        takes_any: Whether it is an input that accepts any type: of a Cast, or of a node that only reads its shape.
        type_attribute: Whether an attribute of the node, or a constant scale, decides the type of its outputs, and can
            hold the low one.
        select: Its part in selects of constants: it picks from its inputs, fills with a constant, or moves data.
        normalizes: Whether its result has magnitude one, whatever it reads (see `graph_patterns.py`).
        high_border: Whether floats cross the border of its backend's regions in the high precision.
        groups: The form of the value at a port in a format, if it may have several scales in that format.
        chosen: The solver's choice; None before the problem is solved.
        because: The nodes that forced the choice.
        why: The reason in one clause, if the solver knows more than the policy says.
    """

    node: Any
    choices: Choices
    inputs: list[tuple[str, Value]] = field(default_factory=list)
    outputs: list[tuple[str, Value]] = field(default_factory=list)
    policy: str = ""
    present: Format = FLOAT32
    low: Format = FLOAT32
    high: Format = FLOAT32
    backend: str = ""
    source: str = ""
    override: str = ""
    takes_any: bool = False
    type_attribute: bool = False
    select: Literal["", "pick", "fill", "move"] = ""
    normalizes: bool = False
    high_border: bool = False
    groups: Mapping[tuple[str, Format], SharedFormat] | None = None
    chosen: FormatChoice = None  # type: ignore[assignment]  # a solver sets it
    because: tuple[Any, ...] = ()
    why: str = ""

    def shares_high_border(self, other: FormatVariable | None) -> bool:
        """Check whether values between this and another variable are passed in the high precision."""
        return other is not None and other.backend != self.backend and (self.high_border or other.high_border)

    @property
    def format(self) -> Format:
        """The chosen format of its nominal output; None before a choice is made."""
        return self.chosen and self.chosen.nominal  # type: ignore[return-value]  # as `chosen`

    def held_at(self, port: str, choice: FormatChoice | None = None) -> Format | SharedFormat:
        """Return the form of the value at a port: the format, with its sharing group if it may have several.

        Values are converted between different forms.

        Args:
            port: The port.
            choice: A choice; the chosen one if None.
        """
        format_ = (choice or self.chosen).format_of(port)
        return format_ if self.groups is None else self.groups.get((port, format_), format_)

    @property
    def activations(self) -> list[Value]:
        """The non-constant values that it reads."""
        return [value for _, value in self.inputs if not value.constant]
