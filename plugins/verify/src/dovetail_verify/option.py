"""Compile options for verification: comparison of the result with its original, and accuracy goals."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from dovetail.cli import ACCURACY, option_group
from dovetail.errors import DovetailError, GoalError, NoEngineError, UsageError, VerificationError
from dovetail.planning import Remark
from dovetail.plugin import Option, Outcome, Policy
from dovetail_commands.request import command_text

from dovetail_verify.arguments import GOALS, add_goals, add_input_shapes, checked_shapes, goals_of, shapes_of

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, CompileJob, Phase, Trial

    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.compare import OutputVerification
    from dovetail_verify.layers import LayerErrors


class VerifyResult(Option):
    """The option: `dovetail compile --verify`, and `dovetail.compile(..., verify=True)`.

    Keyword arguments of `dovetail.compile`:
        verify: Compare the result with the original: by default (None) when there is data; on random inputs where there
            is none.
        check_prepare: Compare the prepared model with the source on a few samples of the first batch, or without data
            on random inputs if the model is small, before anything is decided; by default unless `verify` is False. A
            difference beyond rounding is an error.
        input_shapes: Shapes of random inputs where the model leaves them open: by name, or texts as the command takes.
        layers: Measure the error of every node on the data, and write it into the plan: the worst ten into
            `plan.summary["layers"]`, all of them as remarks, which `explain` shows. What to rank by, or True.
        min_snr, min_cosine, min_top1, max_abs, max_kl, max_perplexity_rise: Accuracy goals, which every float output
            must meet on the data; see `dovetail_verify.accuracy.goals.Goals`. As few nodes as possible are raised to
        the types of the source model; the remarks and `plan.summary["accuracy"]` say what and why.
    """

    commands = ("compile",)
    keywords = ("verify", "check_prepare", "input_shapes", "layers", *GOALS)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments, and the goals, to the parser."""
        add = option_group(parser, ACCURACY).add_argument
        add("--verify", action="store_true", help="measure the result, on random inputs if there is no data")
        add("--no-check-prepare", action="store_true", help="do not compare the prepared model with the source first")
        add("--layers", action="store_true", help="measure every node on the data, and write that into the plan")
        add_input_shapes(parser)
        add_goals(parser)

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return the keyword arguments; data for goals is checked later, because other options may provide it.

        Raises:
            UsageError: A goal or a shape is invalid.
        """
        return {
            "verify": args.verify or None,
            "check_prepare": False if args.no_check_prepare else None,
            "input_shapes": checked_shapes(args),
            "layers": args.layers,
            **goals_of(args, data_later=True),
        }

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return the goals and the ranking criterion of layers.

        Raises:
            UsageError: A goal is invalid, or verification is disabled.
        """
        goals = _goals(keywords)
        if goals and keywords.get("verify") is False:
            raise UsageError(f"{goals} is a goal, and verify=False forbids to measure it", "leave one of them out")
        layers = _order(keywords)
        return {**goals.as_dict(), **({"layers": layers} if layers else {})}

    def words(self, command: str, recorded: Mapping[str, Any]) -> list[str] | None:
        """Return the goals as arguments; `--layers` applies to `compile` only, and does not affect the result."""
        if command == "plan":
            return None
        words = ["--layers"] if "layers" in recorded and command == "compile" else []
        goals = [(name, recorded[name]) for name in GOALS if recorded.get(name) is not None]
        return words + [word for name, goal in goals for word in (f"--{name.replace('_', '-')}", str(goal))]

    def begin(self, job: CompileJob) -> None:
        """Check goals and data, and let the prepared model be compared with the source.

        Raises:
            UsageError: There is no data to measure on, or no output that a goal applies to.
        """
        goals, data = _goals(job.keywords), job.request.data
        goals.check_data(data)
        if data is not None:
            goals.check_model(job.original)
        if _order(job.keywords) and data is None:
            raise UsageError(
                "there is no data to look at layers with", "give --data: inputs like those that the model will see"
            )
        if _checks_preparation(job.keywords):
            from dovetail_verify.preparation import PreparationCheck

            shapes = shapes_of(job.keywords.get("input_shapes"), job.original)
            job.on_prepared.append(job.ctx.kept.put(PreparationCheck(job, shapes)))

    def policies(self, job: CompileJob, phase: Phase) -> Iterable[Policy]:
        """Keep what judges the result out of calibration, and search for what meets goals or the backends' floors."""
        if phase == "observe" and _divides(job):
            return [_Divided(job)]
        if phase == "raise" and _divides(job):
            if goals := _goals(job.keywords):
                from dovetail_verify.accuracy.formats import MeetGoals

                return [MeetGoals(job, goals)]
            if any(backend.floor for backend in job.ctx.backends):
                from dovetail_verify.accuracy.floor import AboveFloor

                return [AboveFloor(job)]
        return []

    def finish(self, job: CompileJob, compiled: CompiledModel) -> None:
        """Record which data the result is of, and what was said of the preparation."""
        from dovetail_verify.preparation import PreparationCheck

        prepared = job.ctx.kept.get(PreparationCheck)
        compiled.plan.remarks += prepared.remarks if prepared is not None else ()
        if job.request.data is None or not _learns(job):
            return
        from dovetail_verify.held_out import divided, record_use

        given, split = job.request.data, None
        if _divides(job):
            split = divided(job).split
            given = split.data
            if compiled.plan.request is not None:
                compiled.plan.request = replace(compiled.plan.request, data=given).recorded()
        record_use(compiled, given, split)

    def judge(self, job: CompileJob, compiled: CompiledModel) -> None:
        """Compare the result with the original.

        Raises:
            GoalError: A recognized result misses the goals, as it did before.
            VerificationError: The result could not be compared with the original; the error holds it.
        """
        goals, verify, data = _goals(job.keywords), job.keywords.get("verify"), job.request.data
        measures = verify or verify is None and data is not None
        divides = job.recognized is None and _divides(job)
        layers = self._layers(job, compiled, divides)
        if compiled.verification is None and measures:
            if job.ctx.try_engines is not False:  # otherwise a remark may still be added
                job.keep(compiled)
            try:
                compiled.verification = _compared(job, compiled, divides)
            except VerificationError as error:
                cause = error.__cause__
                if verify or not isinstance(cause, NoEngineError) or job.ctx.try_engines is not False:
                    raise
                compiled.plan.remarks.append(_not_verified(job, cause))
        if measures and data is not None and job.recognized is None:
            from dovetail_verify.claimed_matches import unmatched_programs

            compiled.plan.remarks += unmatched_programs(job, compiled)
        verification = cast("OutputVerification | None", compiled.verification)
        if verification is not None:
            verification.layers = layers
            tried = command_text("bisect", job.original.path, job.request, job.ctx.registry)
            raises = "" if goals else "; --min-snr 30 raises them"
            verification.remedy = f"`{tried}` shows which nodes cost it{raises}"
            verification.doubts += _doubts_about(job, verification, divides)
            verification.doubts += _saturation(compiled, verification)
            compiled.add_comparison()
        if goals and job.recognized is not None:
            from dovetail_verify.accuracy.goals import recorded_failure

            # It was measured before; its source is not available, and not needed.
            if (failure := recorded_failure(compiled, goals)) is not None:
                raise GoalError(compiled, failure)

    def _layers(self, job: CompileJob, compiled: CompiledModel, divides: bool) -> LayerErrors | None:
        """Measure the errors of all nodes and record them in the plan; None if not requested, or recorded already."""
        by = _order(job.keywords)
        if not by or job.recognized is compiled:
            return None
        from dovetail.passes import Context

        from dovetail_verify.functions import layers_of_request

        data = _judging(job, divides)
        try:
            ctx = Context(job.request, plugins=job.ctx.plugins)
            found = layers_of_request(job.original, compiled, data, ctx, job.passes, by=by, progress=job.progress)
        except DovetailError as error:
            job.keep(compiled)
            raise VerificationError(compiled, error) from error
        found.record(compiled)
        return found


class _Divided(Policy):
    """Lets a part of the data calibrate, so that what judges the result calibrates nothing; it tries nothing."""

    phase, name, compares = "observe", "data", False

    def __init__(self, job: CompileJob):
        self._job = job

    def propose(self, trials: Sequence[Trial]) -> None:
        """Propose nothing."""

    def outcome(self, trials: Sequence[Trial]) -> Outcome:
        """Return the request with the data that calibrates."""
        from dovetail_verify.held_out import divided

        return Outcome(replace(self._job.request, data=divided(self._job).calibration))


def _learns(job: CompileJob) -> bool:
    """Check whether a backend learns from data: passes measure it for integers and for low floats."""
    return any(one.has_integers or one.low and one.low != one.high for one in job.ctx.backends)


def _divides(job: CompileJob) -> bool:
    """Check whether a part of the data judges the result, and calibrates nothing."""
    verify, data = job.keywords.get("verify"), job.request.data
    if data is None or verify is False:
        return False
    return bool(_goals(job.keywords)) or _learns(job)


def _judging(job: CompileJob, divides: bool) -> object:
    """Return the data that judges the result."""
    from dovetail_runtime.data.data_split import Use

    from dovetail_verify.held_out import divided

    return divided(job).split.part(Use.JUDGMENT) if divides else job.request.data


def _checks_preparation(keywords: Mapping[str, Any]) -> bool:
    asked = keywords.get("check_prepare")
    return keywords.get("verify") is not False if asked is None else bool(asked)


def _order(keywords: Mapping[str, Any]) -> str:
    """Return the ranking criterion of layers; empty if layers were not requested.

    Raises:
        UsageError: The criterion is unknown.
    """
    given = keywords.get("layers")
    if not given:
        return ""
    from dovetail_verify.layers import ORDERS, check_order

    by = ORDERS[0] if given is True else given
    check_order(by)
    return by


def _goals(keywords: Mapping[str, Any]) -> Goals:
    from dovetail_verify.accuracy.goals import Goals

    return Goals(**{name: keywords.get(name) for name in GOALS})


def _compared(job: CompileJob, compiled: CompiledModel, divides: bool) -> OutputVerification:
    from dovetail_verify.held_out import judged
    from dovetail_verify.parts import compared

    try:
        if divides:
            return judged(job, compiled)
        shapes = shapes_of(job.keywords.get("input_shapes"), job.original)
        return compared(job.original, compiled, job.request.data, shapes, job.progress, job.ctx)
    except DovetailError as error:
        raise VerificationError(compiled, error) from error


def _doubts_about(job: CompileJob, found: OutputVerification, divides: bool) -> list[str]:
    from dovetail_verify.own_kernels import doubts_about

    return doubts_about(job.original, found, _judging(job, divides), job.ctx) if job.recognized is None else []


def _saturation(compiled: CompiledModel, found: OutputVerification) -> list[str]:
    from dovetail_verify.accuracy.trials import low_nodes

    return found.saturation() if low_nodes(compiled.plan) else []


def _not_verified(job: CompileJob, error: DovetailError) -> Remark:
    """Return a remark that a result for another machine was not verified here."""
    model = job.original.path or "MODEL"
    return Remark(
        "analysis", "", "compile", "not-verified", f"the result was not verified: {error.message}",
        advice=f"`dovetail verify {shlex.quote(str(model))} OUT --data FILE` where the engine is",
    )  # fmt: skip


VERIFY_RESULT = VerifyResult()
