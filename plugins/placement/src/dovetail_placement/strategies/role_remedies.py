"""What might bring a node to a backend with roles: pins and edits, the cheapest first.

A manual node wants a pin; so does one that is in the way of another node. The edit gives a node the neighbour that it
lacks. A pin of the node itself works, too, if its region has what the backend needs: whoever tries remedies tries that
in any case, after the pin that keeps the rules. Alone in its region, a node wants an edit besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dovetail.plugin import Remedy, remedy

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin.strategy import View


_SIDES = ("before", "after")


def remedies_of_manual(node: ir.Node, backend: str, edits: Mapping[str, str]) -> Iterator[Remedy]:
    """Of a node that somebody has to ask for.

    Args:
        node: The node.
        backend: The name of the backend.
        edits: The edits that give it a neighbour, by side, as far as there are any.
    """
    pin = f"{node.name}={backend}"
    yield remedy((pin,))
    yield from (remedy((pin,), (edits[side],)) for side in _SIDES if side in edits)


def remedies_of_lost(
    view: View, node: ir.Node, edits: Mapping[str, str], blocker: ir.Node | None, side: str
) -> Iterator[Remedy]:
    """Of a node that lacks a neighbour.

    Args:
        view: What its strategy sees.
        node: The node.
        edits: The edits that give it one, by side, as far as there are any.
        blocker: The node that is in the way, if there is one.
        side: Where the neighbour is missing.
    """
    name = view.backend.name
    if blocker is not None and view.verdict(blocker).role == "manual" and view.verdict(blocker).ok is not False:
        yield remedy((f"{blocker.name}={name}",))
    chosen = [edits[at] for at in (_SIDES if side == "before" else _SIDES[::-1]) if at in edits]
    yield from (remedy(edits=(edit,)) for edit in chosen)
    yield from (remedy((f"{node.name}={name}",), (edit,)) for edit in chosen)
    if len(chosen) > 1:
        yield remedy(edits=tuple(chosen))
