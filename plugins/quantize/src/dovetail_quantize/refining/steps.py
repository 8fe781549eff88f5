"""Names of the refinements, and which of them a request, a backend or a replayed plan selects."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dovetail.cli import DECISIONS, option_group
from dovetail.errors import DovetailError, UsageError
from dovetail.plugin import Option
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    from dovetail.passes import Context
    from dovetail.planning import Plan


STEPS = ("equalize", "smooth", "rounding", "bias", "scales", "feedback")
"""All refinements, in execution order."""

EQUALIZE, SMOOTH, ROUNDING, BIAS, SCALES, FEEDBACK = STEPS
"""Names of the refinements."""

SCALING = (EQUALIZE, SMOOTH)
"""Refinements that change activations between layers, and hence calibration."""

READING_SCALES = (ROUNDING, BIAS)
"""Refinements that compute with the integers of weights, and hence their scales."""

REFINE_OPTION, RECORD, _NONE = "refine", "refined", "none"
"""The option of a request that names refinements, and the key of a plan's record of them."""


def parse_steps(given: str | Iterable[str]) -> tuple[str, ...]:
    """Parse a list of refinements (`bias,rounding`), as text or names, into execution order.

    Raises:
        UsageError: A refinement is unknown, or `none` is combined with others.
    """
    parts = given.split(",") if isinstance(given, str) else list(given)
    names = [part.strip() if isinstance(part, str) else part for part in parts]
    for name in names:
        if name not in (*STEPS, _NONE):
            near = did_you_mean(name, (*STEPS, _NONE)) if isinstance(name, str) else ""
            raise UsageError(f"unknown refinement {name!r}{near}", f"there are {', '.join(STEPS)}, and {_NONE}")
    if _NONE in names and set(names) != {_NONE}:
        others = ", ".join(name for name in names if name != _NONE)
        raise UsageError(f"refinement '{_NONE}' excludes {others}", f"name {others} alone, or {_NONE}")
    return tuple(step for step in STEPS if step in names)


def needs_data(ctx: Context, step: str) -> None:
    """Check that a refinement has data.

    Raises:
        DovetailError: There is no data.
    """
    if ctx.request.data is None:
        raise DovetailError(
            f"refinement '{step}' needs data, and there is none",
            "give --data with inputs like those that the model will see, or leave it out of --refine",
        )


def wanted(ctx: Context, step: str) -> bool:
    """Check whether any backend uses a refinement.

    Raises:
        DovetailError: See `steps_of`.
    """
    return any(step in steps for steps in steps_of(ctx).values())


def steps_of(ctx: Context) -> Mapping[str, tuple[str, ...]]:
    """Return the refinements of every chosen backend, by its name.

    A replayed plan determines its own, because its scales belong to the refined weights. Otherwise the request names
    them, or each backend's file does.

    Raises:
        DovetailError: The request and the replayed plan contradict each other, or a backend names an unknown
            refinement.
    """
    asked = ctx.request.options.get(REFINE_OPTION, {}).get("steps")
    names = [backend.name for backend in ctx.backends]
    wanted = {name: parse_steps(asked) for name in names} if asked is not None else _defaults(ctx)
    if ctx.request.plan is None or not ctx.request.plan.values:
        return wanted
    recorded = _recorded(ctx.request.plan)
    if recorded is None:
        # The plan's scales belong to the current weights, so these must not be scaled.
        bad = sorted({step for steps in wanted.values() for step in steps if step in SCALING}, key=STEPS.index)
        if asked is not None and bad:
            raise DovetailError(
                f"the plan has scales of a model without {' and '.join(bad)}, and --refine asks for it",
                "leave it out, or compile without --plan",
            )
        return wanted if asked is not None else dict.fromkeys(names, ())
    kept = {name: recorded.get(name, ()) for name in names}
    if asked is not None and any(kept[name] != wanted[name] for name in names):
        made = "; ".join(f"{name}: {', '.join(steps) or _NONE}" for name, steps in kept.items())
        raise DovetailError(
            f"the plan was made with other refinements ({made}) than --refine asks for",
            "leave --refine out, or compile without --plan",
        )
    return kept


def _defaults(ctx: Context) -> dict[str, tuple[str, ...]]:
    """Return the refinements that each backend's file names; those of weights alone are left out without data."""
    named = _named(ctx)
    if ctx.request.data is not None:
        return named
    return {name: () if FEEDBACK in steps else steps for name, steps in named.items()}


def left_out(ctx: Context) -> Mapping[str, tuple[str, ...]]:
    """Return the refinements that a backend's file names and that are left out because there is no data."""
    asked = ctx.request.options.get(REFINE_OPTION, {}).get("steps") is not None
    plan = ctx.request.plan
    if asked or ctx.request.data is not None or (plan is not None and plan.values):
        return {}
    return {name: steps for name, steps in _named(ctx).items() if FEEDBACK in steps}


def _named(ctx: Context) -> dict[str, tuple[str, ...]]:
    found = {}
    for backend in ctx.backends:
        try:
            found[backend.name] = parse_steps(backend.refine)
        except UsageError as error:
            raise DovetailError(f"backend '{backend.name}': {error.message}", error.hint) from None
    return found


def _recorded(plan: Plan) -> dict[str, tuple[str, ...]] | None:
    """Return the refinements by backend that the replayed plan records; None if it records none."""
    record: Any = plan.summary.get(RECORD)
    if record is None:
        return None
    try:
        return {str(name): parse_steps(steps) for name, steps in record["steps"].items()}
    except (KeyError, TypeError, AttributeError, UsageError) as error:
        why = error.message if isinstance(error, UsageError) else "'steps' is no mapping from backends to names"
        raise DovetailError(f"plan: '{RECORD}' in its summary: {why}", "replay a plan as it was saved") from None


class Refine(Option):
    """The option: `dovetail compile --refine bias,rounding`, and `dovetail.compile(..., refine="bias,rounding")`.

    Keyword arguments of `dovetail.compile` and `dovetail.bisect`:
        refine: The refinements of quantized weights, as a text with commas or as names: `equalize`, `smooth`,
            `rounding`, `bias`, `scales`, `feedback`; `none` for none. By default (None), those that each
            backend's file names.
    """

    commands = ("compile", "bisect")
    keywords = ("refine",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--refine` to the parser."""
        option_group(parser, DECISIONS).add_argument(
            "--refine",
            metavar="STEPS",
            help=f"corrections of quantized weights: some of {','.join(STEPS)}, or none; by default what "
            "each backend's file says",
        )

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return the keyword arguments.

        Raises:
            UsageError: A refinement is unknown.
        """
        if args.refine is not None:
            parse_steps(args.refine)
        return {"refine": args.refine}

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return the refinements in execution order; empty if the backends' files decide.

        Raises:
            UsageError: A refinement is unknown.
        """
        given = keywords.get("refine")
        return {} if given is None else {"steps": list(parse_steps(given))}

    def words(self, command: str, recorded: Mapping[str, Any]) -> list[str] | None:
        """Return the steps as command-line arguments; None for `plan`, which does not refine."""
        return None if command == "plan" else ["--refine", ",".join(recorded["steps"]) or "none"]


REFINE = Refine()
