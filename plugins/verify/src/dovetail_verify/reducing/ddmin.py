"""Delta debugging: the smallest subset that still fails, by removing ever smaller parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


def minimized(items: Sequence[_Item], fails: Callable[[Sequence[_Item]], bool]) -> list[_Item]:
    """Return a subset that fails, and of which no single item can be removed.

    The algorithm is ddmin (Zeller and Hildebrandt, 2002). One item that fails alone is found in about 2 log2(n) tests.

    Args:
        items: The items, which fail together; neighbors should belong together.
        fails: Tests a subset, which is in the order of `items`.
    """
    left = list(items)
    parts = 2
    while len(left) > 1:
        parts = min(parts, len(left))
        chunks = [left[len(left) * at // parts : len(left) * (at + 1) // parts] for at in range(parts)]
        alone = next((chunk for chunk in chunks if fails(chunk)), None)
        if alone is not None:
            left, parts = alone, 2
            continue
        before = len(left)
        # Each chunk is removed at most once for a size, so that items that must stay are not tested again and again.
        for at in range(len(chunks)) if parts > 2 else ():
            rest = [item for other, chunk in enumerate(chunks) if other != at for item in chunk]
            if rest and fails(rest):
                chunks[at] = []
                left = rest
        if len(left) < before:
            parts = max(2, sum(map(bool, chunks)))
        elif parts == before:
            break
        else:
            parts *= 2
    return left
