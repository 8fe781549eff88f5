"""What might bring a node to a backend with roles: pins and edits, the cheapest first.

A manual node wants a pin; so does one that is in the way of another node. The edit gives a node the neighbour that it
lacks. A pin of the node itself works, too, if its region has what the backend needs: whoever tries remedies tries that
in any case, after the pin that keeps the rules. Alone in its region, a node wants an edit besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.plugin import Remedy

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin.strategy import View

__all__ = ["remedies_of_lost", "remedies_of_manual"]

_SIDES = ("before", "after")


def remedies_of_manual(node: ir.Node, backend: str, edit: str) -> Iterator[Remedy]:
    """Of a node that somebody has to ask for.

    Args:
        node: The node.
        backend: The name of the backend.
        edit: The edit that gives a node a neighbour; empty for none.
    """
    pin = f"{node.name}={backend}"
    yield _remedy(pin=pin)
    if edit:
        yield from (_remedy(_edits(node, edit, (side,)), pin) for side in _SIDES)


def remedies_of_lost(view: View, node: ir.Node, edit: str, blocker: ir.Node | None, side: str) -> Iterator[Remedy]:
    """Of a node that lacks a neighbour.

    Args:
        view: What its strategy sees.
        node: The node.
        edit: The edit that gives it one; empty for none.
        blocker: The node that is in the way, if there is one.
        side: Where the neighbour is missing.
    """
    name = view.backend.name
    if blocker is not None and view.verdict(blocker).role == "manual" and view.verdict(blocker).ok is not False:
        yield _remedy(pin=f"{blocker.name}={name}")
    if not edit:
        return
    sides = _SIDES if side == "before" else _SIDES[::-1]
    yield from (_remedy(_edits(node, edit, (side,))) for side in sides)
    yield from (_remedy(_edits(node, edit, (side,)), f"{node.name}={name}") for side in sides)
    yield _remedy(_edits(node, edit, sides))


def _edits(node: ir.Node, edit: str, sides: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{edit}={node.name}:{side}" for side in sides)


def _remedy(edits: tuple[str, ...] = (), pin: str = "") -> Remedy:
    words = [f"--pin {pin}"] * bool(pin) + [f"--edit {edit}" for edit in edits]
    return Remedy(" ".join(words), pins=(pin,) if pin else (), edits=edits)
