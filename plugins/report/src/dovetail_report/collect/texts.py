"""Text of untrusted models, bounded for a page."""

from __future__ import annotations

from dovetail.text import printable

NAME, SENTENCE = 200, 2000
"""Maximum characters of a name and of a sentence in a report."""


def short(text: object, most: int = NAME) -> str:
    """Return `text` with control characters escaped, cut after `most` characters; the cut says how long it was."""
    raw = str(text)
    if len(raw) <= most and raw.isascii() and raw.isprintable():  # as nearly all names
        return raw
    shown = printable(raw[:most])
    return shown if len(raw) <= most else f"{shown}… ({len(raw)} characters)"


class Interned:
    """Distinct texts, each with an index: columns of a table hold the index."""

    def __init__(self, most: int = NAME):
        self.texts: list[str] = []
        self._most = most
        self._found: dict[str, int] = {}

    def index(self, text: str) -> int:
        """Return the index of `text`, which is added if it is new."""
        found = self._found.get(text)
        if found is None:
            found = self._found[text] = len(self.texts)
            self.texts.append(short(text, self._most))
        return found
