"""A finding of a conditioning rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail_precision.ranges.range import LOW_TYPES

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class Finding:
    """Nodes that should compute high.

    Attributes:
        nodes: The nodes.
        why: The reason in one clause, shared by all of them.
        types: The low types that it rules out.
    """

    nodes: tuple[ir.Node, ...]
    why: str
    types: frozenset[str] = LOW_TYPES
