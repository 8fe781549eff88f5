"""`dovetail compile`: place, type and join a model, write the result, and measure it."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from dovetail.cli.common import (
    add_goals,
    add_input_shapes,
    add_instrumentation,
    add_request,
    bisect_command,
    command,
    existing,
    goals_of,
    input_shapes_of,
    instrumentation_of,
    output,
    request_of,
    warn,
)
from dovetail.cli.output import Progress, note, print_json, say, say_note, table
from dovetail.counting import counted
from dovetail.errors import DovetailError, GoalError, UsageError
from dovetail.planning.placement import HOST

__all__ = ["add_parser", "run"]

_SHOWN = 6  # operators in a row of the table


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(commands, "compile", run, "Compile a model for one or several backends.")
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument(
        "-o", "--output", type=output, metavar="OUT", help="folder to write; nothing is written without it"
    )
    parser.add_argument("--plan", type=Path, metavar="plan.yaml", help="replay a plan instead of deciding")
    parser.add_argument(
        "--verify", action="store_true", help="measure the result, on random inputs if there is no data"
    )
    add_input_shapes(parser)
    parser.add_argument(
        "--try-engines",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="load the result on the engines that it is made for, and place elsewhere what they refuse "
        "(default: yes, unless the model is large)",
    )
    parser.add_argument("--external-data", action="store_true", help="store the weights in a file of their own")
    add_request(parser)
    add_goals(parser)
    add_instrumentation(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if not args.backend and not args.plan:
        raise UsageError("no backend is named", "add --backend NAME (repeatable), or --plan FILE")
    goals = goals_of(args)
    request = {**request_of(args), "plan": existing(args.plan), "try_engines": args.try_engines}
    from dovetail import api
    from dovetail.results.saving import check_folder

    if args.output:
        check_folder(args.output)
    model = api.open(existing(args.model))
    shapes = input_shapes_of(args, model)
    with Progress() as progress:
        watch = instrumentation_of(args, progress)
        failure: DovetailError | None = None
        try:
            # Goals are measured while compiling; else saving comes first.
            verify = None if goals else False
            compiled = api.compile(model, **request, **goals, verify=verify, progress=progress, instrumentation=watch)
        except GoalError as error:
            compiled, failure = error.compiled, error
        if args.output:
            # Before it is verified: whatever comes of that, the result is there.
            compiled.save(args.output, external=True if args.external_data else None, progress=progress)
        if compiled.verification is None and (args.verify or args.data is not None):
            try:
                compiled.verification = api.verify(
                    model, compiled, args.data, input_shapes=shapes, plugins=request["plugins"], progress=progress
                )
            except DovetailError as error:
                failure = error
    code = 1 if compiled.verification is not None and compiled.verification.broken else 0
    if args.json:
        if failure is not None and not isinstance(failure, GoalError):
            raise failure
        print_json(_document(args, compiled))
        if failure is not None:
            note(f"error: {failure}")
        return 1 if failure is not None else code
    table(_by_place(compiled.placement_table()))
    if compiled.verification is not None:
        say(*compiled.verification.lines())
    for text in [*compiled.notes(), *(compiled.verification.notes if compiled.verification is not None else ())]:
        say_note(text)
    say(compiled.summary())
    if compiled.verification is not None and compiled.verification.warnings:
        names = args.backend or [entry["name"] for entry in compiled.plan.backends]
        tried = bisect_command(args.model, names, args.data)
        warn(compiled.verification, f"`{tried}` shows which nodes cost it; --min-snr 30 raises them")
    if failure is not None:
        raise failure
    if code:
        note("error: the result is broken: it is no approximation of the original")
    return code


def _by_place(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a placement table with their operators gathered: one row per backend and precision."""
    places: dict[tuple, Counter[str]] = {}
    for row in rows:
        place = tuple((key, row[key]) for key in ("backend", "precision", "executed") if key in row)
        places.setdefault(place, Counter())[row["operator"]] += row["nodes"]
    ordered = sorted(places.items(), key=lambda item: (item[0][0][1] == HOST, -item[1].total(), item[0]))
    return [{**dict(place), "nodes": found.total(), "operators": _listed(found)} for place, found in ordered]


def _listed(operators: Counter[str]) -> str:
    shown = [f"{name} {number}" for name, number in operators.most_common(_SHOWN)]
    rest = len(operators) - len(shown)
    return ", ".join(shown) + (f" and {counted(rest, 'other')}" if rest else "")


def _document(args: argparse.Namespace, compiled: Any) -> dict[str, Any]:
    return {
        "output": args.output and str(args.output),
        "placements": compiled.placement_table(),
        "plan": compiled.plan.as_dict(),
        "remarks": [remark.as_dict() for remark in compiled.remarks],
        "verification": compiled.verification and compiled.verification.as_dict(),
        "warnings": compiled.verification.warnings if compiled.verification is not None else [],
        "notes": compiled.notes(),
        "summary": compiled.summary(),
    }
