"""Values in quantised formats before their parameters are known, and where they are computed and read so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir.required import name_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.formats import Format
    from dovetail.planning.holdings import Parameters
    from dovetail.planning.verdict import ParameterRule


class Use(NamedTuple):
    """A port of a node in a quantised format.

    Attributes:
        node: The node.
        index: Index of the input, or of the output.
        port: Name of the port.
        is_output: Whether the node computes the value.
    """

    node: ir.Node
    index: int  # type: ignore[assignment]  # it hides the method of tuples
    port: str
    is_output: bool


@dataclass(eq=False)
class Held:
    """A value in one quantised format with one set of parameters, before these are known.

    Attributes:
        value: The value.
        format: The format.
        rule: Where the parameters come from.
        uses: Where the value is computed or read so.
        adopted: The parameters that the source model has for it; None if it has none.
        group: All that share these parameters, this one included.
        follows: Whether the parameters come from others of the group, as far as there are others.
        fused: The node that alone reads the value and is computed together with the one that computes it, so that the
            value is never held at all; None for all other values.
    """

    value: ir.Value
    format: Format
    rule: ParameterRule
    uses: list[Use] = field(default_factory=list)
    adopted: Parameters | None = None
    group: list[Held] = field(default_factory=list)
    follows: bool = False
    fused: ir.Node | None = None

    @property
    def leaders(self) -> list[Held]:
        """Those of the group whose numbers decide about its parameters."""
        return [held for held in self.group if not held.follows] or self.group

    @property
    def name(self) -> str:
        """The name of its sharing group: the first value in it, and what tells groups of this value apart."""
        first = self.group[0]
        detail = first.uses[0].node.name if first.rule.factors else str(first.rule.observer)
        return f"{first.value.name}@{detail}" if detail and first.adopted is None else name_of(first.value)

    @property
    def producer(self) -> Use | None:
        """The use that computes it; None if it is only read so."""
        return next((use for use in self.uses if use.is_output), None)
