"""Variables of the typing problem: the formats of some ports of one node, and the values at these ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dovetail.ir.formats import FLOAT32, Format

if TYPE_CHECKING:
    from dovetail_precision.choices import Choice, Choices, SharedFormat


@dataclass(slots=True, eq=False)
class Value:
    """A float value that variables compute or read.

    Attributes:
        name: Its name.
        present: Its format in the source model.
        constant: It is a weight: it is stored once per format that it is read in.
        kept: It is also read in its present format: by control flow, or as the output of a graph.
        adopted: What the source model itself converts it to, or computes it from; neither costs anything.
        free: It is an input of the model whose type may follow its readers.
        input_of_state: The model input that it comes back as, if that is free.
        source: What it stands for, for cost models; solvers do not look into it.
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
class Variable:
    """The formats of some ports of one node: of a type parameter, or of ports that must be equal.

    Attributes:
        node: The node, for remarks and cost models; solvers only compare it.
        choices: What schema, backend and user all allow; never empty.
        inputs: Port and value of each float input.
        outputs: Port and value of each float output.
        policy: The policy or role of the backend: `lower`, `fp32`, `promote`, `pass`, ..., `active`, `passive`, or ""
            (leave it). Also `pinned`, `keep` (the present type), and `angle` (see `trig_inputs.py`).
        present: The format in the source model.
        low, high: The low and the high precision of the backend; `present` if the backend has none.
        backend: Name of the backend.
        source: File and line of the rule.
        override: The option that set the policy, as the user wrote it: `--high type:Exp`.
        takes_any: It is an input that any type may enter: a Cast converts it, or only its shape is read.
        type_attribute: An attribute of the node, or a constant scale, decides the type of its outputs, and can hold the
            low one.
        select: How it takes part in selects of constants: it picks from its inputs, fills with a constant, moves data.
        normalises: Its result is of size one, whatever it reads (see `normalised.py`).
        high_border: Floats cross the border of its backend's regions in the high precision.
        groups: What the value at a port is held as in a format, if it may have several scales in that format.
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
    normalises: bool = False
    high_border: bool = False
    groups: Mapping[tuple[str, Format], SharedFormat] | None = None
    chosen: Choice = None  # type: ignore[assignment]  # a solver sets it
    because: tuple[Any, ...] = ()
    why: str = ""

    def shares_high_border(self, other: Variable | None) -> bool:
        """Whether what passes between this and another variable does so in the high precision."""
        return other is not None and other.backend != self.backend and (self.high_border or other.high_border)

    @property
    def format(self) -> Format:
        """The chosen format of its nominal output; None before a choice is made."""
        return self.chosen and self.chosen.nominal  # type: ignore[return-value]  # as `chosen`

    def held_at(self, port: str, choice: Choice | None = None) -> Format | SharedFormat:
        """Return what the value at a port is held as: the format, with its sharing group if it may have several.

        Values are converted between what differs here.

        Args:
            port: The port.
            choice: A choice; the chosen one if None.
        """
        format_ = (choice or self.chosen).format_of(port)
        return format_ if self.groups is None else self.groups.get((port, format_), format_)

    @property
    def activations(self) -> list[Value]:
        """The values that it reads and that are not constants."""
        return [value for _, value in self.inputs if not value.constant]
