"""Terminal output: drawn tables, wrapped notes, a progress bar. Rich is imported only for a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.cli import columns, note
from dovetail.text import abbreviated, printable

if TYPE_CHECKING:
    from dovetail.plugin import Verification


__all__ = ["Progress", "say_note", "table", "warn"]


_NARROWEST = 40  # columns


def say_note(text: str) -> None:
    """Print a note under the table, wrapped between words on a terminal."""
    text = abbreviated(printable(text))
    if sys.stdout.isatty():
        width = max(shutil.get_terminal_size().columns, _NARROWEST)
        text = textwrap.fill(
            text,
            width,
            subsequent_indent="      ",
            break_long_words=False,
            break_on_hyphens=False,
            initial_indent="note: ",
        )
        print(text)
    else:
        print(f"note: {text}")


def table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows with the same keys as a table: drawn on a terminal, in plain columns elsewhere."""
    if not rows:
        return
    keys = list(rows[0])
    cells = [[_cell(row.get(key)) for key in keys] for row in rows]
    if not sys.stdout.isatty():
        print("\n".join(columns([keys, *cells])))
        return
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=None, header_style="bold")
    for key in keys:
        drawn.add_column(key, overflow="fold")
    for row in cells:
        drawn.add_row(*row)
    Console(highlight=False, markup=False).print(drawn)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return abbreviated(printable(", ".join(map(str, value))))
    return abbreviated(printable(value))


class Progress:
    """A progress bar on standard error, shown only on a terminal.

    Called with the current step, the amount done, and the total.
    """

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show the progress of a step."""
        if sys.stderr.isatty():
            self._draw(what, done, total)

    def _draw(self, what: str, done: int, total: int) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Bar(*parts, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("")
        self._bar.update(self._task, description=what, completed=done, total=total or None)


def warn(verification: Verification) -> None:
    """Print the warnings of a comparison on standard error, with advice."""
    note(*(f"warning: {text}" for text in verification.warnings))
    if verification.warnings and verification.advice:
        note(f"  {verification.advice}")
