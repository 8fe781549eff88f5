"""The option `--ladder`: raise the precision of few nodes in the vendor's steps until outputs are accurate enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from dovetail.errors import DovetailError, GoalError, UsageError
from dovetail.passes import Context
from dovetail.planning import Remark
from dovetail.plugin import Outcome, Proposal, Stepwise
from dovetail.text import pluralize

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, CompileJob, Steps, Trial
    from dovetail_verify import MeasuredLayer


GOAL = 0.99
"""Cosine similarity that the vendor considers fine for an output."""

SUMMARY = "ladder"
"""Key in the summary of a plan."""

_BACKEND = "bpu-int8"
_THRESHOLDS = (0.99, 0.999, 0.9999, 1.0)
"""Sensitivity thresholds in order; nodes below the threshold get more bits."""

_FORMATS = {"bernoulli2": (), "bayes": ("int16",), "nash": ("int16", "float16")}
_JUDGED = 2  # steps that the samples which judge may decide on
_MEASURED = 200  # nodes, worst alone first, whose effect on the outputs is measured; each takes a run per batch


def checked_goal(given: object) -> float | None:
    """Parse the goal of the keyword `ladder`, a cosine similarity; None for no ladder.

    Raises:
        UsageError: It is not a cosine similarity.
    """
    if given is None or given is False:
        return None
    try:
        goal = GOAL if given is True else float(cast("float | str", given))
    except (TypeError, ValueError):
        goal = -1.0
    if not 0 < goal <= 1:
        raise UsageError(f"--ladder {given} is no goal: it is a cosine similarity, above 0 and at most 1")
    return goal


@dataclass
class _Step:
    """A step of the ladder.

    Attributes:
        format: The format to raise nodes to; empty for the first step, in which all nodes are in int8.
        threshold: The sensitivity below which nodes are raised.
        nodes: Raised nodes by name, with format and reason.
        cosine: The worst cosine similarity of an output on the samples of the search.
        judged: The same on the samples that judge.
    """

    format: str
    threshold: float
    nodes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    cosine: float = 0.0
    judged: float = 0.0

    @property
    def text(self) -> str:
        """What is raised, in words."""
        below = "for all nodes" if self.threshold == 1 else f"below {self.threshold:g}"
        return f"{self.format} {below} ({pluralize(len(self.nodes), 'node')})" if self.format else "int8"

    def __str__(self) -> str:
        return f"{self.text} {self.cosine:.6f}"


class Ladder(Stepwise):
    """Compiles in int8, then raises the most sensitive nodes until every output meets the goal.

    The sensitivity of a node is the cosine similarity of the worst output with only this node in int8, or if not
    measured, that of its own result on exact inputs. Steps: int16 for nodes below 0.99, 0.999, 0.9999, and for all;
    then float16 likewise, on a march that supports it. Steps are compared on the samples of the search; what meets the
    goal there is judged on others, which decide twice at most.

    Source: the vendor's guide to tuning, which starts with all nodes raised and lowers them at the same thresholds.

    Args:
        job: The compilation.
        goal: The cosine similarity that every float output must have.
    """

    phase, name = "raise", "ladder"

    def __init__(self, job: CompileJob, goal: float):
        super().__init__()
        self._job, self._goal = job, goal

    def steps(self) -> Steps[Outcome]:
        """Climb the ladder; without a step that meets the goal, the most accurate one counts."""
        from dovetail_verify import Compared, Judged, data_of_search

        job, goal = self._job, self._goal
        searching = Compared.on(data_of_search(job)[1], job.original, job.ctx, job.progress)
        judging = Judged(job)
        march = check_ladder(job)
        step, taken, judged = _Step("", 0.0), list[_Step](), list[_Step]()
        trial = yield Proposal(step.text, measure=searching)
        rungs: Iterator[_Step] | None = None
        while True:
            step.cosine = _worst_cosine(trial)
            taken.append(step)
            if step.cosine >= goal and len(judged) < _JUDGED:
                trial = yield Proposal(f"{step.text}, judged", step.nodes, measure=judging)
                step.judged = _worst_cosine(trial)
                judged.append(step)
                if step.judged >= goal:
                    break
            if rungs is None:
                rungs = _rungs(_sensitivities(job, trial.result), _FORMATS[march])
            following = next(rungs, None)
            if following is None:
                step = max(taken, key=lambda one: one.cosine)
                trial = yield Proposal(f"{step.text}, the most accurate", step.nodes, measure=Judged(job))
                step.judged = _worst_cosine(trial)
                break
            step = following
            trial = yield Proposal(step.text, step.nodes, measure=searching)
        met, compiled = step.judged >= goal, trial.result
        compiled.verification = trial.figure
        steps = [str(one) for one in taken]
        compiled.plan.summary[SUMMARY] = {"goal": goal, "met": met, "steps": steps, "nodes": len(step.nodes)}
        said = (
            f"cosine similarity of the worst output, step by step: {', '.join(steps)}; on the samples that judge "
            f"{step.judged:.6f}; {goal:g} is asked for"
        )
        remark = Remark("analysis", "", "ladder", "ladder", said, advice="`dovetail explain OUT`")
        return Outcome(trial=trial, remarks=[remark], failure=None if met else _unmet(goal, str(step), march))


def check_recorded(job: CompileJob, compiled: CompiledModel, goal: float) -> None:
    """Check what a recognized result recorded of its ladder.

    Raises:
        GoalError: It missed the goal.
    """
    recorded = compiled.plan.summary.get(SUMMARY, {})
    if not recorded.get("met", True):
        raise GoalError(compiled, _unmet(goal, recorded["steps"][-1], check_ladder(job)))


def check_ladder(job: CompileJob) -> str:
    """Check that a ladder can be climbed, and return the march of the backend.

    Raises:
        UsageError: There is no data to measure on, the backend is not requested, or there are other goals.
    """
    backend = job.ctx.backend(_BACKEND)
    if backend is None:
        raise UsageError(f"--ladder is for {_BACKEND}, which is not among the backends", f"add --backend {_BACKEND}")
    if job.request.data is None:
        raise UsageError("--ladder needs data to measure on", "give --data: inputs like those the model will see")
    if job.keywords.get("verify") is False:
        raise UsageError("--ladder measures the result, and verify=False forbids it", "leave one of them out")
    from dovetail_verify import GOALS

    others = [name for name in GOALS if job.keywords.get(name) is not None]
    if others:
        other = f"--{others[0].replace('_', '-')}"
        raise UsageError(f"--ladder and {other} are two goals", f"--ladder COSINE gives bits, {other} raises nodes")
    return backend.chosen["march"]


def _worst_cosine(trial: Trial) -> float:
    """Return the lowest cosine similarity of a float output.

    Raises:
        DovetailError: There is no float output.
    """
    outputs = trial.figure.outputs
    found = [0.0 if output.broken else output.cosine for output in outputs if output.cosine is not None]
    if not found:
        raise DovetailError("--ladder: the model has no float output to measure", "choose nodes with --int16")
    return min(found)


def _sensitivities(job: CompileJob, compiled: CompiledModel) -> list[tuple[float, MeasuredLayer]]:
    """Measure the sensitivities of the layers on the BPU; most sensitive first."""
    from dovetail_verify import layers_of_request

    ctx = Context(job.request, plugins=job.ctx.plugins)
    found = layers_of_request(
        job.original, compiled, job.request.data, ctx, job.passes, by="alone", outputs=_MEASURED, progress=job.progress
    )
    rated = [(_sensitivity(layer), layer) for layer in found.layers if layer.backend == _BACKEND]
    return sorted(rated, key=lambda pair: pair[0])


def _sensitivity(layer: MeasuredLayer) -> float:
    if layer.at_outputs is not None:
        # Holds for an error orthogonal to the signal, such as rounding noise.
        return (1 + 10 ** (-layer.at_outputs / 10)) ** -0.5
    return layer.alone.cosine if layer.alone is not None else 1.0


def _rungs(rated: Sequence[tuple[float, MeasuredLayer]], formats: Iterable[str]) -> Iterator[_Step]:
    """Yield the steps above int8, without those that change nothing."""
    nodes: dict[str, tuple[str, str]] = {}
    for format_ in formats:
        for threshold in _THRESHOLDS:
            chosen = [(value, layer) for value, layer in rated if value < threshold or threshold == 1]
            asked = dict(nodes)
            for value, layer in chosen:
                reason = f"--ladder (sensitivity {value:.6f})"
                asked |= dict.fromkeys((layer.node, *layer.moving), (format_, reason))
            if asked != nodes:
                nodes = asked
                yield _Step(format_, threshold, nodes)


def _unmet(goal: float, reached: str, march: str) -> DovetailError:
    more = ", ".join(_FORMATS[march]) or "no more than eight bits"
    return DovetailError(
        f"--ladder {goal:g} is not met: {reached}, and march {march} has {more}",
        f"--min-cosine {goal:g} moves what costs the accuracy to other backends instead",
    )
