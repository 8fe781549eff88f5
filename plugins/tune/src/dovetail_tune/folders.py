"""Folders that are tuned as one thing, such as a language model: the contract of the plugins that know them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.plugin import FolderKind, with_kind
from dovetail.text import pluralize

if TYPE_CHECKING:
    from dovetail.plugin import PluginSet


MORE_TIME = "give a larger --budget, or name the backends to try with --backend"
"""What to do if there is no winner, and candidates were not tried."""


def no_winner(candidates: int, not_tried: int) -> str:
    """Say that none of the candidates that were tried meets the goals, and how many were not tried."""
    if not not_tried:
        return "no candidate meets the goals"
    none = f"none of the {candidates - not_tried} that were tried meets the goals" if not_tried < candidates else ""
    what = f"{not_tried} of {pluralize(candidates, 'candidate')} were not tried"
    return f"the time was up: {', and '.join(filter(None, (none, what)))}"


class TunedFolder(ABC):
    """The outcome of tuning a folder as one thing.

    Attributes:
        is_met: Whether a candidate meets the goals; without one, nothing is saved.
        problem: Why none does, in words.
        way_out: What to do then.
    """

    is_met: bool
    problem: str = "no candidate meets the goals"
    way_out: str = "lower the goal"

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write the winner as a complete result.

        Raises:
            DovetailError: The folder cannot be written.
        """

    @abstractmethod
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the table of what was tried, each row with its cells by heading."""

    @abstractmethod
    def lines(self) -> Sequence[str]:
        """Return what is to be said below the table."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data."""


class TunableKind(FolderKind):
    """A kind of folder that is compiled as one thing, and tuned as one, too."""

    @abstractmethod
    def tune(self, folder: Path, *, plugins: PluginSet, **request: Any) -> TunedFolder:
        """Find the fastest result within the goals, by measuring.

        Args:
            folder: The folder.
            plugins: The plugins to use.
            request: The keywords of `dovetail.tune`, and `cluster`, `device` and `plot` of the command.

        Raises:
            UsageError: A keyword makes no sense for a folder.
            DovetailError: The folder or the data is at fault, or no candidate runs.
        """


def tuned_folder(folder: Path, plugins: PluginSet, output: Path | None = None, **request: Any) -> TunedFolder | None:
    """Tune a folder with the first plugin that recognizes it, and can; return None if none does.

    Args:
        folder: The folder.
        plugins: The plugins to use.
        output: Where the result will be saved, if that is known.
        request: See `TunableKind.tune`.
    """

    def work(kind: TunableKind) -> TunedFolder:
        return kind.tune(folder, plugins=plugins, **request)

    return with_kind(folder, plugins, output, work, TunableKind)
