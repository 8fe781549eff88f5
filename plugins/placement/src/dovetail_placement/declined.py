"""Remarks on pins that their backends declined: those of files, whose tools do not insist on them either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.text import pluralize

if TYPE_CHECKING:
    from dovetail.passes import Context

    from dovetail_placement.pins import Pin


_RULE = "declined"
_NAMED = 5


def remark_declined(declined: Sequence[tuple[Pin, str]], ctx: Context) -> None:
    """Leave a remark on every node that a file asked for in vain, and one note for each key of the file.

    Args:
        declined: The pins, with the reason of the backend.
        ctx: The context of the run.
    """
    groups: dict[tuple[str, str], list[Pin]] = {}
    for pin, why in declined:
        origin = pin.origin
        assert origin is not None, "what a user asked for is not declined"
        then = f"; {origin.if_declined}" if origin.if_declined else ""
        ctx.remark(
            "analysis", pin.node, _RULE, f"{origin.asked} asks for {pin.backend}, which declines it: {why}{then}"
        )
        groups.setdefault((pin.backend, origin.if_declined), []).append(pin)
    for (backend, then), pins in groups.items():
        named = ", ".join(f"'{pin.node.name}' ({pin.origin.asked})" for pin in pins[:_NAMED] if pin.origin is not None)
        more = f" and {len(pins) - _NAMED} others" if len(pins) > _NAMED else ""
        why = f"{backend} declines {pluralize(len(pins), 'node')} that the file asks for: {named}{more}"
        ctx.remark(
            "analysis", "", _RULE, f"{why}; {then}" if then else why,
            suggest="`dovetail explain` says why; leave the nodes out of the file, or change what breaks the limit",
        )  # fmt: skip
