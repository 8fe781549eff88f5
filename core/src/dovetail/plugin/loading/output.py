"""Capture of standard output per thread, while plugin code runs."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TextIO

_CAPTURE: ContextVar[io.StringIO | None] = ContextVar("capture", default=None)
_INSTALLING = threading.RLock()  # a session may be closed by the garbage collector meanwhile


class _Routed(io.TextIOBase):
    """Stand-in for `sys.stdout`: output of capturing threads goes to their buffers, other output to the original."""

    def __init__(self) -> None:
        super().__init__()
        self.real: TextIO = sys.__stdout__ or sys.stdout
        self.users = 0

    @property
    def encoding(self) -> str:  # type: ignore[override]  # never set
        """The encoding of the original stream."""
        return self.real.encoding

    def write(self, text: str) -> int:
        """Write to the buffer of this thread, or to the original stream."""
        return (_CAPTURE.get() or self.real).write(text)

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return whether the original stream is a terminal and this thread does not capture."""
        return _CAPTURE.get() is None and self.real.isatty()

    def fileno(self) -> int:
        """Return the file descriptor of the original stream."""
        return self.real.fileno()

    def flush(self) -> None:
        """Flush the original stream."""
        self.real.flush()


_ROUTED = _Routed()


@contextlib.contextmanager
def captured() -> Iterator[io.StringIO]:
    """Capture the output of this thread in the block; blocks may nest, and several threads may capture at once."""
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
            # Other code may have redirected standard output meanwhile, and will restore our stream later.
            if not _ROUTED.users and sys.stdout is _ROUTED:
                sys.stdout = _ROUTED.real


@contextlib.contextmanager
def own_output() -> Iterator[None]:
    """Let a user function print, such as one that yields input data, even where a plugin calls it.

    Also usable as a decorator: `own_output()(progress)`.
    """
    token = _CAPTURE.set(None)
    try:
        yield
    finally:
        _CAPTURE.reset(token)
