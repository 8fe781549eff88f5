"""What one rule of conditioning found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["LOW", "Finding"]

LOW = frozenset({"bfloat16", "float16"})
"""The types that a finding speaks against unless it says which."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Nodes that should compute high.

    Attributes:
        nodes: The nodes.
        why: The reason in one clause, the same for all of them.
        types: The low types that it speaks against.
    """

    nodes: tuple[ir.Node, ...]
    why: str
    types: frozenset[str] = LOW
