"""Errors that a user can act on: each names the node, file or line, and a way out."""

from __future__ import annotations

import errno
from typing import Any


class DovetailError(Exception):
    """The model or the request is at fault (exit code 1).

    Args:
        message: What is wrong, naming the node, file or line.
        hint: What to do about it, one sentence; empty if the message says it already.

    Attributes:
        node: Name of the node at fault, or of a value that it computes; empty if unknown.
    """

    exit_code = 1
    node = ""

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message

    def _render_traceback_(self) -> list[str]:
        """Return the lines that notebooks show: the message says what to change, which calls of ours do not.

        Source: IPython's `InteractiveShell.showtraceback`. `traceback.print_exception(error)` shows the calls.
        """
        return [f"{type(self).__name__}: {self}"]


class DovetailWarning(UserWarning):
    """The program goes on, but not as it was asked to: the message says why, and what to do."""


class EngineWarning(DovetailWarning):
    """Another engine than the backend's preferred one computes, so numbers and times are others."""


def system_error(error: OSError, doing: str = "") -> DovetailError:
    """Return the error for a refusal of the operating system: its reason is the message, and no code is blamed.

    Args:
        error: The exception.
        doing: What was being done, to begin the message with.
    """
    import tempfile

    place = error.filename or (tempfile.gettempdir() if error.errno in _WRITING else "")
    reason = "no space is left" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
    code = error.errno or 0
    room = "free some space, or name another folder (TMPDIR for temporary files)"
    hints = {
        errno.ENOSPC: room,
        errno.EDQUOT: room,
        errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
        errno.EMFILE: "raise the limit on open files (ulimit -n)",
        errno.ENOMEM: "free some memory",
    }
    hint = hints.get(code, "check the path and its permissions" if error.filename else "--debug shows where")
    return DovetailError(": ".join(filter(None, (doing, str(place), reason))), hint)


_WRITING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class UsageError(DovetailError):
    """The command line or the call itself is wrong (exit code 2)."""

    exit_code = 2


class PinError(DovetailError):
    """A pin asks a backend for a node that the backend rejects.

    Attributes:
        backend: The backend.
        reason: Why the backend rejects the node, in one clause.
    """

    def __init__(self, message: str, hint: str, backend: str, reason: str):
        super().__init__(message, hint)
        self.backend = backend
        self.reason = reason


class ResultError(DovetailError):
    """A result is complete, but something is wrong with it.

    Attributes:
        compiled: The result, a `CompiledModel` or, of a folder, a `CompiledFolder`.
    """

    def __init__(self, compiled: Any, message: str, hint: str = ""):
        super().__init__(message, hint)
        self.compiled = compiled


class VerificationError(ResultError):
    """A result could not be compared with its original."""

    def __init__(self, compiled: Any, error: DovetailError):
        super().__init__(compiled, f"the result could not be verified: {error.message}", error.hint)


class GoalError(ResultError):
    """A result, made as accurate as possible, does not meet the accuracy goals of its request."""

    def __init__(self, compiled: Any, error: DovetailError):
        super().__init__(compiled, error.message, error.hint)


class NoEngineError(DovetailError):
    """No engine of a backend is available on this machine, so the result cannot run here; it may run elsewhere."""
