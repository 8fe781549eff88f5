"""Origins: the names of the source nodes that a node replaces, as an annotation on the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


_SHOWN = 3  # source nodes named per node
_ORIGIN = "dovetail.origin"


def origin_of(node: ir.Node) -> tuple[str, ...]:
    """Return the names of the source nodes that this node replaces; its own name if it was not renamed or folded."""
    return node.meta.get(_ORIGIN) or ((node.name,) if node.name else ())


def from_source(node: ir.Node) -> str:
    """Format the origin of a node for messages: ` (from 'conv_2' and 'norm_2')`; empty if it has its own name."""
    return source_text(node.name, node.meta.get(_ORIGIN) or ())


def source_text(name: str | None, origin: Sequence[str]) -> str:
    """Format an origin as `from_source` does, for a node of this name."""
    if not origin or tuple(origin) == (name,):
        return ""
    shown = [f"'{source}'" for source in origin[:_SHOWN]]
    if len(origin) > _SHOWN:
        shown.append(f"{len(origin) - _SHOWN} more")
    *first, last = shown
    return f" (from {', '.join(first)} and {last})" if first else f" (from {last})"


def set_origin(node: ir.Node, names: tuple[str, ...]) -> None:
    """Set the names of the source nodes that `node` replaces."""
    node.meta[_ORIGIN] = tuple(dict.fromkeys(names))
