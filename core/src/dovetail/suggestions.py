"""Near misses: what somebody probably meant."""

from __future__ import annotations

from collections.abc import Iterable


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
