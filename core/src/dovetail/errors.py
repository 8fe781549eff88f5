"""Errors that a user can act on: each names the node, file or line, and a way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.compiler.compiled import CompiledModel


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
        compiled: The result.
    """

    def __init__(self, compiled: CompiledModel, message: str, hint: str = ""):
        super().__init__(message, hint)
        self.compiled = compiled


class VerificationError(ResultError):
    """A result could not be compared with its original."""

    def __init__(self, compiled: CompiledModel, error: DovetailError):
        super().__init__(compiled, f"the result could not be verified: {error.message}", error.hint)


class GoalError(ResultError):
    """A result, made as accurate as possible, does not meet the accuracy goals of its request."""

    def __init__(self, compiled: CompiledModel, error: DovetailError):
        super().__init__(compiled, error.message, error.hint)


class NoEngineError(DovetailError):
    """No engine of a backend is available on this machine, so the result cannot run here; it may run elsewhere."""
