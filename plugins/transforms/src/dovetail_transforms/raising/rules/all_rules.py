"""All rules of raising, by the name that rows of the table use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dovetail_transforms.raising.rules import arguments, broadcasting, loops, normalizing, resizing
from dovetail_transforms.raising.writer import Writer

RULES: Mapping[str, Callable[[Writer], None]] = {
    **arguments.RULES,
    **broadcasting.RULES,
    **loops.RULES,
    **normalizing.RULES,
    **resizing.RULES,
}
