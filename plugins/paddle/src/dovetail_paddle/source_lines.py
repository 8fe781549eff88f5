"""The line of the user's program that made an operator, out of the call stack that Paddle recorded."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_FRAMEWORK = re.compile(r"(^|/)(paddle|site-packages|dist-packages)/")


def source_line(stack: Sequence[str]) -> str:
    """Return `file:line` of the innermost frame outside of Paddle, or of the innermost frame; empty if there is none.

    Args:
        stack: The entries of an attribute `op_callstack`: frames as Python prints them, outermost first.
    """
    frames = [found.groups() for entry in stack for found in _LINE.finditer(entry)]
    own = [frame for frame in frames if not _FRAMEWORK.search(frame[0])]
    chosen = (own or frames)[-1:]
    return f"{chosen[0][0]}:{chosen[0][1]}" if chosen else ""
