"""What core knows of a comparison between a result and its original: how to show it, and how to exit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["Verification"]


class Verification(Protocol):
    """A comparison, which an option leaves in `CompiledModel.verification`.

    Attributes:
        notes: What to know of its figures.
        warnings: What is alarming, one sentence each.
        advice: What to do about the warnings; empty where there is nothing to say.
        missed: What was asked for and is not met.
        broken: Whether the result is no approximation of the original; commands then exit with 1.
    """

    @property
    def notes(self) -> Sequence[str]:
        """What to know of its figures."""

    @property
    def warnings(self) -> Sequence[str]:
        """What is alarming, one sentence each."""

    @property
    def advice(self) -> str:
        """What to do about the warnings."""

    @property
    def missed(self) -> Sequence[object]:
        """What was asked for and is not met, each a sentence as text."""

    @property
    def broken(self) -> bool:
        """Whether the result is no approximation of the original."""

    def lines(self) -> list[str]:
        """Lines for a person."""

    def short(self) -> str:
        """What the coverage line says of it; empty if nothing."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
