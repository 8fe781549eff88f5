"""The runner of trials: candidates are compiled, compared with the source, and timed beside the baseline."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dovetail.plugin import EngineError

from dovetail_tune.candidates import Candidate
from dovetail_tune.data_folders import DataFolders, as_plain
from dovetail_tune.deadline import Deadline
from dovetail_tune.journal import Journal
from dovetail_tune.trial import FAILED, NOT_TRIED, PREPARED, REPEATED, CandidateTrial
from dovetail_tune.worker_pool import Pending, RaceMeasurement, WorkerPool

_ROUNDS, _SECONDS = 16, 1.5  # of a comparison with the baseline at least
_TOLERANCE = 0.5  # half as slow again needs no closer look
_TIME_UP = "not tried to the end: the time was up"
_SHARE = 0.5  # of the time that is left, what one candidate may take
_LIKE_BASELINE = 3.0  # times what the baseline took, which every candidate may take


class Judgment(NamedTuple):
    """What a result has on samples that no candidate saw: its figure in words, and the goals that it misses."""

    figure: str
    missed: Sequence[str]


class _Submitted(NamedTuple):
    """A compilation that was submitted, and when its time is up."""

    pending: Pending
    deadline: Deadline


@dataclass
class TrialRunner:
    """Runs trials on a pool of workers, and keeps them in the journal.

    Attributes:
        model: The file of the source model.
        data: The data.
        goals: Accuracy goals as plain data.
        folder: Where results are kept.
        journal: What was tried before.
        deadline: The time that is left.
        pool: Where candidates are compiled and timed.
        baseline: What the others are timed beside; it is tried first.
        doubts: What labels say against a goal.
        digests: The candidate of each distinct result, by its digest and threads.
        baseline_seconds: What preparing the baseline took; 0 if that is not known.
        load_seconds: What loading a result in a new process took at most; 0 if none was loaded yet.
    """

    model: Path
    data: DataFolders
    goals: Mapping[str, float]
    folder: Path
    journal: Journal
    deadline: Deadline
    pool: WorkerPool
    baseline: Candidate
    doubts: list[str] = field(default_factory=list)
    digests: dict[tuple[str, int], str] = field(default_factory=dict)
    baseline_seconds: float = 0.0
    load_seconds: float = 0.0

    def run(self, candidates: Sequence[Candidate], step: Callable[[str], None]) -> Iterator[CandidateTrial]:
        """Yield a trial of each candidate, in their order; what was tried before is not tried again.

        All are submitted together. A candidate is timed once it is known that no candidate in front of it has the same
        result. Whatever goes wrong is the trial's `why`. One that takes much longer than the
        baseline does not get the time of all others.

        Args:
            candidates: The candidates, at most as many as the pool takes at once.
            step: Called with the name of each candidate before its answer is awaited.

        Raises:
            LostError: No machine answers; the journal has everything up to then.
        """
        submitted = [(one, self._submitted(one)) for one in candidates]
        for trial, timing in [self._prepared(*one, step) for one in submitted]:
            yield trial if timing is None else self._timed(trial, timing)

    def folder_of(self, candidate: Candidate) -> Path:
        """Return the folder of a candidate's result."""
        digest = hashlib.sha256(repr(candidate.as_dict()).encode()).hexdigest()[:8]
        return self.folder / "candidates" / f"{re.sub(r'[^A-Za-z0-9.=-]+', '_', candidate.name)[:60]}-{digest}"

    def job(self, kind: str, candidate: Candidate) -> dict[str, Any]:
        """Return a job about a candidate as plain data."""
        callers = self.pool.settings.callers
        streams = {"streams": callers} if callers > 1 else {}
        return {
            "job": kind, "candidate": candidate.as_dict(), "model": str(self.model), "goals": dict(self.goals),
            "calibrate": as_plain(self.data.calibrate), "search": as_plain(self.data.search),
            "folder": str(self.folder_of(candidate)), "threads": candidate.threads, **streams,
        }  # fmt: skip

    @property
    def loading_seconds(self) -> float:
        """What loading a result in a new process takes, as far as that is known; 0 if it is not."""
        return self.load_seconds or self.baseline_seconds

    def judged(self, candidate: Candidate) -> Judgment | None:
        """Judge the result of a candidate on the samples that no candidate saw; None if there are none, or no time.

        Raises:
            EngineError: The result cannot be run.
        """
        if self.data.judge is None:
            return None
        known = self.journal.find("judgment", candidate.name)
        if known is None:
            if self.deadline.remaining < self.loading_seconds or self.pool.gone:
                return None
            job = {**self.job("judge", candidate), "judge": as_plain(self.data.judge)}
            try:
                answer = self.pool.prepare(job, self.deadline)()
            except TimeoutError:
                return None
            if answer.failed:
                if self.deadline.is_over or self.pool.gone:
                    return None
                raise EngineError(answer.failed[""])
            known = self.journal.record("judgment", candidate.name, **answer.found[""])
        return Judgment(known["figure"], tuple(known["missed"]))

    def _recalled(self, candidate: Candidate) -> CandidateTrial | None:
        """Return what the journal says about a candidate; None if it was not tried, or its result is gone."""
        known = self.journal.find("candidate", candidate.name)
        if known is None or known["candidate"] != candidate.as_dict():
            return None
        trial = CandidateTrial.of(candidate, known)
        if trial.status == PREPARED and not (self.folder_of(candidate) / "result.json").exists():
            return None
        self.digests.setdefault((trial.digest, candidate.threads), candidate.name)
        return trial

    def _submitted(self, candidate: Candidate) -> CandidateTrial | _Submitted:
        """Submit the compilation of a candidate, unless it was tried before, or no time is left."""
        if (known := self._recalled(candidate)) is not None:
            return known
        if self.deadline.is_over or self.pool.gone:
            return CandidateTrial(candidate, NOT_TRIED, f"not tried: {self.pool.gone or 'the time was up'}")
        known_digests = [digest for digest, threads in self.digests if threads == candidate.threads]
        deadline = self.deadline
        if self.pool.at_once == 1 and candidate != self.baseline:
            deadline = deadline.within(max(_SHARE * deadline.remaining, _LIKE_BASELINE * self.baseline_seconds))
        job = {**self.job("prepare", candidate), "known": known_digests}
        return _Submitted(self.pool.prepare(job, deadline), deadline)

    def _prepared(
        self, candidate: Candidate, submitted: CandidateTrial | _Submitted, step: Callable[[str], None]
    ) -> tuple[CandidateTrial, Pending | None]:
        """Return the trial of a candidate, and its pending timing; None if it is not timed."""
        if isinstance(submitted, CandidateTrial):
            if submitted.status != NOT_TRIED:
                step(candidate.name)
            return submitted, None
        step(candidate.name)
        begun = self.deadline.elapsed
        try:
            answer = submitted.pending()
        except TimeoutError:
            return CandidateTrial(candidate, NOT_TRIED, _TIME_UP), None
        if candidate == self.baseline:
            self.baseline_seconds = self.deadline.elapsed - begun
        if answer.failed:
            return self._without_result(candidate, answer.failed[""], submitted.deadline), None
        trial = self._judged(candidate, answer.found[""])
        if trial.status != PREPARED or candidate == self.baseline:
            return self._recorded(trial), None
        return trial, self._timing(candidate)

    def _judged(self, candidate: Candidate, found: Mapping[str, Any]) -> CandidateTrial:
        """Return what the answer of a `prepare` job says about a candidate, which may repeat another one."""
        digest = found["digest"]
        other = self.digests.setdefault((digest, candidate.threads), candidate.name)
        if other != candidate.name:
            return CandidateTrial(candidate, REPEATED, f"the same result as {other}", digest=digest)
        compared = found["verification"]
        if candidate == self.baseline:
            self.doubts += found["doubts"]
        snrs = [float(o["snr_db"]) for o in compared["outputs"] if o["snr_db"] is not None]
        # Rows of logits and of an embedding look alike, unless somebody says which they are.
        are_asked = "min_top1" in self.goals
        rows = [o for o in compared["outputs"] if o["top1"] is not None]
        answers = [o["top1"] for o in rows if o["answers"] or are_asked]
        return CandidateTrial(
            candidate, PREPARED, "",
            -math.inf if compared["broken"] else min(snrs, default=None), min(answers, default=None),
            tuple(found["missed"]), found["bytes"], found["coverage"], tuple(found["engines"]),
            digest=digest, compile_seconds=found["compile_seconds"],
        )  # fmt: skip

    def _timing(self, candidate: Candidate) -> Pending:
        """Submit the comparison of a candidate with the baseline."""
        jobs = {name: self.job("load", one) for name, one in (("", self.baseline), (candidate.name, candidate))}
        return self.pool.measure(RaceMeasurement(jobs, _ROUNDS, _TOLERANCE, least=_SECONDS), self.deadline)

    def _timed(self, trial: CandidateTrial, timing: Pending) -> CandidateTrial:
        """Add the ratio to the baseline, and record the trial."""
        name = trial.candidate.name
        try:
            answer = timing()
            is_over = self.deadline.is_over or self.pool.gone
            if "" in answer.failed and name not in answer.failed and not is_over:
                # That the baseline's process ended says nothing about this candidate.
                answer = self._timing(trial.candidate)()
        except TimeoutError:
            return CandidateTrial(trial.candidate, NOT_TRIED, _TIME_UP)
        if why := answer.failed.get(name) or answer.failed.get(""):
            return self._without_result(trial.candidate, why, self.deadline)
        self.load_seconds = max([self.load_seconds, *(one.get("seconds", 0.0) for one in answer.found.values())])
        trial.against, trial.run_seconds = answer.race.ratio(name, ""), answer.race.seconds(name)
        return self._recorded(trial)

    def _without_result(self, candidate: Candidate, why: str, deadline: Deadline) -> CandidateTrial:
        """Record that a candidate failed, unless that may be for lack of time or workers: no journal speaks of it."""
        if self.pool.gone:
            return CandidateTrial(candidate, NOT_TRIED, f"not tried to the end: {why}")
        if self.deadline.is_over:
            return CandidateTrial(candidate, NOT_TRIED, _TIME_UP)
        if deadline.is_over:
            return CandidateTrial(candidate, NOT_TRIED, "not tried to the end: it took the time of the others")
        return self._recorded(CandidateTrial(candidate, FAILED, why))

    def _recorded(self, trial: CandidateTrial) -> CandidateTrial:
        self.journal.record("candidate", trial.candidate.name, **trial.as_dict())
        return trial
