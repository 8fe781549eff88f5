"""Observers as backends and requests choose them: a name, and options."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ObserverChoice:
    """An observer with its options. Two choices that differ in nothing but their source are equal.

    Attributes:
        name: Its registered name; empty for the default one.
        options: Its options, as pairs of keyword and value.
        source: File and line that name it, or the argument of the command line.
    """

    name: str = ""
    options: tuple[tuple[str, object], ...] = ()
    source: str = field(default="", compare=False)

    def __str__(self) -> str:
        options = ",".join(f"{key}={value}" for key, value in self.options)
        return f"{self.name}{{{options}}}" if options else self.name
