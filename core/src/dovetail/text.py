"""Text for people: plural forms, near misses, and text of strangers made safe to show."""

from __future__ import annotations

import re
from collections.abc import Iterable

# C0 and C1 controls, DEL, line and paragraph separators, and the marks that reorder text on a terminal.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_BUT_NEWLINE = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))


def printable(text: object, *, lines: bool = False) -> str:
    r"""`text` with its control characters escaped as Python writes them: `"\x1b[31m"` is shown as `\x1b[31m`.

    Names come from models that anybody may have written; printed raw they could move the cursor, color or clear the
    terminal, or imitate our own messages.

    Args:
        text: What is to be shown.
        lines: Keep line feeds: for text of several lines that we wrote ourselves.
    """
    pattern = _UNSAFE_BUT_NEWLINE if lines else _UNSAFE
    return pattern.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode("ascii"), str(text))


def pluralize(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`, `2 batches`; words like `is` and `are` are the caller's."""
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{number} {noun}{ending}"


def near_misses(word: str, known: Iterable[str], most: int = 3, alike: float = 0.6) -> list[str]:
    """The names in `known` that look most like `word`, the nearest first; another case of it is the only one.

    Args:
        word: What was written.
        known: What could have been.
        most: How many at most.
        alike: How much alike they must be, from 0 to 1.
    """
    import difflib

    names = sorted(set(known))
    same = [name for name in names if name.lower() == word.lower()]
    return same[:1] or difflib.get_close_matches(word, names, most, alike)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A parenthesis with the known words nearest to `word`, or empty: `" (did you mean 'a' or 'b'?)"`."""
    near = near_misses(word, known)
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
