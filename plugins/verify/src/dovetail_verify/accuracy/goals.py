"""Accuracy goals: bounds on the error of every output relative to the original."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dovetail.errors import DovetailError, UsageError
from dovetail.ir import float_name
from dovetail.planning import HOST, Remark
from dovetail.text import pluralize

from dovetail_verify.accuracy.trials import decibels, low_nodes

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.plugin import CompiledModel
    from dovetail_runtime.data.data_split import DataSplit

    from dovetail_verify.accuracy.groups import Groups, UnitGroup
    from dovetail_verify.accuracy.trials import AccuracyTrial
    from dovetail_verify.compare import OutputVerification
    from dovetail_verify.output_comparison import OutputComparison


_TELLING = 9
"""Samples of which a spread is computed; with fewer, one of ten others or more is worse than all of them."""

MISSED_GOAL = "missed-goal"
"""Rule of the remark on a result that misses a goal."""

_SCORES = (2, 3)
"""Ranks of outputs that may hold rows of scores."""

_ABOVE_ZERO = {"max_abs": "a difference", "max_kl": "a divergence in nats", "max_perplexity_rise": "a share"}
_OF_ROWS = ("min_top1", "max_kl", "max_perplexity_rise")


class Miss(NamedTuple):
    """An output that does not meet a goal.

    Attributes:
        output: Its name.
        figure: The measured figure as text: `SNR 16.4 dB`.
        goal: The goal as an option: `--min-snr 30`.
    """

    output: str
    figure: str
    goal: str

    def __str__(self) -> str:
        return f"'{self.output}' has {self.figure}, {self.goal} is asked for"


@dataclass(frozen=True, slots=True)
class Goals:
    """Bounds that every output must meet on the data; None sets no bound.

    Outputs of integers, Booleans and strings have no SNR. The share of their elements that may differ is the relative
    amplitude of the noise at the goal: a tenth at 20 dB, a hundredth at 40 dB.

    Attributes:
        min_snr: Signal-to-noise ratio in decibels; 0 or more.
        min_cosine: Cosine similarity; above 0, at most 1.
        min_top1: Fraction of rows of scores whose largest element must be the same, and of elements of integer outputs;
            a number from 0 to 1, or a text such as `99%`. Outputs without rows of scores are exempt.
        max_abs: Largest difference of any element; above 0.
        max_kl: Mean Kullback-Leibler divergence of rows, in nats; above 0. A row along the last axis of an output of
            rank 2 or 3 holds logits, unless it is a distribution: KL(softmax(original) || softmax(result)). Outputs
            without such rows are exempt.
        max_perplexity_rise: Maximum relative increase of the perplexity of labels under rows of logits over the
            original's; above 0, or a text such as `1%`. Outputs without labels are exempt.

    Raises:
        UsageError: A goal is not a number in its range.
    """

    min_snr: float | None = None
    min_cosine: float | None = None
    min_top1: float | None = None
    max_abs: float | None = None
    max_kl: float | None = None
    max_perplexity_rise: float | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "min_snr", _number("min_snr", self.min_snr, 0, math.inf, "decibels, 0 or more"))
        set_(self, "min_cosine", _number("min_cosine", self.min_cosine, 0, 1, "a cosine, from 0 to 1"))
        set_(self, "min_top1", _share("min_top1", self.min_top1))
        set_(self, "max_abs", _number("max_abs", self.max_abs, 0, math.inf, "a difference above 0"))
        set_(self, "max_kl", _number("max_kl", self.max_kl, 0, math.inf, "a divergence in nats, above 0"))
        set_(self, "max_perplexity_rise", _share("max_perplexity_rise", self.max_perplexity_rise, math.inf))
        for name, what in _ABOVE_ZERO.items():
            if getattr(self, name) == 0:
                raise UsageError(f"{_option(name, 0)} is no goal: it is {what}, above 0")

    @classmethod
    def of(cls, *given: float | str | None) -> Goals:
        """Return goals of numbers or texts, in the order of the attributes."""
        return cls(*cast("tuple[float | None, ...]", given))

    def __bool__(self) -> bool:
        return bool(self.as_dict())

    def as_dict(self) -> dict[str, float]:
        """Return the goals that are set, by name."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    def __str__(self) -> str:
        return " ".join(_option(name, value) for name, value in self.as_dict().items())

    @property
    def way_out(self) -> str:
        """What to do where the goals take too much."""
        return "lower the goal"

    def check_data(self, data: object) -> None:
        """Check that goals have data to be measured on.

        Raises:
            UsageError: There are goals but no data.
        """
        if self and data is None:
            hint = "give --data (or `data=`): inputs like those that the model will see"
            raise UsageError(f"{self} is a goal without data to measure it on", hint)

    def check_model(self, model: Model) -> None:
        """Check that some output can be measured against the goals, as far as declared types and ranks tell.

        Raises:
            UsageError: No output has the rank of rows of scores.
        """
        outputs = list(model.graph.outputs)
        if not self or any(value.dtype is None for value in outputs):
            return
        rated = [value for value in outputs if self.max_kl is None or float_name(value)]
        known = [v for v in rated if not float_name(v) or v.shape is None or len(v.shape) in _SCORES]
        if self._of_rows and not known:
            raise self._without_scores()

    @property
    def _of_rows(self) -> dict[str, float]:
        """The goals on rows of scores."""
        return {name: value for name, value in self.as_dict().items() if name in _OF_ROWS}

    def _without_scores(self) -> UsageError:
        goal = " ".join(_option(name, value) for name, value in self._of_rows.items())
        problem = f"no output holds rows of scores, so {goal} cannot be measured"
        return UsageError(problem, "--min-snr or --min-cosine can be")

    def tightened(self, decibels: float) -> Goals:
        """Return goals with less noise by `decibels`; the top-1 goal is unchanged."""
        noise = 10 ** (-decibels / 10)
        return Goals(
            None if self.min_snr is None else self.min_snr + decibels,
            None if self.min_cosine is None else 1 - (1 - self.min_cosine) * noise,
            self.min_top1,
            None if self.max_abs is None else self.max_abs * noise**0.5,
            None if self.max_kl is None else self.max_kl * noise,
            None if self.max_perplexity_rise is None else self.max_perplexity_rise * noise,
        )

    def missed(self, verification: OutputVerification) -> list[Miss]:
        """Return a miss for every output that violates a goal; a broken output violates all of them.

        Raises:
            UsageError: No output has rows of scores, which a goal asks for.
        """
        outputs = [output for output in verification.outputs if not output.open_because]
        if self and not outputs and (left := next(iter(verification.outputs), None)) is not None:
            raise UsageError(
                f"{self} cannot be measured: '{left.name}' is {left.open_because}",
                "measure a model without this node, or give it a seed if it is random",
            )
        floats = [output for output in outputs if output.snr_db is not None]
        if (
            self.min_top1 is not None
            and all(output.top1 is None and not output.broken for output in floats)
            and len(floats) == len(outputs)
        ):
            raise self._without_scores()
        if self.max_kl is not None and all(output.kl is None and not output.broken for output in floats):
            raise self._without_scores()
        if self.max_perplexity_rise is not None and all(one.perplexity is None and not one.broken for one in floats):
            goal = _option("max_perplexity_rise", self.max_perplexity_rise)
            hint = "give the data an array labels:OUTPUT with the right index of every row, or a language model prompts"
            raise UsageError(f"no output has labels, so {goal} cannot be measured", hint)
        return [miss for output in outputs for miss in self._missed_by(output)]

    def doubts(self, verification: OutputVerification) -> list[str]:
        """Return objections to a goal by the labels: the original is wrong more often than a result may differ."""
        if self.min_top1 is None:
            return []
        return [
            f"'{output.name}': the original itself hits only {100 * output.hits[0]:.2f} % of the labels; "
            f"{_option('min_top1', self.min_top1)} asks for the original's answers, not for the labels"
            for output in verification.outputs
            if output.hits is not None and output.hits[0] < self.min_top1
        ]

    def _missed_by(self, output: OutputComparison) -> list[Miss]:
        found = []
        if output.broken:
            return [Miss(output.name, "another shape or elements that are no numbers", str(self))] if self else []
        if output.snr_db is None:
            return self._missed_by_elements(output)
        if self.min_snr is not None and output.snr_db is not None and output.snr_db < self.min_snr:
            found.append(Miss(output.name, f"SNR {output.snr_text}", _option("min_snr", self.min_snr)))
        if self.min_cosine is not None and output.cosine is not None and output.cosine < self.min_cosine:
            found.append(Miss(output.name, f"cosine {output.cosine:.6g}", _option("min_cosine", self.min_cosine)))
        if self.min_top1 is not None and output.top1 is not None and output.top1 < self.min_top1:
            figure = f"top-1 agreement {100 * output.top1:.2f} %"
            found.append(Miss(output.name, figure, _option("min_top1", self.min_top1)))
        if self.max_abs is not None and output.max_abs is not None and output.max_abs > self.max_abs:
            found.append(Miss(output.name, f"max abs {output.max_abs:.3g}", _option("max_abs", self.max_abs)))
        if self.max_kl is not None and output.kl is not None and output.kl > self.max_kl:
            found.append(Miss(output.name, f"KL {output.kl:.3g} nats per row", _option("max_kl", self.max_kl)))
        rise, most = output.perplexity_rise, self.max_perplexity_rise
        if most is not None and rise is not None and rise > most:
            figure = f"a perplexity that is {100 * rise:.3g} % higher"
            found.append(Miss(output.name, figure, _option("max_perplexity_rise", most)))
        return found

    def _missed_by_elements(self, output: OutputComparison) -> list[Miss]:
        """Return the misses of an output of integers, Booleans or strings."""
        bounds = []
        if self.min_snr is not None:
            bounds.append((self.min_snr, "min_snr", self.min_snr))
        if self.min_cosine is not None:
            bounds.append((decibels(2 * (1 - self.min_cosine)), "min_cosine", self.min_cosine))
        if self.min_top1 is not None:
            bounds.append((2 * decibels(1 - self.min_top1), "min_top1", self.min_top1))
        found = [
            Miss(output.name, output.disagreement, _option(name, goal))
            for least, name, goal in bounds
            if output.rated_db < least
        ]
        if self.max_abs is not None and (output.max_abs or 0.0) > self.max_abs:
            found.append(Miss(output.name, f"max abs {output.max_abs:.3g}", _option("max_abs", self.max_abs)))
        return found


def _option(name: str, value: float) -> str:
    return f"--{name.replace('_', '-')} {value:g}"


def _number(name: str, given: object, low: float, high: float, what: str) -> float | None:
    if given is None:
        return None
    try:
        value = float(cast("float | str", given))  # the command line passes text
    except (TypeError, ValueError):
        value = math.nan
    if isinstance(given, bool) or not math.isfinite(value) or not low <= value <= high:
        raise UsageError(f"--{name.replace('_', '-')} {given} is no goal: it is {what}")
    return value


def _share(name: str, given: object, most: float = 1) -> float | None:
    what = "a share, from 0 to 1 or 0% to 100%" if most == 1 else "a share: 0.01 or 1%"
    if isinstance(given, str) and given.strip().endswith("%"):
        percent = _number(name, given.strip().removesuffix("%").strip(), 0, 100 * most, what)
        return percent and percent / 100
    return _number(name, given, 0, most, what)


def record(
    trial: AccuracyTrial,
    low: AccuracyTrial,
    goals: Goals,
    runs: int,
    split: DataSplit,
    groups: Groups | None = None,
    chosen: Sequence[UnitGroup] = (),
    missed: Sequence[Miss] | None = None,
    measured: OutputVerification | None = None,
) -> CompiledModel:
    """Return the result of a trial, with what it misses and the raised nodes recorded in its plan and in remarks.

    Args:
        trial: The trial.
        low: The trial with nothing raised.
        goals: The goals.
        runs: Number of runs so far.
        split: The data in parts.
        groups: All groups.
        chosen: The raised groups.
        missed: What it misses; by default that of the comparison.
        measured: The comparison of what its engines compute; by default that of the trial.
    """
    compiled, found = trial.result, measured or trial.verification
    compiled.verification = found
    found.missed = goals.missed(found) if missed is None else list(missed)
    found.doubts = [*goals.doubts(found), *_of_few(goals, found, split)]
    raised = [name for group in chosen for name in group.names]
    found.held_back = split.text
    if not found.missed and split.too_few:
        found.too_few = f"{goals} is not called met: {split.too_few}"
    met = None if found.too_few else not found.missed
    summary: dict[str, Any] = {"goals": goals.as_dict(), "met": met, "measured_on": split.text}
    summary |= {"too_few": split.too_few} if met is None else {}
    summary |= {"runs": runs, "snr_before": figures(low.verification), "snr": figures(found)}
    compiled.plan.summary["accuracy"] = summary | {"raised": raised}
    if met is False:
        why = f"the goal is not met: {'; '.join(map(str, found.missed))}"
        compiled.plan.remarks.append(Remark("failed", "", "accuracy", MISSED_GOAL, why, advice=goals.way_out))
    if groups is not None and raised:
        compiled.plan.remarks += _remarks(trial, low, goals, runs, groups, chosen)
        if any(node.backend != HOST for node in compiled.plan.nodes) and not low_nodes(compiled.plan):
            why = f"nothing is left in low precision: {goals} takes float32 everywhere; without it, {_worst(low)}"
            compiled.plan.remarks.append(Remark("analysis", "", "accuracy", "goal", why, advice=goals.way_out))
    return compiled


def _of_few(goals: Goals, verification: OutputVerification, split: DataSplit) -> list[str]:
    """Return what few samples say about others, where a goal is met on them.

    Source: of n + 1 samples in random order, each is the worst with the same probability, for any distribution.
    """
    from dovetail_runtime.data.data_split import JUDGES

    if not goals or verification.missed or not JUDGES <= split.judged < _TELLING:
        return []
    chance = f"with a probability of 1 in {split.judged + 1}, another {split.unit} is worse than all of them"
    return [f"{goals} is met on {pluralize(split.judged, split.unit)}: {chance}"]


def recorded_failure(compiled: CompiledModel, goals: Goals) -> DovetailError | None:
    """Return an error if a recognized result is recorded as missing the same goals; else None."""
    recorded = compiled.plan.summary.get("accuracy", {})
    if recorded.get("met") is not False:
        return None
    found = ", ".join(f"'{name}' has SNR {value} dB" for name, value in recorded.get("snr", {}).items())
    missed = f"{found}; {goals}" if found else str(goals)
    return DovetailError(f"the goal is not met: {missed} is asked for", "this is what the same request gave")


def _remarks(
    trial: AccuracyTrial, low: AccuracyTrial, goals: Goals, runs: int, groups: Groups, chosen: Sequence[UnitGroup]
) -> list[Remark]:
    before, after = _worst(low), _worst(trial)
    number = sum(len(group.units) for group in chosen)
    whole = (
        f"{pluralize(number, 'node')} raised for {goals}: {before} before, {after} with them; {pluralize(runs, 'run')}"
    )
    remarks = [Remark("analysis", "", "accuracy", "goal", whole)]
    total = groups.total()
    for group in chosen:
        about = "alone" if len(group.units) == 1 else f"its group of {pluralize(len(group.units), 'node')}"
        alone = decibels(max((value for (_, kind), value in group.noise.items() if kind == "whole"), default=0.0))
        noise = "breaks the result" if alone == -math.inf else f"{100 * min(group.worst(total), 1):.1f} % of the noise"
        why = f"raised for {goals}: {about}: {noise}; {before} before, {after} with all that was raised"
        remarks += [Remark("passed", name, "accuracy", "goal", why) for name in group.names]
    return remarks


def figures(found: OutputVerification) -> dict[str, float | None]:
    """Return the SNR of every float output in decibels; None if infinite."""
    rated = {output.name: output.snr_db for output in found.outputs if output.snr_db is not None}
    return {name: round(snr_db, 2) if math.isfinite(snr_db) else None for name, snr_db in rated.items()}


def _worst(trial: AccuracyTrial) -> str:
    return trial.verification.worst
