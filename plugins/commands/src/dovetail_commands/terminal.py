"""Terminal output: drawn tables, wrapped notes. Rich is imported only for a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from dovetail.cli import columns, note
from dovetail.text import abbreviated, pluralize, printable

from dovetail_commands.said_today import new_notes

if TYPE_CHECKING:
    from dovetail.plugin import Verification


__all__ = ["say_note", "say_notes", "styled", "table", "warn"]


_NARROWEST = 40  # columns
_STYLES = {"bold": "1", "red": "31", "yellow": "33", "cyan": "36"}


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return printable text in a style for a terminal; without it where there is none, or `NO_COLOR` asks for none.

    Args:
        text: The text, whose control characters are escaped.
        style: `bold`, `red`, `yellow` or `cyan`.
        stream: Where it is printed; standard output by default.
    """
    stream, text = stream or sys.stdout, abbreviated(printable(text))
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def say_notes(notes: Sequence[str], everything: bool = False) -> None:
    """Print the notes under the table; on a terminal those that were not shown today, unless `everything` is wanted."""
    shown = list(notes) if everything or not sys.stdout.isatty() else new_notes(notes)
    for text in shown:
        say_note(text)
    if len(shown) < len(notes):
        say_note(f"{pluralize(len(notes) - len(shown), 'more note')} as earlier today: -v shows all")


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
        print(styled("note:", "yellow") + text.removeprefix("note:"))
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


def warn(verification: Verification) -> None:
    """Print the warnings of a comparison on standard error, with advice."""
    note(*(f"warning: {text}" for text in verification.warnings))
    if verification.warnings and verification.advice:
        note(f"  {verification.advice}")
