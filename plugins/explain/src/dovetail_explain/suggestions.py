"""Suggestions of remarks: those that are a change of the request can be tried, the others are advice."""

from __future__ import annotations

import shlex

from dovetail.errors import DovetailError
from dovetail.passes import BackendChoice
from dovetail.planning.selectors import parse_pin
from dovetail.plugin import Edit, Remedy

__all__ = ["as_remedy"]


def as_remedy(text: str) -> tuple[str, Remedy] | None:
    """A suggestion as a remedy, with the backend that it names, if any: None for what is no change of a request.

    `--pin`, `--edit` and `--backend` are understood: `--pin 'relu_1=acme-npu'`, but not `pip install dovetail-verify`.
    """
    try:
        words = shlex.split(text)
        pairs = list(zip(words[::2], words[1::2], strict=True))
        pins = tuple(value for option, value in pairs if option == "--pin")
        edits = tuple(str(Edit.parse(value)) for option, value in pairs if option == "--edit")
        choices = [BackendChoice.parse(value) for option, value in pairs if option == "--backend"]
        names = {*(parse_pin(pin)[1] for pin in pins), *(choice.name for choice in choices)}
    except (ValueError, DovetailError):
        return None
    if not pairs or len(pins) + len(edits) + len(choices) < len(pairs) or len(names) > 1 or len(choices) > 1:
        return None
    options = dict(choices[0].options) if choices else {}
    return next(iter(names), ""), Remedy(text, pins, edits, options)
