"""Claims: what a strategy says of nodes, before anything is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Claim", "Claims", "Edit"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One node that a backend wants.

    Attributes:
        node: The node.
        ports: Allowed types by port name; a port that is not listed may have any type the operator takes.
        role: How the backend treats it: `active`, `passive`, `manual`, or a policy (`lower`, `pass`, ...).
        because: Why, in one sentence.
        source: File and line of the rule.
        keep: Ports that stay in the high precision.
        set: Attributes to rewrite when the node goes low.
    """

    node: ir.Node
    ports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    role: str = ""
    because: str = ""
    source: str = ""
    keep: frozenset[str] = frozenset()
    set: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of the graph that a strategy proposes, by name: `unit-conv` at a node, say."""

    kind: str
    at: str
    side: str = "after"


@dataclass(slots=True)
class Claims:
    """All that one strategy says. It tags and never edits."""

    claims: list[Claim] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
