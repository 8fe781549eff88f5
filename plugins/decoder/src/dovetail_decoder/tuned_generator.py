"""The outcome of tuning a language model: a table of the candidates, and the winner's folder."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.planning import HOST
from dovetail_tune.folders import MORE_TIME, TunedFolder, no_winner
from dovetail_tune.statistics_of_pairs import MARGIN, Ratio, ratio_of

from dovetail_decoder.saving import copy_folder

if TYPE_CHECKING:
    from dovetail_decoder.folder import GeneratorFolder
    from dovetail_decoder.timing import Times


@dataclass
class Trial:
    """One candidate.

    Attributes:
        spec: Its backend with options.
        folder: The folder of its result.
        threads: Threads of each session; 0 for ONNX Runtime's own choice.
        reason: Why it competes, as a clause.
        kl, top1, agreement: Accuracy on the prompts that candidates are compared on, as in `Comparison`; None if it was
            not measured.
        bytes: Size of its models.
        memory: Peak memory of a process that runs it, in bytes.
        turns: Times of each round of the race that it took part in.
        meets: Whether it runs and meets the goals.
        why: Its outcome, in words; empty for a candidate that raced.
        is_tried: Whether there was time for it.
        rise: The relative increase of these prompts' perplexity over the source's; None if unknown.
    """

    spec: str
    folder: Path
    threads: int = 0
    kl: float | None = None
    top1: float | None = None
    agreement: float | None = None
    bytes: int = 0
    memory: int | None = None
    turns: list[Times] = field(default_factory=list)
    meets: bool = False
    why: str = ""
    is_tried: bool = True
    rise: float | None = None
    reason: str = ""

    @property
    def name(self) -> str:
        """Name for the table."""
        return f"{self.spec} @{self.threads}" if self.threads else self.spec

    @property
    def tokens(self) -> list[float]:
        """Seconds of a token in each round."""
        return [turn.token for turn in self.turns]

    @property
    def token(self) -> float:
        """Median seconds of a token."""
        return statistics.median(self.tokens)

    def with_threads(self, threads: int) -> Trial:
        """Return this candidate before the race, with a number of threads."""
        made = copy.copy(self)
        made.threads, made.turns = threads, []
        return made

    def row(self) -> dict[str, str]:
        """Return the cells of the table."""
        prefill = statistics.median(turn.prefill for turn in self.turns) if self.turns else None
        return {
            "candidate": self.name,
            "prefill ms per 100 tokens": "" if prefill is None else f"{1e3 * prefill:.3g}",
            "tokens per second": f"{1 / self.token:.4g}" if self.turns else "",
            "memory MB": "" if self.memory is None else f"{self.memory / 1e6:.4g}",
            "size MB": f"{self.bytes / 1e6:.3g}" if self.bytes else "",
            "KL": "" if self.kl is None else f"{self.kl:.3g}",
            "perplexity": "" if self.rise is None else f"{100 * self.rise:+.3g} %",
            "same tokens": "" if self.agreement is None else f"{100 * self.agreement:.1f} %",
            "remark": self.why,
        }

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "backend": self.spec, "reason": self.reason, "threads": self.threads, "kl": self.kl, "top1": self.top1,
            "same_tokens": self.agreement, "perplexity_rise": self.rise, "bytes": self.bytes, "memory": self.memory,
            "prefill_seconds": [turn.prefill for turn in self.turns], "token_seconds": self.tokens,
            "meets_goals": self.meets, "remark": self.why,
        }  # fmt: skip


class TunedGenerator(TunedFolder):
    """The outcome of tuning a language model.

    Args:
        source: The source folder.
        trials: All candidates, the host first.
        notes: Notes on the data.
        streams: Texts that were made at the same time.
        held: Keeps the candidates' folders; closed when this object goes.
        judged: What the winner has on prompts that no candidate saw, in words; empty if it was not judged.

    Attributes:
        trials: As given.
        winner: The candidate that needs the least time for a token within the goals, or None.
    """

    def __init__(
        self, source: GeneratorFolder, trials: Sequence[Trial], notes: Sequence[str], streams: int, held: ExitStack,
        judged: str = "",
    ):  # fmt: skip
        self._source, self._notes, self._streams, self._held = source, notes, streams, held
        self.trials, self.judged = list(trials), judged
        self.winner = winner_of(self.trials)
        self.is_met = self.winner is not None
        not_tried = [trial for trial in self.trials if not trial.is_tried]
        if not_tried:
            self.problem, self.way_out = no_winner(len(self.trials), len(not_tried)), MORE_TIME

    def save(self, folder: str | Path) -> None:
        """Write the winner's folder; see `TunedFolder.save`."""
        if self.winner is None:
            raise DovetailError(f"there is nothing to save: {self.problem}", self.way_out)
        copy_folder(self._source, self.winner.folder, Path(folder), self.winner.threads)

    def rows(self) -> list[dict[str, str]]:
        """Return the table, a row for each candidate."""
        return [trial.row() for trial in self.trials]

    def lines(self) -> list[str]:
        """Return the winner, and the others that its times do not distinguish from it."""
        if self.winner is None:
            return list(self._notes)
        winner, base = self.winner, self.trials[0]
        found = [f"fastest within the goals: {winner.name}, {1 / winner.token:.4g} tokens per second"]
        if self._streams > 1:
            found[0] += f" of {self._streams} streams"
        if winner is not base and base.turns:
            found.append(f"a token takes {_paired(winner, base)} of the time of '{base.name}'")
        if self.judged:
            found.append(f"on prompts that no candidate saw: {self.judged}")
        rivals = [other for other in self.trials if other.meets and other.turns and other is not winner]
        found += [
            f"times do not tell {other.name} from it: a token takes {_paired(other, winner)}"
            for other in rivals
            if _paired(other, winner).low <= 1 + MARGIN
        ]
        return [*found, *self._notes]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "winner": self.winner and self.winner.name, "judged": self.judged, "streams": self._streams,
            "candidates": [trial.as_dict() for trial in self.trials], "notes": list(self._notes),
        }  # fmt: skip


def winner_of(trials: Sequence[Trial]) -> Trial | None:
    """Return the fastest that meets the goals; the source's own types win where nothing is clearly faster."""
    raced = [trial for trial in trials if trial.meets and trial.turns]
    if not raced:
        return None
    fastest = min(raced, key=lambda trial: trial.token)
    exact = next((trial for trial in raced if trial.spec == HOST), None)
    if exact is not None and exact is not fastest and _paired(exact, fastest).median <= 1 + MARGIN:
        return exact
    return fastest


def _paired(one: Trial, other: Trial) -> Ratio:
    """Return the ratio of times of a token in the rounds that both ran."""
    rounds = min(len(one.turns), len(other.turns))
    return ratio_of(one.tokens[:rounds], other.tokens[:rounds])
