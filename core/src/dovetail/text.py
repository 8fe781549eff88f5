"""Text for people: plural forms, near misses, and untrusted text made safe to print."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# C0 and C1 controls, DEL, line and paragraph separators, marks that reorder text on a terminal, and what is not a
# character in YAML.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
_UNSAFE_BUT_NEWLINE = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))


def printable(text: object, *, lines: bool = False) -> str:
    r"""Return `text` with control characters escaped as Python writes them: `"\x1b[31m"` is shown as `\x1b[31m`.

    Names come from untrusted models; printed raw, they could move the cursor, color or clear the terminal, or imitate
    our own messages.

    Args:
        text: The text to show.
        lines: Keep line feeds, for multi-line text of Dovetail itself.
    """
    pattern = _UNSAFE_BUT_NEWLINE if lines else _UNSAFE
    return pattern.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode("ascii"), str(text))


def json_escaped(text: str) -> str:
    """Return JSON, or YAML in the form of JSON, with characters that a terminal interprets written as escapes.

    Those of JSON's own syntax stay: it has line feeds between values, and none in them.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return _UNSAFE_BUT_NEWLINE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


_LONG_WORD = re.compile(r"\S{301,}")
_SHOWN, _LONGEST_LINE = 120, 20_000  # characters


def abbreviated(text: str) -> str:
    """Return a message with names of hundreds of characters cut: `aaaa... (1,000,000 characters)`.

    Every message, table and summary passes through here on its way to a terminal; documents and models do not.
    """
    if len(text) <= 300:
        return text
    lines = (_LONG_WORD.sub(lambda word: _cut(word[0], _SHOWN), line) for line in text.split("\n"))
    return "\n".join(line if len(line) <= _LONGEST_LINE else _cut(line, _LONGEST_LINE) for line in lines)


def _cut(text: str, shown: int) -> str:
    return f"{text[:shown]}... ({len(text):,} characters)"


def pluralize(number: int, noun: str) -> str:
    """Return `1 node`, `3 nodes`, `2 batches`; the caller chooses verbs such as `is` and `are`."""
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{number} {noun}{ending}"


def near_misses(word: str, known: Iterable[str], most: int = 3, alike: float = 0.6) -> list[str]:
    """Return the names in `known` most similar to `word`, nearest first; one that differs only in case wins alone.

    Args:
        word: The misspelled word.
        known: The valid words.
        most: The maximum number of names.
        alike: The minimum similarity, from 0 to 1.
    """
    import difflib

    names = sorted(set(known))
    same = [name for name in names if name.lower() == word.lower()]
    return same[:1] or difflib.get_close_matches(word, names, most, alike)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a parenthesis with the known words nearest to `word`, or empty: `" (did you mean 'a' or 'b'?)"`."""
    near = near_misses(word, known)
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


def plain_value(text: str) -> Any:
    """Convert text that looks like a number, a Boolean or None; return other text unchanged."""
    words = {"true": True, "false": False, "none": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def html_table(rows: Iterable[Mapping[str, object]], *lines: str) -> str:
    """Return rows with the same keys as an HTML table for notebooks, and lines of text below it, all escaped."""
    import html  # used by few programs, and slow to import

    found = [list(row.items()) for row in rows]
    head = "".join(f"<th>{html.escape(key)}</th>" for key, _ in (found[0] if found else ()))
    cells = ("".join(f"<td>{html.escape('' if cell is None else str(cell))}</td>" for _, cell in row) for row in found)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if found else ""
    return table + "".join(f"<p>{html.escape(line)}</p>" for line in lines if line)
