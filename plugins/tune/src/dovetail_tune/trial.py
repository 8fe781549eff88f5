"""Trials: what compiling, comparing and timing a candidate gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dovetail_tune.candidates import Candidate
from dovetail_tune.statistics_of_pairs import Ratio

PREPARED, FAILED, REPEATED, NOT_TRIED = "prepared", "failed", "repeated", "not tried"


@dataclass
class CandidateTrial:
    """What trying a candidate gave.

    Attributes:
        candidate: The candidate.
        status: `prepared`, `failed`, `repeated` if its result is that of another candidate, or `not tried` for lack of
            time.
        why: Why it failed or was not tried, or which candidate it repeats.
        snr_db: Signal-to-noise ratio of the worst float output on the judging samples; None without float outputs.
        answers: Share of rows with the same largest element; None without rows that are known to be scores.
        missed: Goals that it misses, in words.
        bytes: Size of the files that are needed to run it.
        coverage: The coverage line.
        engines: The engines that ran it.
        against: Ratio of its time to the baseline's; None if it was not timed.
        digest: The digest of its result; empty if it failed.
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
    digest: str = ""
    compile_seconds: float = 0.0
    run_seconds: float = 0.0

    @classmethod
    def of(cls, candidate: Candidate, entry: Mapping[str, Any]) -> CandidateTrial:
        """Return what a journal's entry says."""
        snr, against = entry["snr_db"], entry["against"]
        return cls(
            candidate, entry["status"], entry["why"], None if snr is None else float(snr), entry["answers"],
            tuple(entry["missed"]), entry["bytes"], entry["coverage"], tuple(entry["engines"]),
            None if against is None else Ratio(*against), entry["digest"],
            entry.get("compile_seconds", 0.0), entry.get("run_seconds", 0.0),
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for the journal."""
        ratio = self.against
        return {
            "candidate": self.candidate.as_dict(), "status": self.status, "why": self.why,
            "snr_db": None if self.snr_db is None else str(self.snr_db), "answers": self.answers,
            "missed": list(self.missed), "bytes": self.bytes, "coverage": self.coverage, "engines": list(self.engines),
            "against": None if ratio is None else [ratio.median, ratio.low, ratio.high, ratio.pairs],
            "digest": self.digest, "compile_seconds": self.compile_seconds, "run_seconds": self.run_seconds,
        }  # fmt: skip

    @property
    def is_valid(self) -> bool:
        """Whether it is a result of its own that meets the goals."""
        return self.status == PREPARED and not self.missed
