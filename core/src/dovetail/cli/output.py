"""What the commands print: lines, aligned columns, JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from dovetail.text import printable

# What JSON leaves as it is and a terminal obeys: DEL and the C1 controls.
_RAW_CONTROL = re.compile("[\x7f-\x9f\u2028\u2029]")


def note(*lines: str) -> None:
    """Print lines on standard error."""
    for line in lines:
        print(printable(line, lines=True), file=sys.stderr)


def say(*lines: object) -> None:
    """Print lines on standard output, with control characters in names shown and not sent to the terminal."""
    for line in lines:
        print(printable(line, lines=True))


def print_json(document: Any) -> None:
    """Print one JSON document on standard output; what JSON does not know is printed as text."""
    text = json.dumps(document, indent=2, ensure_ascii=False, default=str)
    print(_RAW_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def columns(rows: Iterable[Sequence[object]], indent: str = "") -> list[str]:
    """Rows as lines with aligned columns; the last column is as long as it is."""
    texts = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts)]
    return [
        indent + "  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths)), row[-1]]).rstrip()
        for row in texts
    ]
