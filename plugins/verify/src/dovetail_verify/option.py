"""Compile options for verification: comparison of the result with its original, and accuracy goals."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from dovetail.errors import DovetailError, GoalError, NoEngineError, UsageError, VerificationError
from dovetail.planning import Remark
from dovetail.plugin import Option
from dovetail_commands.request import command_text

from dovetail_verify.arguments import GOALS, add_goals, add_input_shapes, checked_shapes, goals_of, shapes_of
from dovetail_verify.layers import ORDERS, check_order

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, CompileJob, Proceed

    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.compare import OutputVerification
    from dovetail_verify.floats_instead import FloatsInstead
    from dovetail_verify.held_out import HeldOut
    from dovetail_verify.layers import LayerErrors
    from dovetail_verify.preparation import PreparationCheck


class VerifyResult(Option):
    """The option: `dovetail compile --verify`, and `dovetail.compile(..., verify=True)`.

    Keyword arguments of `dovetail.compile`:
        verify: Compare the result with the original: by default (None) when there is data; on random inputs where there
            is none.
        check_prepare: Compare the prepared model with the source on a few samples of the first batch, or without data
            on random inputs if the model is small, before anything is decided; by default unless `verify` is False. A
            difference beyond rounding is an error.
        input_shapes: Shapes of random inputs where the model leaves them open: by name, or texts as the command takes.
        compare_floats: Compare the time of a result with integers with that of floats here, and return floats where
            these are faster, in the formats of the request; by default (None) where there are goals, for which low
            floats are compared with float32, too, or where integers would leave less than 20 dB.
        all_integers: Leave no node in floats that data says is too costly or too slow in integers, nor the whole result
            if these would leave less than 20 dB or less than an original in integers, as is done on this machine's own
            device otherwise.
        layers: Measure the error of every node on the data, and write it into the plan: the worst ten into
            `plan.summary["layers"]`, all of them as remarks, which `explain` shows. What to rank by, or True.
        min_snr, min_cosine, min_top1, max_abs, max_kl, max_perplexity_rise: Accuracy goals, which every float output
            must meet on the data; see `dovetail_verify.accuracy.goals.Goals`. As few nodes as possible are raised to
        the types of the source model; the remarks and `plan.summary["accuracy"]` say what and why.
    """

    commands = ("compile",)
    keywords = ("verify", "check_prepare", "input_shapes", "compare_floats", "all_integers", "layers", *GOALS)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments, and the goals, to the parser."""
        parser.add_argument(
            "--verify", action="store_true", help="measure the result, on random inputs if there is no data"
        )
        parser.add_argument(
            "--no-check-prepare", action="store_true", help="do not compare the prepared model with the source first"
        )
        parser.add_argument(
            "--no-compare-floats",
            action="store_true",
            help="do not compare the time of integers with that of floats, or of low floats with that of float32, "
            "nor return the faster",
        )
        parser.add_argument(
            "--all-integers",
            action="store_true",
            help="leave no node in floats that is too costly or too slow in integers",
        )
        parser.add_argument(
            "--layers", action="store_true", help="measure every node on the data, and write that into the plan"
        )
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
            "compare_floats": not args.no_compare_floats,
            "all_integers": args.all_integers or None,
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
        whole = {"all_integers": True} if keywords.get("all_integers") else {}
        return {**goals.as_dict(), **({"layers": layers} if layers else {}), **whole}

    def words(self, command: str, recorded: Mapping[str, Any]) -> list[str] | None:
        """Return the goals as arguments; `--layers` applies to `compile` only, and does not affect the result."""
        if command == "plan":
            return None
        words = ["--layers"] if "layers" in recorded and command == "compile" else []
        words += ["--all-integers"] if "all_integers" in recorded and command == "compile" else []
        goals = [(name, recorded[name]) for name in GOALS if recorded.get(name) is not None]
        return words + [word for name, goal in goals for word in (f"--{name.replace('_', '-')}", str(goal))]

    def compile(self, job: CompileJob, proceed: Proceed) -> CompiledModel:
        """Compile so that the goals are met, and compare the result with the original if requested.

        Raises:
            GoalError: The goals cannot be met; the error holds the most accurate result.
            VerificationError: The result could not be compared with the original; the error holds it.
        """
        goals, verify, data = _goals(job.keywords), job.keywords.get("verify"), job.request.data
        goals.check_data(data)
        floats = _floats_instead(job, bool(goals))
        if data is not None:
            goals.check_model(job.original)
        if _order(job.keywords) and data is None:
            raise UsageError(
                "there is no data to look at layers with", "give --data: inputs like those that the model will see"
            )
        prepared: PreparationCheck | None = None
        if _checks_preparation(job.keywords):
            from dovetail_verify.preparation import PreparationCheck

            shapes = shapes_of(job.keywords.get("input_shapes"), job.original)
            prepared = PreparationCheck(job, shapes)
            job.on_prepared.append(prepared)
        failure: DovetailError | None = None
        held_out: HeldOut | None = None
        measures = verify or verify is None and data is not None
        if not goals:
            compiled, held_out = _compiled(job, proceed, measures, floats)
        elif job.recognized is not None:
            # A recognized result was measured before; its source is not available, and not needed.
            from dovetail_verify.accuracy.goals import recorded_failure

            compiled = proceed()
            failure = recorded_failure(compiled, goals)
        else:
            compiled, failure = _meeting(goals, job, proceed, floats)
        compiled.plan.remarks += prepared.remarks if prepared is not None else ()
        layers = self._layers(job, compiled, data if held_out is None else held_out.judgment)
        if compiled.verification is None and measures:
            if job.ctx.try_engines is not False:  # otherwise a remark may still be added
                job.keep(compiled)
            try:
                compiled.verification = _compared(job, compiled, held_out)
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
            verification.pace = verification.pace or (floats.pace if floats is not None else "")
            verification.doubts += _doubts_about(job, verification, data if held_out is None else held_out.judgment)
            verification.doubts += _saturation(compiled, verification)
            compiled.add_comparison()
        if failure is not None:
            job.keep(compiled)
            raise GoalError(compiled, failure)
        return compiled

    def _layers(self, job: CompileJob, compiled: CompiledModel, data: object) -> LayerErrors | None:
        """Measure the errors of all nodes and record them in the plan; None if not requested, or recorded already."""
        by = _order(job.keywords)
        if not by or job.recognized is compiled:
            return None
        from dovetail.passes import Context

        from dovetail_verify.functions import layers_of_request

        try:
            ctx = Context(job.request, plugins=job.ctx.plugins)
            found = layers_of_request(job.original, compiled, data, ctx, job.passes, by=by, progress=job.progress)
        except DovetailError as error:
            job.keep(compiled)
            raise VerificationError(compiled, error) from error
        found.record(compiled)
        return found


def _checks_preparation(keywords: Mapping[str, Any]) -> bool:
    asked = keywords.get("check_prepare")
    return keywords.get("verify") is not False if asked is None else bool(asked)


def _order(keywords: Mapping[str, Any]) -> str:
    """Return the ranking criterion of layers; empty if layers were not requested.

    Raises:
        UsageError: The criterion is unknown.
    """
    given = keywords.get("layers")
    by = ORDERS[0] if given is True else given or ""
    if by:
        check_order(by)
    return by


def _goals(keywords: Mapping[str, Any]) -> Goals:
    from dovetail_verify.accuracy.goals import Goals

    return Goals(**{name: keywords.get(name) for name in GOALS})


def _floats_instead(job: CompileJob, goals: bool) -> FloatsInstead | None:
    """Return what decides between integers and floats; None if they are not compared, or cannot be."""
    asked = job.keywords.get("compare_floats")
    compares = goals if asked is None else asked
    if not compares or job.request.data is None or job.recognized is not None or job.ctx.try_engines is False:
        return None
    from dovetail_verify.floats_instead import FloatsInstead

    return FloatsInstead(job)


def _meeting(
    goals: Goals, job: CompileJob, proceed: Proceed, floats: FloatsInstead | None
) -> tuple[CompiledModel, DovetailError | None]:
    """Compile a result that meets the goals, or the most accurate one with the reason for the miss."""
    from dovetail_verify.accuracy.formats import meet_goals_over_formats
    from dovetail_verify.held_out import HeldOut

    outcome = meet_goals_over_formats(job, HeldOut(job, proceed, searched=True), goals, floats)
    return outcome.compiled, outcome.failure


def _compiled(
    job: CompileJob, proceed: Proceed, divided: bool, floats: FloatsInstead | None
) -> tuple[CompiledModel, HeldOut | None]:
    """Compile without goals, on a part of the data if the rest of it is to judge, and a backend learns from data."""
    data, given = job.request.data, job.ctx.try_engines is False  # nothing runs here
    # Passes measure data for integers and for low floats.
    learns = any(one.has_integers or one.low and one.low != one.high for one in job.ctx.backends)
    if data is None or job.recognized is not None or not learns:
        return proceed(), None
    from dovetail_verify.held_out import HeldOut, record_use

    if divided:
        held_out = HeldOut(job, proceed, searched=False)
        compiled = held_out.compile()
        return (compiled if given else _within_reason(job, held_out, compiled, floats)), held_out
    compiled = proceed()
    record_use(compiled, data)
    return compiled, None


def _within_reason(
    job: CompileJob, held_out: HeldOut, compiled: CompiledModel, floats: FloatsInstead | None
) -> CompiledModel:
    """Return a result without nodes that are too costly in integers, or without any if they leave too little.

    The same if they are slower than floats; and if the original has integers, a result that gives no less than these.
    """
    from dovetail_verify.accuracy.costly_nodes import as_accurate, without_costly_nodes
    from dovetail_verify.accuracy.least_accuracy import above_least
    from dovetail_verify.accuracy.source_integers import with_source_integers

    def instead(result: CompiledModel) -> CompiledModel | None:
        return floats.of(result, as_accurate(job, held_out, result)) if floats is not None else None

    if (faster := instead(compiled)) is not None:
        return faster
    shapes = shapes_of(job.keywords.get("input_shapes"), job.original)
    if (kept := with_source_integers(job, held_out, compiled, shapes)) is not compiled:
        return kept
    considered = without_costly_nodes(job, held_out, compiled)
    if considered.compiled is not compiled and (faster := instead(considered.compiled)) is not None:
        return faster
    return above_least(job, held_out, considered, shapes)


def _compared(job: CompileJob, compiled: CompiledModel, held_out: HeldOut | None) -> OutputVerification:
    from dovetail_verify.parts import compared

    try:
        shapes = shapes_of(job.keywords.get("input_shapes"), job.original)
        if held_out is not None:
            return held_out.judged(compiled, shapes)
        return compared(job.original, compiled, job.request.data, shapes, job.progress, job.ctx)
    except DovetailError as error:
        raise VerificationError(compiled, error) from error


def _doubts_about(job: CompileJob, found: OutputVerification, data: object) -> list[str]:
    from dovetail_verify.own_kernels import doubts_about

    return doubts_about(job.original, found, data, job.ctx) if job.recognized is None else []


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
