"""Progress of commands that take minutes: a bar on a terminal, elsewhere a line from time to time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dovetail_commands.progress import Progress

_BETWEEN = 5.0  # seconds between two lines


@contextmanager
def progress_lines() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress on standard error while the block runs.

    Yields:
        A function that is called with the current step, the amount done, and the total.
    """
    begun, last, step = time.monotonic(), -_BETWEEN, ""

    with Progress() as bar:

        def show(what: str, done: int, total: int) -> None:
            nonlocal last, step
            if sys.stderr.isatty():
                bar(what, done, total)
                return
            now = time.monotonic()
            if now - last >= _BETWEEN or what != step and now - last >= 1:
                last, step = now, what
                print(f"{now - begun:4.0f} s  {what}: {done} of {total}", file=sys.stderr, flush=True)

        yield show
