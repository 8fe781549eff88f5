"""Remarks: reasons of decisions, as data; their text is rendered on demand."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

_NONE: Mapping[str, str] = MappingProxyType({})


class Remedy(NamedTuple):
    """A change of a request that might bring a node to a backend; `remedy` builds one with its text.

    Attributes:
        text: The change in command-line syntax: `--backend acme-npu:revision=3`.
        pins: Pins to add.
        edits: Edits to add.
        options: Options of `backend` to change.
        backend: The backend, if pins do not name it.
        why_not: Why the backend's own tools reject the node regardless of the plan; such a remedy is not tried.
    """

    text: str
    pins: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    options: Mapping[str, str] = _NONE
    backend: str = ""
    why_not: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the remedy as JSON data, without empty fields."""
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
    """Build a remedy; its text is what to add to the command line.

    Args:
        pins: Pins to add: `relu_1=acme-npu`.
        edits: Edits to add: `unit-conv=concat_12:after`.
        options: Options of `backend` to change.
        backend: The backend, required with `options`.
        remark: The purpose of the change, appended to the text.
    """
    words = [word for pin in pins for word in ("--pin", pin)] + [word for edit in edits for word in ("--edit", edit)]
    if options:
        words += ["--backend", f"{backend}:{','.join(f'{name}={value}' for name, value in options.items())}"]
    return Remedy(" ".join(filter(None, (shlex.join(words), remark))), pins, edits, options, backend)


SLOT = "'{}'"
"""Placeholder for a quoted name in a `template`."""

_QUOTED = re.compile(r"'[^']*'")
NO_FACTS: Mapping[str, Any] = MappingProxyType({})

Kind = Literal["passed", "missed", "failed", "analysis"]

_TEXTS = ("kind", "node", "pass", "rule", "why", "reason", "suggest", "source", "backend", "format")
OF_PROGRAMS = ("artifact-facts", "engine-facts")
"""Rules of remarks on what tools and engines report of a region, at its first node that was decided on."""

_KEYS = {*_TEXTS, "because", "remedy", "facts"}


@dataclass(frozen=True, slots=True)
class Remark:
    """The reason of one decision.

    Attributes:
        kind: `passed` (done), `missed` (not done, on purpose), `failed` (attempted without success), `analysis` (a
            fact).
        node: Name of the node it is about; empty for the whole model.
        pass_: The pass or strategy that decided.
        rule: A short stable name of the rule, in kebab case.
        reason: The reason in one clause, without the parts that `backend` and `format` express.
        because: Names of the nodes that forced the decision.
        advice: Advice for the user if there is no `remedy`; or empty.
        source: File and line of the rule (`bpu_int8.yaml:34`), or empty.
        backend: The backend that does not get the node (kinds `missed` and `failed`), or that the remark is about.
        format: The format in which `backend` does not get the node; empty for all formats.
        remedy: The change of the request that might help.
        facts: The numbers and names of the reason, as JSON data: `{"term": "K", "found": 9, "allowed": "1..7"}`.
    """

    kind: Kind
    node: str
    pass_: str
    rule: str
    reason: str
    because: tuple[str, ...] = ()
    advice: str = ""
    source: str = ""
    backend: str = ""
    format: str = ""
    remedy: Remedy | None = field(default=None, hash=False)
    facts: Mapping[str, Any] = field(default_factory=lambda: NO_FACTS, hash=False)

    @property
    def why(self) -> str:
        """The reason as text: `not on acme-npu: K = 9; allowed: 1..7`."""
        if not self.backend or self.kind not in ("missed", "failed"):
            return self.reason
        where = f"not in {self.format} on {self.backend}" if self.format else f"not on {self.backend}"
        return f"{where}: {self.reason}"

    @property
    def suggest(self) -> str:
        """The cheapest way out for the user, as text; or empty."""
        return self.remedy.text if self.remedy is not None else self.advice

    def as_dict(self) -> dict[str, Any]:
        """Return the remark as in plans and `remarks.json`, without empty fields.

        `why` is included for human readers; `reason` only if it differs.
        """
        why = self.why
        found = {
            "kind": self.kind, "node": self.node, "pass": self.pass_, "rule": self.rule, "why": why,
            "because": list(self.because), "suggest": self.suggest, "source": self.source, "backend": self.backend,
            "format": self.format, "reason": "" if why == self.reason else self.reason,
            "remedy": {} if self.remedy is None else self.remedy.as_dict(), "facts": dict(self.facts),
        }  # fmt: skip
        return {key: value for key, value in found.items() if value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Remark:
        """Parse a mapping of `as_dict`.

        Raises:
            ValueError: A field is malformed.
            TypeError: A key is unknown, or `kind` or `pass` is missing.
        """
        if unknown := data.keys() - _KEYS:
            raise TypeError(f"a remark has no field {sorted(map(str, unknown))[0]!r}")
        if absent := {"kind", "pass"} - data.keys():
            raise TypeError(f"a remark has no {min(absent)!r}")
        because, facts, remedy = data.get("because", ()), data.get("facts", NO_FACTS), data.get("remedy")
        texts = {key: data.get(key, "") for key in _TEXTS}
        where = f"the remark on '{texts['node']}'"
        if not isinstance(because, (list, tuple)) or not all(isinstance(v, str) for v in (*because, *texts.values())):
            raise ValueError(f"{where} has a field that is not text")
        if not isinstance(facts, Mapping):
            raise ValueError(f"the facts of {where} are no mapping")
        if texts["kind"] not in get_args(Kind):
            raise ValueError(f"{where} has no kind {texts['kind']!r}")
        return cls(
            texts["kind"], texts["node"], texts["pass"], texts["rule"], texts["reason"] or texts["why"], tuple(because),
            "" if remedy else texts["suggest"], texts["source"], texts["backend"], texts["format"],
            Remedy.from_dict(remedy) if remedy else None, facts,
        )  # fmt: skip

    def alike(self) -> tuple[object, ...]:
        """Return a key shared by remarks with the same reason, whichever nodes they concern."""
        facts = json.dumps(dict(self.facts), sort_keys=True) if self.facts else ""
        pattern = template(self.reason)
        return self.kind, self.pass_, self.rule, pattern, self.suggest, self.source, self.backend, self.format, facts


def assumed(remarks: Iterable[Remark]) -> list[str]:
    """Return the assumptions about the whole model that the user can change, for the notes of `plan` and `compile`."""
    return [remark.why for remark in remarks if remark.kind == "analysis" and remark.suggest and not remark.node]


def template(why: str) -> str:
    """Replace quoted names by placeholders, to compare reasons."""
    return why if SLOT in why else _QUOTED.sub(SLOT, why)
