"""Remedies: changes of a request that might bring a node to a backend."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

_NONE: Mapping[str, str] = MappingProxyType({})


class Remedy(NamedTuple):
    """A change of a request that might bring a node to a backend. `remedy` makes one with its text.

    Attributes:
        text: What to do, as a command line has it: `--backend acme-npu:revision=3`.
        pins: Pins to add.
        edits: Edits to add.
        options: Options of the backend to change.
        backend: The backend, where pins do not say it.
        why_not: Why the backend's own tools refuse it, whatever the plan says: it is named as in vain, not tried.
    """

    text: str
    pins: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    options: Mapping[str, str] = _NONE
    backend: str = ""
    why_not: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the remedy as JSON has it, without empty fields."""
        pairs = (("text", self.text), ("pins", list(self.pins)), ("edits", list(self.edits)),
                 ("options", dict(self.options)), ("backend", self.backend), ("why_not", self.why_not))  # fmt: skip
        return {key: value for key, value in pairs if value}

    @classmethod
    def from_dict(cls, data: object) -> Remedy:
        """Parse a mapping of `as_dict`.

        Raises:
            ValueError: It is malformed.
        """
        if not isinstance(data, Mapping) or data.keys() - set(cls._fields):
            raise ValueError(f"{str(data)[:40]!r} is no remedy")
        lists, options = [data.get(key, []) for key in ("pins", "edits")], data.get("options", {})
        texts = [data.get(key, "") for key in ("text", "backend", "why_not")]
        if not all(isinstance(each, list) for each in lists) or not isinstance(options, Mapping):
            raise ValueError(f"{str(data)[:40]!r} is no remedy")
        if not all(isinstance(each, str) for each in (*texts, *lists[0], *lists[1], *options, *options.values())):
            raise ValueError(f"{str(data)[:40]!r} has a field that is not text")
        return cls(texts[0], tuple(lists[0]), tuple(lists[1]), dict(options), texts[1], texts[2])


def remedy(
    pins: tuple[str, ...] = (),
    edits: tuple[str, ...] = (),
    options: Mapping[str, str] = _NONE,
    backend: str = "",
    remark: str = "",
) -> Remedy:
    """Make a remedy, with what to add to the command as its text.

    Args:
        pins: Pins to add: `relu_1=acme-npu`.
        edits: Edits to add: `unit-conv=concat_12:after`.
        options: Options of `backend` to change.
        backend: The backend, which `options` need.
        remark: What it is good for, behind the command.
    """
    words = [word for pin in pins for word in ("--pin", pin)] + [word for edit in edits for word in ("--edit", edit)]
    if options:
        words += ["--backend", f"{backend}:{','.join(f'{name}={value}' for name, value in options.items())}"]
    return Remedy(" ".join(filter(None, (shlex.join(words), remark))), pins, edits, options, backend)
