"""Trials of nodes on an engine and on references, kept in a file so that an interrupted probe resumes."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.errors import DovetailError
from dovetail.plugin import EngineError, Tool, ToolEndedError

from dovetail_testing.comparing import ValueDifference, compared
from dovetail_testing.probe.observing import Outcome
from dovetail_testing.probe.worker import packed, unpacked
from dovetail_testing.time_limit import OutOfTime

if TYPE_CHECKING:
    from dovetail_testing.probe.cases import ProbeCase


_WORKER = "dovetail_testing.probe.worker"
_SECONDS = 20.0  # of one node on the engine
_COMPILE_SECONDS = 120.0  # of one node that an emitter compiles
_REFERENCE_SECONDS = 10.0  # of one on a reference, which is slow only where loops are
_AGREES = 1e-3  # of a reference with recorded results, relative to the largest value


class ProbeState:
    """The outcomes of an earlier run, and those of this one.

    Args:
        path: The file; None keeps them in memory.
        made_with: What outcomes depend on: the engine, its options, and versions. Outcomes of others are dropped.

    Attributes:
        resumed: The number of outcomes that were read.

    Raises:
        DovetailError: The file cannot be read or written, or is something else.
    """

    def __init__(self, path: Path | None, made_with: Mapping[str, Any]):
        self.path, self._known = path, dict[str, Outcome]()
        head = json.dumps({"probe": dict(made_with)}, sort_keys=True)
        if path is not None and path.exists():
            self._read(path, head)
        self.resumed = len(self._known)
        if path is not None and not self.resumed:
            self._write(path, "w", head)

    @classmethod
    def of_workers(cls, path: Path) -> ProbeState:
        """Return what workers found out, with the versions that they have.

        Raises:
            DovetailError: The file is something else.
        """
        try:
            with path.open(encoding="utf-8") as file:
                made_with = json.loads(file.readline())["probe"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DovetailError(f"{path} is not the state of a probe", "remove it, or name another output") from error
        return cls(path, made_with)

    def get(self, key: str) -> Outcome | None:
        """Return the outcome of a node; None if it must be tried."""
        return self._known.get(key)

    def add(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome."""
        self._known[key] = outcome
        if self.path is not None:
            self._write(self.path, "a", json.dumps({"node": key, **outcome.as_dict()}))

    def _write(self, path: Path, mode: str, line: str) -> None:
        try:
            with path.open(mode, encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise DovetailError(
                f"{path} could not be written: {error.strerror or error}", "name another output with -o"
            ) from error

    def _read(self, path: Path, head: str) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            first = json.loads(lines[0]) if lines else {}
            if lines and "probe" not in first:
                raise ValueError("no probe")
        except (OSError, ValueError) as error:
            raise DovetailError(f"{path} is not the state of a probe", "remove it, or name another output") from error
        if not lines or lines[0] != head:
            return  # of another engine or version
        for line in lines[1:]:
            try:
                data = json.loads(line)
                key = data.pop("node")
                self._known[key] = Outcome.from_dict(data)
            except (ValueError, KeyError, TypeError):
                continue  # the last line of a run that was killed


@dataclass
class Trials:
    """Tries nodes in processes of their own.

    Args:
        engine: The name of the engine.
        chosen: Options of the backend that it runs for.
        state: Where outcomes are kept.
        references: `onnxruntime` and `onnx`, the first one to ask first.
        backend: The backend whose emitters compile the nodes, with options; empty if the engine loads nodes.
        deadline: The time, of `time.monotonic`, after which answers do not count.
    """

    engine: str
    chosen: Mapping[str, str]
    state: ProbeState
    references: Sequence[str] = ("onnxruntime", "onnx")
    backend: str = ""
    deadline: float = math.inf

    def __post_init__(self) -> None:
        self._given = {"engine": self.engine, "chosen": dict(self.chosen), "backend": self.backend}
        seconds = _COMPILE_SECONDS if self.backend else _SECONDS
        self._tool = Tool.start(_WORKER, title=self.engine, timeout=seconds)
        self._on_engine = self._tool.opened("begin", **self._given)
        self._on_reference = Tool.start(_WORKER, title="the reference", timeout=_REFERENCE_SECONDS)
        self.tried = 0

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *_: object) -> None:
        self._tool.close()
        self._on_reference.close()

    @property
    def is_here(self) -> bool:
        """Whether nodes are tried on this machine."""
        return True

    def start(self) -> float:
        """Start the engine's process, and return the seconds that this takes.

        Raises:
            EngineError: The engine cannot be created.
            OutOfTime: The deadline has passed.
        """
        began = time.monotonic()
        try:
            self._on_engine.ask("started")
        finally:
            self._check_time()
        return time.monotonic() - began

    def outcome(self, case: ProbeCase) -> Outcome:
        """Return how a node goes, as known or by trying it.

        Raises:
            OutOfTime: The deadline passed while it was tried.
        """
        model = case.proto.SerializeToString(deterministic=True)
        key = _key(model, case.feeds)
        known = self.state.get(key)
        if known is None:
            known = self.tried_once(case)
            self.state.add(key, known)
            self.tried += 1
        return known

    def tried_once(self, case: ProbeCase) -> Outcome:
        """Try a node, and do not keep its outcome.

        Raises:
            OutOfTime: The deadline passed while it was tried.
        """
        found = self._tried(case.proto.SerializeToString(deterministic=True), case)
        self._check_time()  # else its reason would be the time limit
        return found

    def _check_time(self) -> None:
        if time.monotonic() > self.deadline:
            raise OutOfTime

    def _tried(self, model: bytes, case: ProbeCase) -> Outcome:
        inputs = {name: packed(value) for name, value in case.feeds.items()}
        expected = self._expected(model, inputs, case)
        if expected is None:
            return Outcome("", valid=False)
        try:
            answer = self._on_engine.ask("run_on_engine", model=model, inputs=inputs)
        except EngineError as error:
            return Outcome("end" if isinstance(error, ToolEndedError) else "run", error.message)
        if answer["stage"] != "done":
            return Outcome(answer["stage"], answer["reason"])
        results = {name: unpacked(value) for name, value in answer["outputs"].items()}
        found = _compared(results, expected)
        for name in self.references:
            if found.exact or (not found.broken and found.share <= _AGREES):
                break
            other = self._reference(model, inputs, name)
            if other is None:
                continue
            again = self._reference(model, inputs, name)
            if again is not None and not _compared(again, other).exact:  # random numbers
                found = ValueDifference(True, 0.0, _other_form(results, other))
                break
            found = min(found, _compared(results, other), key=lambda each: (not each.exact, each.broken, each.share))
        types = tuple(np.asarray(value).dtype.name for value in results.values() if not isinstance(value, list))
        return Outcome("done", "", found.exact, found.share, found.broken, types)

    def _expected(self, model: bytes, inputs: Mapping[str, Any], case: ProbeCase) -> Mapping[str, Any] | None:
        """Return recorded results, or those of the first reference that computes the node."""
        if case.expected:
            return case.expected
        found = (self._reference(model, inputs, name) for name in self.references)
        return next((results for results in found if results is not None), None)

    def _reference(self, model: bytes, inputs: Mapping[str, Any], name: str) -> dict[str, Any] | None:
        try:
            answer = self._on_reference.ask("run_reference", model=model, inputs=dict(inputs), name=name)
        except EngineError:
            return None
        return {key: unpacked(value) for key, value in answer.items()}


class KnownTrials(Trials):
    """Nodes that workers tried, because the engine is not on this machine.

    Attributes:
        missing: Operators with nodes that no worker had the time to try.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.missing: set[str] = set()

    @property
    def is_here(self) -> bool:
        """Whether nodes are tried on this machine."""
        return False

    def tried_once(self, case: ProbeCase) -> Outcome:
        """Return that nothing is known of a node."""
        self.missing.add(case.operator)
        return Outcome("", valid=False)

    def outcome(self, case: ProbeCase) -> Outcome:
        """Return what a worker found out of a node."""
        model = case.proto.SerializeToString(deterministic=True)
        return self.state.get(_key(model, case.feeds)) or self.tried_once(case)


def _compared(results: Mapping[str, Any], expected: Mapping[str, Any]) -> ValueDifference:
    """Return the largest difference of any output."""
    worst = ValueDifference()
    for name, value in expected.items():
        one = compared(results.get(name), value)
        if one.broken:
            return one
        if not one.exact and one.share >= worst.share:
            worst = one
    return worst


def _other_form(results: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return why random results cannot be right: another shape or type than the reference's; empty if they can."""
    for name, value in expected.items():
        a, b = np.asarray(results.get(name)), np.asarray(value)
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"'{name}' is {a.dtype.name}{list(a.shape)}, the reference gives {b.dtype.name}{list(b.shape)}"
    return ""


def _key(model: bytes, feeds: Mapping[str, Any]) -> str:
    digest = hashlib.blake2b(model, digest_size=16)
    for name, value in feeds.items():
        digest.update(name.encode())
        array = np.asarray(value, dtype=object) if isinstance(value, list) else np.asarray(value)
        digest.update(repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes())
    return digest.hexdigest()
