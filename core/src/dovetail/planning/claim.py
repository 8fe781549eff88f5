"""Verdicts, the legality of a node on a backend; and claims, a strategy's requests for nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.planning.quantized_value import ObserverChoice

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.formats import Format
    from dovetail.planning.edits import Edit


@dataclass(frozen=True, slots=True)
class Claim:
    """A backend's claim on one node.

    Attributes:
        node: The node.
        ports: Allowed formats by port name, in order of preference; an unlisted port may have any type that the schema
            allows.
        role: The backend's treatment of the node: `active`, `passive`, `manual`, or a policy (`lower`, `pass`, ...).
        because: Why a strategy or a pin decided on formats that the file does not ask for, in one clause; empty if none
            did.
        source: File and line of the rule.
        keep: Ports that stay in the high precision.
        set: Attributes to set if the node is typed low.
        rules: Requirements of the backend on quantized ports, by port name; empty for ports that stay floats.
        settled: Ports with final formats: the additional formats allowed at the end of a region are not added to them.
        pinned: Whether the user asked for it, with or without a format; its role is `pinned` only with one.
    """

    node: ir.Node
    ports: Mapping[str, tuple[Format, ...]] = field(default_factory=dict)
    role: str = ""
    because: str = ""
    source: str = ""
    keep: frozenset[str] = frozenset()
    set: Mapping[str, Any] = field(default_factory=dict)
    rules: Mapping[str, PortRule] = field(default_factory=dict)
    settled: frozenset[str] = frozenset()
    pinned: bool = False


@dataclass(slots=True)
class Claims:
    """The result of a strategy: claims on nodes, and requested edits. A strategy never edits the graph itself."""

    claims: list[Claim] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)


def claim_of(node: ir.Node, verdict: Verdict) -> Claim:
    """Return the claim that follows from an accepting verdict."""
    return Claim(
        node,
        ports=verdict.types,
        role=verdict.role or verdict.policy,
        source=verdict.source,
        keep=frozenset(verdict.keep),
        set=verdict.set,
        rules=verdict.rules,
    )


class Refusal(NamedTuple):
    """One reason why a node is not supported.

    Attributes:
        text: One readable sentence.
        source: File and line of the rule.
        open: Whether the reason is an extent unknown until run time, which users can fix.
        facts: The numbers and names of the reason, as JSON data: the value found, and the values allowed.
    """

    text: str
    source: str
    open: bool = False
    facts: Mapping[str, object] = MappingProxyType({})

    def __str__(self) -> str:
        return f"{self.text} [{self.source}]" if self.source else self.text


def facts_of(reasons: Iterable[Refusal]) -> dict[str, object]:
    """Merge the facts of the reasons why a node is not supported, for a remark on it."""
    found = [
        {"text": reason.text, **({"source": reason.source} if reason.source else {}), **reason.facts}
        for reason in reasons
    ]
    return {"reasons": found} if found else {}


class ParameterRule(NamedTuple):
    """The source of a port's parameters, in one quantized format.

    Attributes:
        observer: The observer that computes them from data.
        scale: Source of the scale if no observer computes it: a product of ports (`X*W`), whose granularity it
            inherits, or `compute`; empty if an observer does.
    """

    observer: ObserverChoice = ObserverChoice()
    scale: str = ""

    @property
    def factors(self) -> tuple[str, ...]:
        """The ports whose scales are multiplied; empty if the scale is not a product."""
        return tuple(part.strip() for part in self.scale.split("*")) if self.scale != "compute" and self.scale else ()


@dataclass(frozen=True, slots=True)
class PortRule:
    """A backend's requirements on a port that may be quantized, besides its formats.

    Attributes:
        parameters: Source of scale and zero point, by quantized format.
        one_choice: The port has the same format as every other port of the node with this mark.
        same_scale: The port shares its parameters, and so its format, with every other port of the node whose field is
            not empty. The text names their source: the values at all of these ports (`all`), at the inputs only
            (`input`), at the outputs only (`output`), or the users of the outputs (`consumer`). With `free`, an input
            shares those of the output only if no other operator has parameters for its value.
        fuses: Operators that are fused with the node: if one of them is the only user of this output, the value between
            them is never represented in integers.
    """

    parameters: Mapping[Format, ParameterRule] = field(default_factory=dict)
    one_choice: bool = False
    same_scale: str = ""
    fuses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The legality of one node on a backend.

    Attributes:
        ok: True, False, or None if it depends on the region.
        reasons: Why the node is not supported; empty unless `ok` is False.
        role: Its role, or empty.
        policy: Its autocast policy, or empty.
        types: Allowed formats by port in order of preference, only for ports that carry floats or that the file
            quantizes; elements of a variadic port are named `in0`, `in1`, ... Empty if the file does not restrict
            types.
        set: Attributes to set if the node is typed low.
        keep: Ports that stay in the high precision; `types` ignores them.
        row: Index of the row that decided; None if the rule has no rows or none matches.
        source: File and line of the rule that decided.
        rules: Further requirements on ports that may be quantized, by port; empty if there are none.
    """

    ok: bool | None
    reasons: tuple[Refusal, ...] = ()
    role: str = ""
    policy: str = ""
    types: Mapping[str, tuple[Format, ...]] = field(default_factory=dict)
    set: Mapping[str, object] = field(default_factory=dict)
    keep: frozenset[str] = frozenset()
    row: int | None = None
    source: str = ""
    rules: Mapping[str, PortRule] = field(default_factory=dict)
