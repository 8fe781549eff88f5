"""The contest: every candidate is tried, the best few race as whole models, and the fastest within the goals wins."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError

from dovetail_tune.candidates import Candidate, Candidates
from dovetail_tune.deadline import Deadline
from dovetail_tune.mixing import Mixing
from dovetail_tune.outcome import Entry, Tuned, slower_integers
from dovetail_tune.outside_data import unknown
from dovetail_tune.race import RaceResult
from dovetail_tune.tasks import Rules, loaded_and_raced
from dovetail_tune.together import try_together
from dovetail_tune.trying import FAILED, NOT_TRIED, PREPARED, Bench, Tried
from dovetail_tune.verdict import doubts_of, winner_of
from dovetail_tune.worker_process import Worker, WorkerError

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.plugin import PluginSet

    from dovetail_tune.hosts import Hosts
    from dovetail_tune.race import Turn

_FINALISTS = 4  # results that are loaded at the same time in the last race
_ROUNDS = 20  # of a heat
_HEATS = 3  # each in fresh processes
_HEAT = 2.0  # seconds of a heat at least
_TOLERANCE = 0.03  # a difference that is not worth a longer race
_GRACE = 120.0  # seconds to load a result that was found, whatever is left of the budget
_TRYING, _MIXING = 0.6, 0.8  # shares of the budget after which single candidates and mixtures are no longer tried
_SEARCH = 12  # compilations in the time of a search for nodes to raise: measured as 5 to 12
_CLOSE = 1.1  # a finalist may have taken at most this times what the best one may have, by the quick comparison


class Contest:
    """Tries candidates against the baseline, and lets the best race.

    Args:
        bench: Compiles, measures and times.
        candidates: The candidates, the baseline first.
        original: The source model.
        plugins: The plugins.
        progress: Called with (what, done, total).
        hosts: The machines to compile and time on; None for processes on this one.
    """

    def __init__(
        self,
        bench: Bench,
        candidates: Candidates,
        original: Model,
        plugins: PluginSet,
        progress: Callable[[str, int, int], None] | None = None,
        hosts: Hosts | None = None,
    ):
        self._bench, self._candidates, self._hosts = bench, candidates, hosts
        self._original, self._plugins = original, plugins
        self._progress = progress
        self._tried: dict[str, Tried] = {}
        self._done, self._total = 0, len(candidates.found) + 1
        self._notes = [bench.halves.text]
        self._bound: float | None = None
        self._unproven = ""
        self._segments = 0
        self._front: Sequence[tuple[float, float]] = ()

    def run(self, mixed: bool) -> Tuned:
        """Return the outcome.

        Args:
            mixed: Whether plans that mix candidates compete.

        Raises:
            DovetailError: The host cannot run the model, or the time is up before it did.
        """
        if self._bench.journal.others:
            self._notes.append(f"the journal's figures are of {self._bench.journal.others}, and are not used")
        first = self._candidates.found[0]
        whole = self._bench.deadline
        with ExitStack() as stack:
            stack.callback(self._bench.close)
            self._tried[first.name] = self._tried_first(first)
            baseline = self._baseline(first, stack)
            # Raising what misses the goal by little gains more than other options do, and than mixtures.
            for group, share in ((self._candidates.defaults, _MIXING), (self._candidates.others, _TRYING)):
                self._bench.deadline = whole.until(_TRYING)
                self._try(group, baseline)
                self._bench.deadline = whole.until(share)
                while raised := self._worth_raising(is_last=group is self._candidates.others):
                    self._total += len(raised)
                    self._try(raised, baseline)
            self._bench.deadline = whole.until(_MIXING)
            mixing = self._try_mixed(baseline) if mixed else None
        self._bench.deadline = whole
        result, memory = self._last_race(first)
        self._notes += [*self._bench.doubts, *(self._hosts.notes if self._hosts is not None else ())]
        if mixing is not None and first.name in result.turns:
            mixing.certify({name: result.ratio(name, first.name).median for name in result.turns})
            self._bound, self._unproven, self._front = mixing.bound, mixing.unproven, mixing.front
            self._segments = mixing.segments
        return self._outcome(first, result, memory)

    def _tried_first(self, first: Candidate) -> Tried:
        """Try the baseline, without which there is no tuning.

        Raises:
            DovetailError: The host cannot run the model, or the time is up before it did.
        """
        deadline = self._bench.deadline
        self._step(first.name)
        if self._hosts is None:
            tried = self._bench.try_(first, None)
        else:
            (tried,) = try_together(self._bench, self._hosts, [first], first)
        if tried.status in (FAILED, NOT_TRIED):
            if deadline.is_over:
                raise DovetailError("the time was up before the host had run the model", "give a larger --budget")
            raise DovetailError(f"the model does not run on the host: {tried.why}")
        return tried

    def _baseline(self, first: Candidate, stack: ExitStack) -> Turn | None:
        """Load the baseline for comparisons, and once more if its process ends; None where an executor does that."""
        if self._hosts is not None:
            return None

        def started() -> Turn:
            worker = stack.enter_context(Worker(self._bench.blocked))
            worker.ask(self._bench.job("load", first), _GRACE)
            return self._bench.turn(worker)

        turns = [started()]

        def turn(runs: int) -> Sequence[float]:
            try:
                return turns[0](runs)
            except WorkerError:
                turns[0] = started()
                return turns[0](runs)

        return turn

    def _try(self, candidates: Sequence[Candidate], baseline: Turn | None) -> None:
        """Try candidates: one after the other here, or together on the machines of an executor."""
        if self._hosts is not None:
            first = self._candidates.found[0]
            for tried in try_together(self._bench, self._hosts, candidates, first):
                self._step(tried.candidate.name)
                self._tried[tried.candidate.name] = tried
            return
        for candidate in candidates:
            if self._bench.deadline.is_over and self._bench.journal.find("candidate", candidate.name) is None:
                self._tried[candidate.name] = Tried(candidate, NOT_TRIED, "not tried: the time was up")
                continue
            self._step(candidate.name)
            self._tried[candidate.name] = self._bench.try_(candidate, baseline)

    def _worth_raising(self, is_last: bool) -> list[Candidate]:
        """Return requests that may meet the goals with nodes raised, or with more, and be faster than what meets them.

        Those that miss by the least come first. Before everything else was tried, only those come for whose searches
        there is time.
        """
        best = min((t.against.median for t in self._tried.values() if t.is_valid and t.against), default=1.0)
        missing = [t for t in self._tried.values() if t.status == PREPARED and t.missed and not t.candidate.high]
        faster = [t for t in missing if t.against is not None and t.against.low < min(best, 1.0)]
        faster.sort(key=lambda t: -math.inf if t.snr_db is None else t.snr_db, reverse=True)
        found, left = [], self._bench.deadline.remaining
        for tried in faster:
            raised = tried.candidate.raised()
            if raised is None or raised.name in self._tried:
                continue
            left -= tried.compile_seconds * (1 if tried.candidate.margin else _SEARCH)
            if is_last or left > 0:
                found.append(raised)
        return found

    def _try_mixed(self, baseline: Turn | None) -> Mixing:
        mixing = Mixing(self._bench, self._original, self._plugins, self._tried, self._step, self._hosts)
        for candidate in mixing.candidates():
            self._total += 1
            self._try([candidate], baseline)
            mixing.learn(self._tried[candidate.name])
        self._notes += mixing.notes
        return mixing

    def _finalists(self, first: Candidate) -> list[Tried]:
        """Return the baseline and the best few that meet the goals."""
        valid = [t for t in self._tried.values() if t.is_valid and t.against is not None]
        valid.sort(key=lambda t: t.against.median if t.against else 1.0)
        best = min([1.0, *(t.against.high for t in valid if t.against)])
        close = [t for t in valid if t.against and t.against.low <= best * _CLOSE]
        return [self._tried[first.name], *close[: _FINALISTS - 1]]

    def _last_race(self, first: Candidate) -> tuple[RaceResult, dict[str, int]]:
        """Let the finalists race in fresh processes; return the race, and the memory of each."""
        finalists = self._finalists(first)
        names = [tried.candidate.name for tried in finalists]
        known = self._bench.journal.find("race", ", ".join(names))
        if known is not None:
            if (other := unknown({**known["turns"], **known["failed"]}, names)) or not known["turns"]:
                problem = f"turns: {other!r} did not race" if other else "turns: nobody raced"
                raise self._bench.journal.invalid("race", ", ".join(names), problem)
            return RaceResult(known["leader"], known["turns"], known["failed"], known["heats"]), known["memory"]
        memory: dict[str, int] = {}
        result = RaceResult("")
        active = list(finalists)
        for heat in range(_HEATS):
            result.add(self._heat(active, first, heat, memory))
            active = [t for t in active if t.candidate.name in result.turns]
            if not active:
                raise WorkerError("; ".join(f"{name}: {why}" for name, why in result.failed.items()))
            base = active[0].candidate.name
            result.leader = min((t.candidate.name for t in active), key=lambda name: result.ratio(name, base).median)
            active = [
                t for t in active
                if t.candidate.is_baseline or result.ratio(t.candidate.name, result.leader).low <= 1 + _TOLERANCE
            ]  # fmt: skip
            if self._bench.deadline.is_over or len(active) == 1:
                break
        if result.failed and self._bench.deadline.is_over:
            return result, memory  # more time may help, so that no journal says that they failed
        self._bench.journal.record(
            "race", ", ".join(names), leader=result.leader, turns=result.turns, failed=result.failed,
            heats=result.heats, memory=memory,
        )  # fmt: skip
        return result, memory

    def _heat(self, finalists: Sequence[Tried], first: Candidate, heat: int, memory: dict[str, int]) -> RaceResult:
        """Let finalists race in fresh processes, whose luck with memory differs from heat to heat."""
        bench = self._bench
        jobs = {tried.candidate.name: bench.job("load", tried.candidate) for tried in finalists}
        rules = Rules(_ROUNDS, _TOLERANCE, first.name, _HEAT)

        def progress(rounds: int) -> None:
            self._racing(heat * _ROUNDS + rounds)

        if self._hosts is None:
            over = bench.deadline
            answer = loaded_and_raced(bench.place, jobs, rules, _GRACE, None, lambda: over.is_over, progress)
        else:
            progress(0)
            answer = self._hosts.compare(jobs, rules, Deadline(_GRACE))()
        for name, found in answer.found.items():
            memory[name] = max(found["bytes"], memory.get(name, 0))
        answer.race.failed |= answer.failed
        return answer.race

    def _outcome(self, first: Candidate, result: RaceResult, memory: dict[str, int]) -> Tuned:
        entries = []
        base = result.seconds(first.name) if first.name in result.turns else None
        for name, tried in self._tried.items():
            entry = Entry(
                tried.candidate, None, None, tried.snr_db, tried.answers, tried.bytes, memory.get(name), tried.engines,
                _remark(tried), tried.is_valid,
            )  # fmt: skip
            if name in result.turns:
                entry.seconds = result.seconds(name)
                if name != first.name and first.name in result.turns:
                    entry.against = result.ratio(name, first.name)
            elif name in result.failed:
                entry.remark, entry.meets = f"left out: {result.failed[name]}", False
            elif tried.against is not None:
                entry.against = tried.against
                entry.seconds = None if base is None else base * tried.against.median
            entries.append(entry)
        entries.sort(key=lambda e: (e.seconds is None, e.seconds or 0.0))
        for name, why in self._candidates.absent.items():
            self._notes.append(f"{name} does not compete: {why}")
        raced = [e for e in entries if e.candidate.name in result.turns and e.meets]
        winner = winner_of(raced, result) if raced else None
        if winner is not None:
            winner.remark = "the fastest within the goal"
            self._notes += doubts_of(winner, raced, result)
        self._notes += slower_integers(entries, self._candidates)
        if any(tried.status == NOT_TRIED for tried in self._tried.values()):
            self._notes.append("the time was up: what was not tried says so, and more time may find a faster plan")
        return Tuned("", entries, winner, notes=self._notes, certificate=self._certificate(winner), front=self._front)

    def _certificate(self, winner: Entry | None) -> str:
        """Say how far the winner is from the bound."""
        if self._unproven:
            return f"no certificate: {self._unproven}"
        if self._bound is None or winner is None:
            return ""
        gap = (1.0 if winner.against is None else winner.against.median) / self._bound - 1
        measured = f"these measurements of {self._segments} segments allow (by HiGHS)"
        return f"within {100 * max(0.0, gap):.0f} % of the best that {measured}"

    def _racing(self, rounds: int) -> None:
        if self._progress:
            self._progress(f"last race{self._bench.deadline.text}", min(rounds, _HEATS * _ROUNDS), _HEATS * _ROUNDS)

    def _step(self, what: str) -> None:
        if self._progress:
            deadline = self._bench.deadline
            left = deadline.elapsed / self._done * (self._total - self._done) if self._done else 0.0
            text = deadline.text or (f" (about {left:.0f} s to go)" if left else "")
            self._progress(f"{what}{text}", self._done, self._total)
        self._done = min(self._done + 1, self._total)


def _remark(tried: Tried) -> str:
    if tried.status == FAILED:
        return f"left out: {tried.why}"
    return tried.why or "; ".join(tried.missed)
