"""Mixed plans: segments are profiled under the best candidates, and the best mixtures are tried as whole models."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.compiler import Driver
from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.passes import Context, Instrumentation, Request
from dovetail_runtime.data.batches import as_given

from dovetail_tune.border_costs import BorderCosts
from dovetail_tune.candidates import Candidate
from dovetail_tune.certificate import optimum
from dovetail_tune.exact_values import BATCHES, ExactValues
from dovetail_tune.front import pareto_front
from dovetail_tune.mixed_requests import MixedRequests
from dovetail_tune.prediction_errors import Prediction, PredictionErrors
from dovetail_tune.problem import PlanProblem
from dovetail_tune.profiles import Profiles, profile_cache
from dovetail_tune.segments import MOST, Segment, segments_of
from dovetail_tune.trial import PREPARED, CandidateTrial

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.plugin import PluginSet

    from dovetail_tune.trial_runner import TrialRunner

_MIXED = 3  # candidates beside the host that are mixed
_WITHIN = 1.5  # of the best single candidate's time, those that are mixed
_PLANS = 3  # mixed plans that are tried as whole models
_PROFILED = 0.7  # share of the remaining time to profile segments in
_START, _PART, _RACE = 1.5, 0.25, 0.5  # seconds to start a process, to compile a segment at least, and to time it
_ROUNDS = 24  # runs of every segment to time it
_ENOUGH = 4  # segments; for as many, some candidates are left out if there is little time
_PROOF = 20.0  # seconds for the exact optimum
_WORTH = 0.99  # of the best known time, what a mixed plan is predicted to take


class Mixing:
    """Profiles segments, and yields mixed plans, best first; what is measured of one corrects the next prediction.

    Args:
        runner: Runs trials.
        original: The source model.
        plugins: The plugins.
        step: Called with what is being done.

    Attributes:
        notes: Why nothing is mixed, or what a prediction leaves out, as sentences.
        front: Predicted plans that are the fastest for their noise, as (share of the baseline's time, SNR in dB).
    """

    def __init__(
        self,
        runner: TrialRunner,
        original: Model,
        plugins: PluginSet,
        step: Callable[[str], None],
    ):
        self._runner, self._original, self._plugins, self._step = runner, original, plugins, step
        self._chosen: list[CandidateTrial] = []
        self._whole: list[float] = []
        self._errors = PredictionErrors(profile_cache(runner.pool.machine))
        self._predicted: dict[str, Prediction] = {}
        self._plans: dict[str, tuple[int, ...]] = {}
        self._posing: Callable[[], PlanProblem] | None = None
        self._inputs: Collection[str] = ()
        self._requests = MixedRequests(runner, plugins)
        self._borders: BorderCosts | None = None
        self._missed: dict[tuple[int, int], float] = {}  # seconds that borders took more than predicted, by kind
        self._ratios: dict[str, float] = {}
        self._best = 1.0
        self.notes: list[str] = []
        self._segments = 0  # that the bound speaks of
        self._bound: float | None = None  # the least time of any plan by these measurements, over the baseline's
        self._unproven = ""  # why the bound is unknown
        self.front: list[tuple[float, float]] = []

    def candidates(self, trials: Sequence[CandidateTrial]) -> Iterator[Candidate]:
        """Yield mixed plans that are predicted to be faster than every single candidate and accurate enough.

        Args:
            trials: Those of single candidates, the baseline first.
        """
        self._chosen = _chosen(trials)
        self._ratios = {t.candidate.name: 1.0 if t.against is None else t.against.median for t in self._chosen}
        if len(self._chosen) < 2:
            self.notes.append("nothing is mixed: there is nothing to mix the host with")
            return
        try:
            segments, profiles = self._profiled()
        except DovetailError as error:
            self.notes.append(f"nothing is mixed: {error.message}")
            return
        if len(segments) < 2:
            self.notes.append("no plans are mixed: no few values separate the model into two parts")
            return
        if self._runner.deadline.is_over or any((s.index, 0) not in profiles.seconds for s in segments):
            self.notes.append("nothing is mixed: not every segment was profiled")
            return
        self._posing = lambda: self._posed(segments, profiles)
        self._segments = len(segments)
        self._best = min((t.against.median for t in trials if t.is_valid and t.against), default=1.0)
        for _ in range(_PLANS):
            plan = self._next(self._posing())
            if plan is None:
                break
            candidate = self._requests.of(segments, [self._chosen[number].candidate for number in plan])
            self._plans[candidate.name] = plan
            predicted = self._posing().time_of(plan) / self._whole[0]
            self._predicted[candidate.name] = self._errors.interval(predicted)
            yield candidate

    def doubt(self, name: str, measured: float) -> str:
        """Say that a mixture did not take what was predicted, so that it is not known why; empty if it did.

        Args:
            name: The candidate.
            measured: Its time, relative to the baseline's.
        """
        predicted = self._predicted.get(name)
        if predicted is None or predicted.holds(measured):
            return ""
        return f"left out: it takes {measured:.2f} of the host's time, and {predicted} was predicted"

    def learn(self, trial: CandidateTrial) -> None:
        """Learn from what a mixed plan took: how wrong predictions are, and the cost of its switches."""
        plan = self._plans.get(trial.candidate.name)
        if plan is None or self._posing is None or trial.against is None:
            return
        self._errors.learn(self._key(plan), self._predicted[trial.candidate.name].median, trial.against.median)
        if trial.is_valid:
            self._best = min(self._best, trial.against.median)
        switches = [(one, other) for one, other in zip(plan, plan[1:]) if one != other]
        missing = max(0.0, trial.against.median * self._whole[0] - self._posing().time_of(plan))
        for kind in set(switches):
            self._missed[kind] = self._missed.get(kind, 0.0) + missing / len(switches)

    def _key(self, plan: Sequence[int]) -> str:
        """Return the name under which a prediction is kept: of which model and data it is, and of which candidates."""
        names = [self._chosen[number].candidate.name for number in plan]
        return hashlib.sha256(repr((str(self._runner.model), self._runner.goals, names)).encode()).hexdigest()

    def _profiled(self) -> tuple[list[Segment], Profiles]:
        names = list(dict.fromkeys(name for trial in self._chosen for name in trial.candidate.backends))
        ctx = Context(Request.of(*names), plugins=self._plugins)
        ctx.load_backends()
        # Prepared for all backends at once, as mixed plans are, so that nodes have the same names.
        model = Driver(self._original, ctx, (), Instrumentation()).prepare()
        _, model = as_given(self._original, self._runner.data.calibrate, model)
        compiling, slowest = [t.compile_seconds for t in self._chosen], max(t.run_seconds for t in self._chosen)
        number, most = affordable(compiling, slowest, self._runner.deadline.remaining)
        if number < 2:
            raise DovetailError("there is no time left to profile segments")
        self._chosen = self._chosen[:number]
        segments = segments_of(model, most)
        folder = self._runner.folder / "segments"
        candidates = [trial.candidate for trial in self._chosen]
        values = ExactValues(model, segments, self._runner.data.calibrate, folder, self._plugins)
        cache = profile_cache(self._runner.pool.machine)
        if cache.others:
            self.notes.append(f"profiles of {cache.others} are not used")
        profiles = Profiles(self._runner, candidates, values, folder, cache, self._step)
        if len(segments) > 1:
            integers = [self._requests.quantizes(candidate) for candidate in candidates]
            self._inputs = {name_of(value) for value in model.graph.inputs}
            self._borders = BorderCosts(self._runner, candidates, integers, cache, self._runner.folder / "borders")
            self._borders.measure()
            profiles.measure(segments)
        failed = {self._chosen[number].candidate.name: why for (_, number), why in profiles.failed.items()}
        self.notes += [f"{name} is not mixed everywhere: {why}" for name, why in failed.items()]
        if profiles.was_cached:
            self.notes.append(f"{profiles.was_cached} of {len(segments)} segments were profiled before on this machine")
        return segments, profiles

    def _posed(self, segments: Sequence[Segment], profiles: Profiles) -> PlanProblem:
        """Return the problem, in seconds of whole models.

        Segments give the shape of a candidate's costs, and the whole model their scale: joined segments save the
        conversions at their borders, in proportion to what they take alone. Only borders between candidates are left.
        """
        names, kinds = range(len(profiles.noise[0, 0])), range(len(self._chosen))
        alone, noise = [], []
        for segment in segments:
            keys = [(segment.index, number) for number in kinds]
            there = [key in profiles.seconds and key in profiles.noise for key in keys]
            alone.append([profiles.seconds[k] if ok else math.inf for k, ok in zip(keys, there)])
            noise.append([profiles.noise[k] if ok else [0.0 for _ in names] for k, ok in zip(keys, there)])
        sums = [sum(row[number] for row in alone) for number in kinds]
        runs = [t.run_seconds / t.against.median for t in self._chosen if t.against is not None and t.run_seconds]
        base = statistics.median(runs) if runs else sums[0]
        self._whole = [base]
        wholes = [base * self._ratios[trial.candidate.name] for trial in self._chosen]
        # Of one that fails somewhere, the sum is not known; its segments scale as those of the host.
        scales = [whole / (total if total < math.inf else sums[0]) for whole, total in zip(wholes, sums)]
        scales = [one if total < math.inf else scales[0] for one, total in zip(scales, sums)]
        seconds = [[time * scale for time, scale in zip(row, scales)] for row in alone]
        borders = {(at, at + 1): self._border(segments[at + 1], profiles) for at in range(len(segments) - 1)}
        return PlanProblem(seconds, noise, borders, [_budget(self._runner.goals) for _ in names], profiles.pairs())

    def _border(self, behind: Segment, profiles: Profiles) -> list[list[float]]:
        """Return the seconds of the border in front of a segment, by the candidates on both sides."""
        kinds = range(len(self._chosen))
        if self._borders is None:
            return [[0.0 for _ in kinds] for _ in kinds]
        elements = profiles.elements_before(behind, self._inputs)
        return [[self._borders.between(i, j, elements) + self._missed.get((i, j), 0.0) for j in kinds] for i in kinds]

    def _next(self, problem: PlanProblem) -> tuple[int, ...] | None:
        """Return the fastest plan that was not tried, is a mixture, and is predicted to be worth a trial."""
        plans = [plan for plan in pareto_front(problem) if problem.is_feasible(plan)]
        try:
            best = optimum(problem, min(_PROOF, max(1.0, self._runner.deadline.remaining))).plan
            plans += [best] if best is not None else []
        except DovetailError:
            pass  # `certify` says what is missing
        worth = [
            plan for plan in plans
            if len(set(plan)) > 1 and plan not in self._plans.values()
            and problem.time_of(plan) < self._best * self._whole[0] * _WORTH
        ]  # fmt: skip
        return min(worth, key=problem.time_of, default=None)

    def certify(self, ratios: Mapping[str, float], remaining: float) -> None:
        """Set the front and the bound by what the last race measured.

        Args:
            ratios: The times of whole models, relative to the baseline's, by candidate.
            remaining: Seconds that the proof may take; it gets one in any case.
        """
        if self._posing is None:
            return
        self._ratios |= {name: ratio for name, ratio in ratios.items() if name in self._ratios}
        problem = self._posing()
        base = self._whole[0]
        plans = pareto_front(problem)
        self.front = [(problem.time_of(plan) / base, _decibels(problem.noise_of(plan))) for plan in plans]
        try:
            proven = optimum(problem, min(_PROOF, max(1.0, remaining)))
        except DovetailError as error:
            self._unproven = f"{error.message}: {error.hint}"
            return
        if 0 < proven.bound < math.inf:
            self._bound = proven.bound / self._whole[0]
        else:
            self._unproven = "HiGHS found no bound in time"

    def certificate(self, winner: float | None) -> str:
        """Say how far the winner is from the bound; empty without a bound or a winner.

        Args:
            winner: Its time, relative to the baseline's.
        """
        if self._unproven:
            return f"no certificate: {self._unproven}"
        if self._bound is None or winner is None:
            return ""
        gap = max(0.0, winner / self._bound - 1)
        measured = f"these measurements of {self._segments} segments allow (by HiGHS)"
        one = self._errors.interval(1.0)  # how wrong predictions are, which the bound does not know
        error = f"if mixtures take what is predicted; here nine of ten take {one.low:.2f} to {one.high:.2f} of that"
        return f"within {100 * gap:.0f} % of the best that {measured}, {error}"


def affordable(compile_seconds: Sequence[float], run_seconds: float, remaining: float) -> tuple[int, int]:
    """Return how many candidates and segments can be profiled in the remaining seconds: two of each, or none.

    Args:
        compile_seconds: Of the candidates, the baseline first, the fastest next. What is compiled are all segments.
        run_seconds: Of one run of the slowest one.
        remaining: Seconds.
    """
    for number in range(len(compile_seconds), 1, -1):
        runs = number * run_seconds
        left = _PROFILED * remaining - number * _START - sum(compile_seconds[:number]) - _ROUNDS * runs
        most = min(MOST, left / (_RACE + number * _PART + BATCHES / 2 * runs))  # noise: half of the model behind each
        if most >= (_ENOUGH if number > 2 else 2):
            return number, int(most)
    return 0, 0


def _chosen(trials: Sequence[CandidateTrial]) -> list[CandidateTrial]:
    """Return the baseline and the few candidates that may be the faster one for some segments."""
    timed = [
        t for t in trials[1:]
        if t.status == PREPARED and t.against is not None and not t.candidate.margin
        and t.candidate.threads == trials[0].candidate.threads
    ]  # fmt: skip
    timed.sort(key=lambda t: t.against.median if t.against else math.inf)
    best = min([1.0, *(t.against.median for t in timed if t.against)])
    # The fastest other one may be the faster one for a part, wherever it is far off as a whole.
    close = [t for t in timed if t is timed[0] or (t.against and t.against.low <= best * _WITHIN)]
    backends: dict[str, CandidateTrial] = {}
    for one in close:  # one choice of options per backend, low and high apart
        backends.setdefault(one.candidate.backends[0].partition(":")[0] + " high" * bool(one.candidate.high), one)
    consistent: dict[str, str] = {}
    found = []
    for one in backends.values():
        name = one.candidate.backends[0].partition(":")[0]
        if consistent.setdefault(name, one.candidate.backends[0]) == one.candidate.backends[0]:
            found.append(one)
    return [trials[0], *found[:_MIXED]] if trials else []


def _budget(goals: Mapping[str, float]) -> float:
    """Return the noise that goals leave to an output; goals that say nothing about it are measured, not predicted."""
    found = [math.inf]
    if "min_snr" in goals:
        found.append(10 ** (-goals["min_snr"] / 10))
    if "min_cosine" in goals:
        found.append(2 * (1 - goals["min_cosine"]))
    return min(found)


def _decibels(noise: Sequence[float]) -> float:
    worst = max(noise, default=0.0)
    return math.inf if worst <= 0 else -10 * math.log10(worst)
