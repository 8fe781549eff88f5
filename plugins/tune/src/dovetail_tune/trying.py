"""Trying one candidate: compiled, measured on the judging half, and timed beside the baseline."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dovetail_tune.candidates import Candidate
from dovetail_tune.data_split import Halves
from dovetail_tune.deadline import Deadline
from dovetail_tune.journal import Journal
from dovetail_tune.race import Turn, race
from dovetail_tune.statistics_of_pairs import Ratio
from dovetail_tune.tasks import Place, Rules, turn_of
from dovetail_tune.worker_process import Worker, WorkerError

# Of a comparison with the baseline: 16 rounds, at least 1.5 seconds; half as slow again needs no closer look.
QUICK_RULES = Rules(16, 0.5, least=1.5)
PREPARED, FAILED, REPEATED, NOT_TRIED = "prepared", "failed", "repeated", "not tried"


@dataclass
class Tried:
    """What is known about a candidate.

    Attributes:
        candidate: The candidate.
        status: `prepared`, `failed`, `repeated` if its result is that of another candidate, or `not tried` for lack of
            time.
        why: Why it failed or was not tried, or which candidate it repeats.
        snr_db: Signal-to-noise ratio of the worst float output on the judging half; None without float outputs.
        answers: Share of rows with the same largest element; None without rows of scores.
        missed: Goals that it misses, in words.
        bytes: Size of the files that are needed to run it.
        coverage: The coverage line.
        engines: The engines that ran it.
        against: Ratio of its time to the baseline's; None if it was not timed.
        compile_seconds: Seconds of compiling it.
        run_seconds: Seconds of a run of it, by the quick comparison; 0 if it was not timed.
    """

    candidate: Candidate
    status: str
    why: str = ""
    snr_db: float | None = None
    answers: float | None = None
    missed: tuple[str, ...] = ()
    bytes: int = 0
    coverage: str = ""
    engines: tuple[str, ...] = ()
    against: Ratio | None = None
    compile_seconds: float = 0.0
    run_seconds: float = 0.0

    @property
    def is_valid(self) -> bool:
        """Whether it is a result of its own that meets the goals."""
        return self.status == PREPARED and not self.missed


@dataclass
class Bench:
    """What trying needs: the files, the way to run, and what was tried before.

    Attributes:
        model: The file of the source model.
        halves: The data.
        goals: Accuracy goals as plain data.
        folder: Where results are kept.
        journal: What was tried before.
        deadline: The time that is left.
        blocked: Plugins to leave out.
        callers: Calls at the same time while timing.
        doubts: What labels say against a goal.
        digests: The candidate of each distinct result, by its digest and threads.
    """

    model: Path
    halves: Halves
    goals: Mapping[str, float]
    folder: Path
    journal: Journal
    deadline: Deadline
    blocked: tuple[str, ...] = ()
    callers: int = 1
    doubts: list[str] = field(default_factory=list)
    digests: dict[tuple[str, int], str] = field(default_factory=dict)
    _worker: Worker | None = None

    def folder_of(self, candidate: Candidate) -> Path:
        """Return the folder of a candidate's result."""
        digest = hashlib.sha256(repr(candidate.as_dict()).encode()).hexdigest()[:8]
        return self.folder / "candidates" / f"{re.sub(r'[^A-Za-z0-9.=-]+', '_', candidate.name)[:60]}-{digest}"

    def try_(self, candidate: Candidate, baseline: Turn | None) -> Tried:
        """Compile a candidate, compare it with the original, and time it beside the baseline.

        A candidate that was tried before is not tried again. Whatever goes wrong is the candidate's `why`.

        Args:
            candidate: The candidate.
            baseline: Runs the baseline; None to skip timing.
        """
        if (known := self.recalled(candidate)) is not None:
            return known
        try:
            # One process tries all candidates, because it takes seconds to import the engines.
            self._worker = self._worker or Worker(self.blocked)
            return self._tried_in(self._worker, candidate, baseline)
        except WorkerError as error:
            self.close()
            if self.deadline.is_over:
                # More time may help, so that no journal says so.
                return Tried(candidate, NOT_TRIED, "not tried to the end: the time was up")
            return self.failed(candidate, error.message)

    def close(self) -> None:
        """End the process that tries candidates; the next one starts another."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def recalled(self, candidate: Candidate) -> Tried | None:
        """Return what the journal says about a candidate; None if it was not tried, or its result is gone."""
        known = self.journal.find("candidate", candidate.name)
        if known is None or known["candidate"] != candidate.as_dict():
            return None
        tried = _tried(candidate, known)
        if tried.status == PREPARED and not (self.folder_of(candidate) / "result.json").exists():
            return None
        self.digests.setdefault((known["digest"], candidate.threads), candidate.name)
        return tried

    def turn(self, worker: Worker) -> Turn:
        """Return what runs the result that a worker holds."""
        return turn_of(worker, self.callers, self.deadline.remaining)

    @property
    def place(self) -> Place:
        """What tasks are told."""
        return Place(self.blocked, self.callers)

    def job(self, kind: str, candidate: Candidate) -> dict[str, Any]:
        """Return a job about a candidate as plain data."""
        streams = {"streams": self.callers} if self.callers > 1 else {}
        return {
            "job": kind, "candidate": candidate.as_dict(), "model": str(self.model), "goals": dict(self.goals),
            "calibrate": str(self.halves.calibrate), "judge": str(self.halves.judge),
            "folder": str(self.folder_of(candidate)), "threads": candidate.threads, **streams,
        }  # fmt: skip

    def judged(self, candidate: Candidate, answer: Mapping[str, Any]) -> Tried:
        """Return what the answer of a `prepare` job says about a candidate, which may repeat another one."""
        key = answer["digest"], candidate.threads
        other = self.digests.setdefault(key, candidate.name)
        if other != candidate.name:
            return Tried(candidate, REPEATED, f"the same result as {other}")
        compared = answer["verification"]
        if candidate.is_baseline:
            self.doubts += answer["doubts"]
        snrs = [float(o["snr_db"]) for o in compared["outputs"] if o["snr_db"] is not None]
        answers = [o["top1"] for o in compared["outputs"] if o["top1"] is not None]
        return Tried(
            candidate, PREPARED, "",
            -math.inf if compared["broken"] else min(snrs, default=None), min(answers, default=None),
            tuple(answer["missed"]), answer["bytes"], answer["coverage"], tuple(answer["engines"]),
            compile_seconds=answer["compile_seconds"],
        )  # fmt: skip

    def _tried_in(self, worker: Worker, candidate: Candidate, baseline: Turn | None) -> Tried:
        known = [digest for digest, threads in self.digests if threads == candidate.threads]
        answer = worker.ask({**self.job("prepare", candidate), "known": known}, self.deadline.remaining)
        tried = self.judged(candidate, answer)
        if baseline is not None and tried.status == PREPARED:
            name, rules = candidate.name, QUICK_RULES
            turns = {"": baseline, name: self.turn(worker)}
            quick = race(turns, rules.rounds, rules.tolerance, self._is_over, least=rules.least)
            if name in quick.failed or "" in quick.failed:
                raise WorkerError(quick.failed.get(name) or quick.failed[""])
            tried.against, tried.run_seconds = quick.ratio(name, ""), quick.seconds(name)
        return self.record(tried, answer["digest"])

    def _is_over(self) -> bool:
        return self.deadline.is_over

    def failed(self, candidate: Candidate, why: str) -> Tried:
        """Record that a candidate failed, and return that."""
        return self.record(Tried(candidate, FAILED, why))

    def record(self, tried: Tried, digest: str = "") -> Tried:
        """Record what is known of a candidate in the journal, and return it."""
        ratio = tried.against
        self.journal.record(
            "candidate", tried.candidate.name, candidate=tried.candidate.as_dict(), status=tried.status, why=tried.why,
            snr_db=None if tried.snr_db is None else str(tried.snr_db), answers=tried.answers,
            missed=list(tried.missed), bytes=tried.bytes, coverage=tried.coverage, engines=list(tried.engines),
            against=None if ratio is None else [ratio.median, ratio.low, ratio.high, ratio.pairs], digest=digest,
            compile_seconds=tried.compile_seconds, run_seconds=tried.run_seconds,
        )  # fmt: skip
        return tried


def _tried(candidate: Candidate, entry: Mapping[str, Any]) -> Tried:
    """Return what a journal's entry says."""
    snr, against = entry["snr_db"], entry["against"]
    return Tried(
        candidate, entry["status"], entry["why"], None if snr is None else float(snr), entry["answers"],
        tuple(entry["missed"]), entry["bytes"], entry["coverage"], tuple(entry["engines"]),
        None if against is None else Ratio(*against), entry.get("compile_seconds", 0.0), entry.get("run_seconds", 0.0),
    )  # fmt: skip
