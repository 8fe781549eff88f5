"""`dovetail compile` and `dovetail plan`: run the compiler, write the result, and print tables and notes."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import (
    ENGINES,
    WRITTEN,
    PlainCommand,
    existing,
    note,
    option_group,
    option_keywords,
    output,
    plugins_of,
    print_json,
    say,
)
from dovetail.errors import ResultError, UsageError
from dovetail.planning import HOST, assumed
from dovetail.text import pluralize, printable

from dovetail_commands.instrumentation import add_instrumentation, instrumentation_of
from dovetail_commands.progress import Progress
from dovetail_commands.request import add_model, add_request, completed_model, request_of
from dovetail_commands.terminal import say_note, say_notes, styled, table, warn

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from dovetail.plugin import CompiledModel

    from dovetail_commands.stages import StageReport

_SHOWN = 6  # operators in a row of the table


def add_compile_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_model(parser, "MODEL|FOLDER")
    written = option_group(parser, WRITTEN)
    written.add_argument(
        "-o",
        "--output",
        type=output,
        metavar="OUT",
        help="folder to write, or nothing is written; each model of a folder gets one in it",
    )
    written.add_argument("--plan", type=Path, metavar="plan.yaml", help="replay a plan instead of deciding")
    option_group(parser, ENGINES).add_argument(
        "--try-engines",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="load the result on its engines, and move what they refuse (default: yes, unless it is large)",
    )
    option_group(parser, ENGINES).add_argument(
        "-j",
        "--jobs",
        type=int,
        metavar="N",
        help="compile N models of a folder at a time",
    )
    option_group(parser, ENGINES).add_argument(
        "--cluster", metavar="ADDRESS",
        help="a dask.distributed scheduler: its machines compile folders, calibrate and verify on parts of --data",
    )  # fmt: skip
    written.add_argument("--external-data", action="store_true", help="store the weights in a file of their own")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="say what each stage decided and how long it took, and all notes"
    )
    add_request(parser)
    add_instrumentation(parser)


def run_compile(args: argparse.Namespace) -> int:
    """Run the command."""
    path = completed_model(args)
    request = {**request_of(args), "plan": existing(args.plan), "try_engines": args.try_engines}
    request |= option_keywords(args)
    from dovetail import api
    from dovetail.plugin.loading import store_for

    from dovetail_commands.next_command import next_command

    if args.output:  # before anything is compiled
        with store_for(args.output, "save", plugins_of(args).registry) as store:
            store.check(args.output)
    existing(path)
    if args.jobs is not None and not path.is_dir():
        raise UsageError(f"--jobs is for folders of models, and {path} is a file", "leave it out")
    if args.cluster and not path.is_dir():
        request["executor"] = args.cluster
    if path.is_dir():
        code = _run_whole(args, path, request)
        return _run_folder(args, path, request) if code is None else code
    model = api.open(path, plugins_of(args))
    failure: ResultError | None = None
    with Progress() as progress:

        def keep(compiled: CompiledModel) -> None:
            if args.output:
                compiled.save(args.output, external=True if args.external_data else None, progress=progress)

        try:
            watch = instrumentation_of(args, progress, report=_stage_report(args, progress))
            compiled = api.compile(model, **request, keep=keep, progress=progress, instrumentation=watch)
        except ResultError as error:
            compiled, failure = error.compiled, error
    verification = compiled.verification
    code = 1 if failure is not None or verification is not None and verification.broken else 0
    if args.json:
        print_json(_document(args, compiled, failure))
        if failure is not None:
            note(f"error: {failure}")
        return code
    table(_by_place(compiled.placement_table()))
    if verification is not None:
        say(*verification.lines())
    say_notes([*compiled.notes(), *(verification.notes if verification is not None else ())], args.verbose)
    print(styled(printable(compiled.summary()), "bold"))
    note(*(f"warning: {text}" for text in compiled.warnings()))
    if verification is not None:
        warn(verification)
    if failure is None and not code and sys.stderr.isatty():
        command, why = next_command(compiled, args.output, request.get("data"))
        print(styled(f"next: {printable(command)}", "cyan", sys.stderr) + f"  ({printable(why)})", file=sys.stderr)
    if failure is not None:
        raise failure
    if code:
        note("error: the result is broken: it is no approximation of the original")
        if verification is not None and verification.advice:
            note(f"  {verification.advice}")
    return code


def _stage_report(args: argparse.Namespace, progress: Progress) -> StageReport | None:
    """Return what says what each part of the compilation decides: on a terminal, and with `--verbose`."""
    if args.json or not (args.verbose or sys.stderr.isatty()):
        return None
    from dovetail_commands.stages import StageReport

    return StageReport(progress.say, plugins_of(args).registry, seconds=args.verbose)


def _run_whole(args: argparse.Namespace, folder: Path, request: dict[str, Any]) -> int | None:
    """Compile a folder that a plugin compiles as a unit; return None if no plugin does."""
    from dovetail_commands.compile_folder import compile_whole

    external = True if args.external_data else None
    with Progress() as progress:
        given = {
            "plugins": plugins_of(args),
            "progress": progress,
            "instrumentation": instrumentation_of(args, progress),
        }
        compiled, failure = compile_whole(folder, args.output, external, {**request, **given})
    if compiled is None:
        return None
    if args.json:
        print_json({**compiled.as_dict(), "output": args.output and str(args.output)})
    else:
        for rows in compiled.tables():
            table(list(rows))
        for text in compiled.notes():
            say_note(text)
        say(compiled.summary())
    if failure is not None:
        note(*(f"error: {text}" for text in compiled.failed), f"  {failure.hint}")
    return 1 if failure is not None else 0


def _run_folder(args: argparse.Namespace, folder: Path, request: dict[str, Any]) -> int:
    """Compile every model below a folder, and print one table."""
    from dovetail_commands.compile_folder import compile_folder

    def keywords_of(target: Path | None) -> dict[str, Any]:
        return option_keywords(argparse.Namespace(**{**vars(args), "output": target}))

    with Progress() as progress, _executor(args) as executor:
        outcomes = compile_folder(
            folder, output=args.output, external=True if args.external_data else None, progress=progress,
            keywords_of=keywords_of, executor=executor, **request,
        )  # fmt: skip
    failed = [outcome for outcome in outcomes if outcome.status != "ok"]
    if args.json:
        print_json({"models": [outcome.as_dict() for outcome in outcomes]})
    else:
        table([outcome.row() for outcome in outcomes])
        say(f"{len(outcomes) - len(failed)} of {pluralize(len(outcomes), 'model')} compiled")
    for outcome in failed:
        note(f"error: {outcome.model}: {outcome.why}", *([f"  {outcome.hint}"] if outcome.hint else ()))
    return 1 if failed else 0


@contextmanager
def _executor(args: argparse.Namespace) -> Iterator[Executor | None]:
    """Yield what compiles the models of a folder beside each other; None to compile one after the other here."""
    if args.jobs is not None and args.cluster:
        raise UsageError("--jobs and --cluster exclude each other", "leave one of them out")
    if args.jobs is None and not args.cluster:
        yield None
        return
    from dovetail_commands.folder_jobs import machines
    from dovetail_commands.folder_processes import processes

    if args.cluster:
        with machines(args.cluster, plugins_of(args)) as (executor, notes):
            note(*(f"note: {text}" for text in notes))
            yield executor
    else:
        with processes(args.jobs) as executor:
            yield executor


def _by_place(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge the rows of a placement table into one row per backend and precision."""
    places: dict[tuple, Counter[str]] = {}
    for row in rows:
        place = tuple((key, row[key]) for key in ("backend", "precision", "executed") if key in row)
        places.setdefault(place, Counter())[row["operator"]] += row["nodes"]
    ordered = sorted(places.items(), key=lambda item: (item[0][0][1] == HOST, -item[1].total(), item[0]))
    return [{**dict(place), "nodes": found.total(), "operators": _listed(found)} for place, found in ordered]


def _listed(operators: Counter[str]) -> str:
    shown = [f"{name} {number}" for name, number in operators.most_common(_SHOWN)]
    rest = len(operators) - len(shown)
    return ", ".join(shown) + (f" and {pluralize(rest, 'other')}" if rest else "")


def _document(args: argparse.Namespace, compiled: CompiledModel, failure: ResultError | None) -> dict[str, Any]:
    failed = {"error": failure.message, "hint": failure.hint} if failure is not None else {}
    return {
        **failed,
        "output": args.output and str(args.output),
        "placements": compiled.placement_table(),
        "plan": compiled.plan.as_dict(),
        "remarks": [remark.as_dict() for remark in compiled.remarks],
        "verification": compiled.verification and compiled.verification.as_dict(),
        "warnings": [*compiled.warnings(), *(compiled.verification.warnings if compiled.verification else ())],
        "notes": compiled.notes(),
        "summary": compiled.summary(),
    }


COMPILE = PlainCommand(add_compile_arguments, run_compile)


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_model(parser)
    parser.add_argument("-o", "--output", type=output, metavar="plan.yaml", help="file to write instead of printing")
    add_request(parser)


def run_plan(args: argparse.Namespace) -> int:
    """Run the command."""
    path = completed_model(args)
    request = {**request_of(args), **option_keywords(args)}
    from dovetail import api

    existing(path)
    model = api.open(path, plugins_of(args))
    with Progress() as progress:
        plan = api.plan(model, **request, progress=progress)
    if args.output:
        plan.save(args.output)
    document = plan.as_dict()
    if args.json:
        print_json(document)
    elif args.output:
        say(args.output)
    else:
        print(plan, end="")
    note(*(f"note: {text}" for text in (*assumed(plan.remarks), *plan.notes)))
    return 0


PLAN = PlainCommand(add_plan_arguments, run_plan)
