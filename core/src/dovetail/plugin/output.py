"""Standard output while foreign code runs: captured for the thread that runs it, untouched for all others."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TextIO

_CAPTURE: ContextVar[io.StringIO | None] = ContextVar("capture", default=None)
_INSTALLING = threading.Lock()


class _Routed(io.TextIOBase):
    """Stands for `sys.stdout`: text of a thread that captures goes to its buffer, all other text to the real one."""

    def __init__(self) -> None:
        super().__init__()
        self.real: TextIO = sys.__stdout__ or sys.stdout
        self.users = 0

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the real one."""
        return self.real.encoding

    def write(self, text: str) -> int:
        """Write to where text of this thread belongs."""
        return (_CAPTURE.get() or self.real).write(text)

    def writable(self) -> bool:
        """Always."""
        return True

    def isatty(self) -> bool:
        """Whether the real one is a terminal and nothing is captured."""
        return _CAPTURE.get() is None and self.real.isatty()

    def fileno(self) -> int:
        """That of the real one."""
        return self.real.fileno()

    def flush(self) -> None:
        """Flush the real one."""
        self.real.flush()


_ROUTED = _Routed()


@contextlib.contextmanager
def captured() -> Iterator[io.StringIO]:
    """Collect what this thread prints in the block; blocks may nest, and several threads may be in one at once."""
    buffer = io.StringIO()
    with _INSTALLING:
        if sys.stdout is not _ROUTED:
            _ROUTED.real, sys.stdout = sys.stdout, _ROUTED
        _ROUTED.users += 1
    token = _CAPTURE.set(buffer)
    try:
        yield buffer
    finally:
        _CAPTURE.reset(token)
        with _INSTALLING:
            _ROUTED.users -= 1
            # Somebody may have redirected standard output in between, and restores what is here now.
            if not _ROUTED.users and sys.stdout is _ROUTED:
                sys.stdout = _ROUTED.real


@contextlib.contextmanager
def own_output() -> Iterator[None]:
    """Let a function of the user print, such as one that yields input data, wherever a plugin calls it.

    Serves as a decorator, too: `own_output()(progress)`.
    """
    token = _CAPTURE.set(None)
    try:
        yield
    finally:
        _CAPTURE.reset(token)
