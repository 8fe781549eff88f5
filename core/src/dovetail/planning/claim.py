"""Claims: the nodes that a strategy wants for a backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.formats import Format
    from dovetail.planning.edits import Edit
    from dovetail.planning.verdict import PortRule, Verdict


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a backend on one node.

    Attributes:
        node: The node.
        ports: Allowed formats by port name, in order of preference; a port that is not listed may have any type that
            the schema allows.
        role: How the backend treats it: `active`, `passive`, `manual`, or a policy (`lower`, `pass`, ...).
        because: The reason, in one sentence.
        source: File and line of the rule.
        keep: Ports that stay in the high precision.
        set: Attributes to set if the node is typed low.
        rules: What the backend requires of quantised ports, by port name; empty for ports that stay floats.
        settled: Ports whose formats are final: what a node may have only at the end of its region is not added to them.
        pinned: The user asked for it, with or without a format; its role is `pinned` only with one.
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
    """The result of a strategy, which tags nodes and never edits them."""

    claims: list[Claim] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)


def claim_of(node: ir.Node, verdict: Verdict) -> Claim:
    """Return the claim that follows from an accepting verdict."""
    return Claim(
        node,
        ports=verdict.types,
        role=verdict.role or verdict.policy,
        because=f"policy {verdict.policy}" if verdict.policy else "",
        source=verdict.source,
        keep=frozenset(verdict.keep),
        set=verdict.set,
        rules=verdict.rules,
    )
