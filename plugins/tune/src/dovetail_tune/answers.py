"""Answers of machines, as JSON: what crosses between machines is text, which is checked before it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail_commands.sent_tasks import InvalidAnswer, answer_in

from dovetail_tune.outside_data import (
    SIZE,
    Decibels,
    Fields,
    FiniteNumber,
    Flag,
    Form,
    ListOf,
    MapOf,
    Maybe,
    Race,
    Text,
    TupleOf,
)
from dovetail_tune.race import RaceResult

_MACHINE = MapOf(Text())
_GREETING = TupleOf((_MACHINE, ListOf(Text())))
_OUTPUT = Fields({"snr_db": Maybe(Decibels()), "top1": Maybe(FiniteNumber(0, 1)), "answers": Flag()})
_FOUND: Mapping[str, Form] = {
    "prepare": Fields(
        {
            "digest": Text(), "compile_seconds": FiniteNumber(0), "missed": ListOf(Text()), "doubts": ListOf(Text()),
            "bytes": SIZE, "coverage": Text(), "engines": ListOf(Text()),
            "verification": Fields({"broken": Flag(), "outputs": ListOf(_OUTPUT)}),
        }
    ),
    "judge": Fields({"figure": Text(), "missed": ListOf(Text())}),
    "load": Fields({"bytes": SIZE, "engines": ListOf(Text()), "seconds": FiniteNumber(0)}),
    "segment": Fields({"engines": ListOf(Text())}),
}  # fmt: skip
_ANSWER = Fields({"machine": _MACHINE, "found": MapOf(Fields({})), "race": Race(), "failed": MapOf(Text())})


@dataclass
class Answer:
    """The answer of a task.

    Attributes:
        machine: Fingerprint of the machine that it ran on.
        found: The answer of each job, by name.
        race: The race; without runners if nothing was timed.
        failed: Why a job failed, by name.
    """

    machine: Mapping[str, str]
    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    race: RaceResult = field(default_factory=RaceResult)
    failed: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, which `answer_of` reads."""
        return {**vars(self), "machine": dict(self.machine), "race": self.race.as_dict()}


def greeting_of(text: object) -> tuple[dict[str, str], list[str]]:
    """Read the answer of `tasks.greet`.

    Raises:
        InvalidAnswer: It is not valid.
        LostTask: Its machine failed.
        DovetailError: The task failed.
    """
    machine, missing = _read(text, _GREETING)
    return machine, missing


def answer_of(text: object, kinds: Mapping[str, str]) -> Answer:
    """Read the answer of `tasks.prepare` or `tasks.measure`.

    Args:
        text: What the machine sent.
        kinds: The kind of each job, by name.

    Raises:
        InvalidAnswer: It is not valid.
        LostTask: Its machine failed.
        DovetailError: The task failed.
    """
    data = _read(text, _ANSWER)
    for name, found in data["found"].items():
        if name not in kinds:
            raise InvalidAnswer(f"found: nobody asked for {name!r}")
        if why := _FOUND[kinds[name]].problem(found):
            raise InvalidAnswer(f"found: {name}: {why}")
    for part, named in (("turns", data["race"]["turns"]), ("failed", data["failed"])):
        if not named.keys() <= kinds.keys():
            raise InvalidAnswer(f"{part}: nobody asked for {min(named.keys() - kinds.keys())!r}")
    return Answer(data["machine"], data["found"], RaceResult.of(data["race"]), data["failed"])


def _read(text: object, form: Form) -> Any:
    data = answer_in(text)
    if why := form.problem(data):
        raise InvalidAnswer(why)
    return data
