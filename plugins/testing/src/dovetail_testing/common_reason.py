"""Detect a reason that is not about the nodes: every node is refused because a tool or a license is missing."""

from __future__ import annotations

_NODES = 3  # of as many operators


class CommonReason:
    """Follows the reasons of the first nodes.

    Attributes:
        text: The reason why every node so far is refused; empty if reasons differ, or if a node is not refused.
        found: Whether nodes of enough operators are refused for this reason, so that trying more is useless.
        operators: The operators of these nodes.
    """

    def __init__(self) -> None:
        self.text = ""
        self.found = False
        self.operators: set[str] = set()
        self._differ = False

    def add(self, operator: str, reason: str) -> bool:
        """Add the reason of a node, empty if it is not refused; return whether the reason is common to all."""
        if self._differ or self.found:
            return self.found
        self._differ = not reason or bool(self.operators) and reason != self.text
        self.text = "" if self._differ else reason
        self.operators.add(operator)
        self.found = not self._differ and len(self.operators) >= _NODES
        return self.found
