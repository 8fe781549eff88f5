"""The outcome of a tuning: a table of what was tried, the winner, and what is to be said about it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.text import abbreviated, html_table, pluralize
from dovetail_onnx.files.writing import write_text

from dovetail_tune.candidates import Candidate, CandidateSet
from dovetail_tune.folders import MORE_TIME, no_winner
from dovetail_tune.statistics_of_pairs import MARGIN, Ratio

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel

REPORT = "tune.json"
_VAGUE = 0.25  # of a time, the spread above which it is not told


@dataclass
class TunedCandidate:
    """One candidate in the table.

    Attributes:
        candidate: The candidate.
        seconds: Median seconds of a run; None if it was not timed.
        against: Ratio of its time to the baseline's; None for the baseline, and if it was not timed.
        snr_db: Signal-to-noise ratio of the worst float output on the samples that candidates are compared on.
        answers: Share of rows with the same largest element; None without rows that are known to be scores.
        bytes: Size of the files that are needed to run it.
        memory: Bytes by which its process grew when it was loaded and run; None unless it was in the last race.
        engines: The engines that ran it.
        remark: What became of it, in words: why it failed or lost.
        meets: Whether it meets the goals.
        spread: Half the width of the 95 % interval of `seconds`, relative to them; infinite if it is unknown.
    """

    candidate: Candidate
    seconds: float | None = None
    against: Ratio | None = None
    snr_db: float | None = None
    answers: float | None = None
    bytes: int = 0
    memory: int | None = None
    engines: tuple[str, ...] = ()
    remark: str = ""
    meets: bool = False
    spread: float = math.inf

    @property
    def is_well_timed(self) -> bool:
        """Whether its seconds are known well enough to be told; those of a busy machine are not."""
        return self.seconds is not None and self.spread <= _VAGUE

    def row(self) -> dict[str, str]:
        """Return the cells of the table."""
        against = self.against
        return {
            "candidate": self.candidate.name,
            "ms": f"{1000 * self.seconds:.3g}" if self.seconds is not None and self.is_well_timed else "",
            "of host": "" if against is None else against.text,
            "SNR dB": _decibels(self.snr_db),
            "answers": "" if self.answers is None else f"{100 * self.answers:.2f}%",
            "MB": f"{self.bytes / 1e6:.3g}" if self.bytes else "",
            "memory MB": "" if self.memory is None else f"{self.memory / 1e6:.0f}",
            "engines": ", ".join(self.engines),
            "remark": self.remark,
        }

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        ratio = self.against
        return {
            **self.candidate.as_dict(), "why": self.candidate.why, "seconds": self.seconds,
            "seconds_spread": self.spread if math.isfinite(self.spread) else None,
            "against_host": None if ratio is None else vars(ratio),
            "snr_db": self.snr_db if self.snr_db is None or math.isfinite(self.snr_db) else str(self.snr_db),
            "answers": self.answers, "bytes": self.bytes, "memory_bytes": self.memory,
            "engines": list(self.engines), "remark": self.remark, "meets_goals": self.meets,
        }  # fmt: skip


@dataclass(repr=False)
class Tuned:
    """The outcome for one model.

    Attributes:
        model: Name of the model.
        entries: Every candidate, fastest first; those without a time last.
        winner: The fastest candidate that meets the goals; None if none does.
        compiled: The winner's result; None if there is no winner.
        not_tried: Names of candidates for which there was no time.
        notes: What limits the figures, as sentences.
        judged: What the winner has on samples that no candidate saw, in words; empty if it was not judged on any.
        too_few: Why the goal is not called met although the winner does not miss it, as a clause; empty if it is met.
        certificate: How far the winner may be from the best plan, as a sentence; empty without one.
        front: Predicted plans that are the fastest for their noise, as (share of the host's time, SNR in dB).
    """

    model: str
    entries: list[TunedCandidate] = field(default_factory=list)
    winner: TunedCandidate | None = None
    compiled: CompiledModel | None = field(default=None, repr=False)
    not_tried: Sequence[str] = ()
    notes: list[str] = field(default_factory=list)
    judged: str = ""
    too_few: str = ""
    certificate: str = ""
    front: Sequence[tuple[float, float]] = ()

    def __repr__(self) -> str:
        return f"<Tuned {self.model}: {self.lines()[0]}; {pluralize(len(self.entries), 'candidate')}>"

    def _repr_html_(self) -> str:
        """Return the table and what won, for notebooks."""
        return html_table(self.rows(), *self.lines(), *self.notes)

    def rows(self) -> list[dict[str, str]]:
        """Return the rows of the table; columns without any figure are left out."""
        rows = [entry.row() for entry in self.entries]
        used = [key for key in (rows[0] if rows else ()) if any(row[key] for row in rows)]
        return [{key: row[key] for key in used} for row in rows]

    def lines(self) -> list[str]:
        """Return the winner and the certificate as lines."""
        if self.winner is None:
            return [self.problem]
        against = self.winner.against
        how = "" if against is None else f", {1 / against.median:.2f} times as fast as the host alone"
        within = "fastest of those that do not miss the goal" if self.too_few else "fastest within the goal"
        line = f"{within}: {self.winner.candidate.name}{how}"
        judged = f"on samples that no candidate saw: {self.judged}" if self.judged else ""
        too_few = f"the goal is not called met: {self.too_few}" if self.too_few else ""
        return [line, *filter(None, (judged, too_few, self.certificate))]

    @property
    def problem(self) -> str:
        """Why there is no winner, in words; empty if there is one."""
        return "" if self.winner is not None else no_winner(len(self.entries), len(self.not_tried))

    @property
    def way_out(self) -> str:
        """What to do without a winner."""
        if self.not_tried:
            return MORE_TIME
        if any(entry.snr_db is not None and not entry.meets for entry in self.entries):
            return "lower the goal, or give more data; the table says what each of them misses"
        return "the table says why each of them was left out"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "model": self.model, "winner": self.winner.as_dict() if self.winner else None,
            "candidates": [entry.as_dict() for entry in self.entries], "notes": list(self.notes),
            "not_tried": list(self.not_tried), "certificate": self.certificate,
            "judged": self.judged, "too_few": self.too_few,
            "front": [[share, snr if math.isfinite(snr) else "inf"] for share, snr in self.front],
        }  # fmt: skip

    def save(self, folder: str | Path) -> None:
        """Write the winner's result as `compile` does; in a folder, the table is beside it in `tune.json`.

        Raises:
            DovetailError: There is no winner, or the folder cannot be written.
        """
        from dovetail.errors import DovetailError

        if self.compiled is None:
            raise DovetailError(f"there is nothing to save: {self.problem}", self.way_out)
        self.compiled.save(folder)
        if Path(folder).is_dir():  # other stores keep a result in one file
            write_text(Path(folder) / REPORT, json.dumps(self.as_dict(), indent=2) + "\n")


def vague_times(entries: Sequence[TunedCandidate]) -> list[str]:
    """Return a sentence if seconds of an entry were measured, and not well enough to be told."""
    vague = [entry.candidate.name for entry in entries if entry.seconds is not None and not entry.is_well_timed]
    if not vague:
        return []
    why = f"a spread above {100 * _VAGUE:.0f} %, or too few turns for one"
    return [f"no milliseconds are told of {abbreviated(', '.join(vague))}: {why}"]


def slower_integers(
    entries: Sequence[TunedCandidate], candidates: CandidateSet, winner: TunedCandidate | None = None
) -> list[str]:
    """Return a sentence if the fastest candidate in integers is no faster than floats that do not miss the goal.

    Args:
        entries: The entries; mixtures count for neither, nor what was not timed well.
        candidates: What competes.
        winner: The winner; one in integers needs no such sentence.
    """
    timed = [entry for entry in entries if entry.is_well_timed and not entry.candidate.is_mixed]
    integers = [entry for entry in timed if candidates.has_integers(entry.candidate)]
    floats = [entry for entry in timed if not candidates.has_integers(entry.candidate) and entry.meets]
    if not integers or not floats or winner is not None and candidates.has_integers(winner.candidate):
        return []
    ours, theirs = (min(found, key=lambda entry: entry.seconds or 0.0) for found in (integers, floats))
    ratio = (ours.seconds or 0.0) / (theirs.seconds or math.inf)
    if ratio < 1 - MARGIN:
        return []
    what = f"{ours.candidate.name} takes {ratio:.2f} of the time of {theirs.candidate.name}"
    return [f"integers are not faster here: {what}, which computes in floats"]


def combined(outcomes: Mapping[str, Tuned | str]) -> list[dict[str, str]]:
    """Return one row per model of several: its winner, or why there is none."""
    rows = []
    for name, outcome in outcomes.items():
        winner = outcome.winner if isinstance(outcome, Tuned) else None
        blank = TunedCandidate(Candidate("", ())).row()
        row = {"model": name, **(winner.row() if winner is not None else blank)}
        if winner is None:
            row["remark"] = outcome if isinstance(outcome, str) else outcome.problem
        rows.append(row)
    return rows


def _decibels(snr: float | None) -> str:
    if snr is None:
        return ""
    return "exact" if snr == math.inf else "broken" if snr == -math.inf else f"{snr:.1f}"
