"""Errors that a user can act on: each names the node, file or line, and the way out."""

from __future__ import annotations

__all__ = ["DovetailError", "UsageError"]


class DovetailError(Exception):
    """The model or the request is at fault (exit code 1).

    Args:
        message: What is wrong, naming the node, file or line.
        hint: What to do about it, one sentence; empty when the message says it already.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class UsageError(DovetailError):
    """The command line itself is wrong (exit code 2)."""

    exit_code = 2
