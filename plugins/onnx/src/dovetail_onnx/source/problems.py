"""Collect the problems of a source model."""

from __future__ import annotations

from dovetail.errors import DovetailError
from dovetail.text import printable

_KEPT = 50


class Problems:
    """The problems found so far, in the order of the file.

    Args:
        name: Name of the model in messages: its path, or `the model`.
    """

    def __init__(self, name: str):
        self._name = name
        self._texts: list[str] = []
        self._hints: list[str] = []
        self.count = 0

    def add(self, text: str, hint: str = "") -> None:
        """Add a problem, with an optional hint."""
        self.count += 1
        if self.count <= _KEPT:
            self._texts.append(text)
            self._hints.append(hint)

    def raise_first(self) -> None:
        """Raise the first problem, with the number of all, if there is any."""
        if self.count:
            more = f" (and {self.count - 1} more problem{'s' * (self.count > 2)})" if self.count > 1 else ""
            hint = self._hints[0] or "export the model again, or mend it in the tool that made it"
            raise DovetailError(f"{self._name}: {printable(self._texts[0])}{more}", hint)
