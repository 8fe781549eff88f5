"""The file `verification.json` of a result: the comparison with its original, as it was made when it was compiled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import DovetailError
from dovetail.text import printable

from dovetail_onnx.files.parsing import Malformed, parse_json

if TYPE_CHECKING:
    from dovetail.plugin import Verification

_TEXT_LISTS, _TEXTS = ("lines", "notes", "warnings", "missed"), ("short", "advice")


class SavedComparison(NamedTuple):
    """A comparison that was read from a file; see `dovetail.plugin.Verification`.

    Attributes:
        figures: Its figures as plain data.
        report: Its report as lines of text.
        notes: Notes on its figures.
        warnings: Alarming findings.
        advice: What to do about the warnings, or empty.
        missed: The goals that are not met.
        broken: Whether the result does not approximate the original.
        summary: Its part of the coverage line.
    """

    figures: dict[str, Any]
    report: list[str]
    notes: list[str]
    warnings: list[str]
    advice: str
    missed: list[str]
    broken: bool
    summary: str

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        return self.report

    def short(self) -> str:
        """Return its part of the coverage line."""
        return self.summary

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return self.figures


def comparison_text(found: Verification) -> str:
    """Return the text of a comparison."""
    figures = {key: value for key, value in found.as_dict().items() if key != "layers"}
    document = {
        "figures": figures, "lines": found.lines(), "short": found.short(), "advice": found.advice,
        "notes": list(found.notes), "warnings": list(found.warnings),
        "missed": list(map(str, found.missed)), "broken": found.broken,
    }  # fmt: skip
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def parse_comparison(content: bytes, name: str) -> SavedComparison:
    """Parse the output of `comparison_text`.

    Raises:
        DovetailError: It is malformed.
    """
    try:
        data = parse_json(content, finite=True)
        lists = {key: [printable(_text(one)) for one in data[key]] for key in _TEXT_LISTS}
        texts = {key: printable(_text(data[key])) for key in _TEXTS}
        if not isinstance(data["figures"], dict) or not isinstance(data["broken"], bool):
            raise TypeError("figures that are not a mapping, or a verdict that is not a truth value")
    except (Malformed, ValueError, TypeError, KeyError) as error:
        what = f"{name} is not what `dovetail compile` writes ({type(error).__name__}: {error})"
        raise DovetailError(what, "compile again into this folder") from None
    return SavedComparison(
        data["figures"], lists["lines"], lists["notes"], lists["warnings"], texts["advice"], lists["missed"],
        data["broken"], texts["short"],
    )  # fmt: skip


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]!r} is not text")
    return value
