"""The commands `dovetail verify` and `dovetail bisect`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dovetail.cli import PlainCommand, existing, note, option_keywords, output, plugins_of, print_json, say
from dovetail.errors import UsageError
from dovetail_commands.engine_environments import add_engine_env
from dovetail_commands.progress import Progress
from dovetail_commands.request import add_request, command_text, existing_data, request_of
from dovetail_commands.terminal import say_note, table, warn
from dovetail_onnx.files.locations import data_location

from dovetail_verify.arguments import add_goals, add_input_shapes, checked_shapes, goals_of

if TYPE_CHECKING:
    from dovetail.passes import Request


def add_bisect_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bisect`."""
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument(
        "--runs", type=int, metavar="N", help="runs that refine the ranking (default: enough for the worst node)"
    )
    parser.add_argument(
        "--passes",
        action="store_true",
        help="find the pass that breaks the result, instead of nodes that cost accuracy",
    )
    parser.add_argument(
        "--stop-after", type=int, metavar="N", help="with --passes: write the model after N passes to -o"
    )
    parser.add_argument("-o", "--output", type=output, metavar="FILE.onnx", help="file for --stop-after")
    add_request(parser)
    add_goals(parser)


def run_bisect(args: argparse.Namespace) -> int:
    """Run `bisect`."""
    if not args.backend:
        raise UsageError("no backend is named", "add --backend NAME (repeatable)")
    if args.data is None:
        raise UsageError("there is no data to rank nodes on", "add --data: inputs like those that the model will see")
    goals = goals_of(args)
    existing(args.model)
    if (args.stop_after is None) != (args.output is None) or args.stop_after is not None and not args.passes:
        raise UsageError("--stop-after writes a model between passes", "write --passes --stop-after N -o FILE.onnx")
    if args.passes:
        return _bisect_passes(args, goals)
    from dovetail_verify.functions import bisect

    with Progress() as progress:
        ranking = bisect(
            args.model,
            **request_of(args),
            **option_keywords(args),
            **goals,
            runs=args.runs,
            progress=progress,
        )
    raised = [word for selector in ranking.high for word in ("--high", selector)]
    request = cast("Request", ranking.request)
    command_line = command_text("compile", args.model, request, plugins_of(args).registry, raised)
    if args.json:
        print_json({**ranking.as_dict(), "command": command_line})
        return 0
    table(ranking.table_rows())
    for text in ranking.notes:
        say_note(text)
    say(*ranking.lines())
    if ranking.high:
        say(command_line)
    return 0


def _bisect_passes(args: argparse.Namespace, goals: dict[str, Any]) -> int:
    """Find the pass that breaks the result, or write the model after some passes."""
    from dovetail_verify.reducing.pass_bisection import BrokenPass, bisect_passes

    with Progress() as progress:
        found = bisect_passes(
            args.model,
            **request_of(args),
            **option_keywords(args),
            **goals,
            stop_after=args.stop_after,
            progress=progress,
        )
    if not isinstance(found, BrokenPass):
        found.save(args.output)
        say(f"the model after pass {args.stop_after}: {args.output}")
    elif args.json:
        print_json(found.as_dict())
    else:
        table(found.rows())
        say(found.line())
    return 0


BISECT = PlainCommand(add_bisect_arguments, run_bisect)


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `verify`."""
    from dovetail_runtime.run_command import add_executor  # the help lists this command

    from dovetail_verify.layers import ORDERS

    parser.add_argument("original", type=Path, metavar="ORIGINAL")
    parser.add_argument("result", type=Path, metavar="RESULT", help="folder that compile wrote, or a model")
    parser.add_argument("--data", type=data_location, metavar="FILE.npz|FOLDER", help="inputs (default: random ones)")
    parser.add_argument(
        "--cluster", metavar="ADDRESS",
        help="address of a dask.distributed scheduler: its machines that have the engines compare on parts of --data",
    )  # fmt: skip
    add_executor(parser)
    add_engine_env(parser)
    add_input_shapes(parser)
    add_goals(parser)
    parser.add_argument(
        "--layers", action="store_true", help="measure every node, alone and with what has accumulated, worst first"
    )
    parser.add_argument(
        "--by", choices=ORDERS, default=ORDERS[0], help=f"what layers are ranked by (default: {ORDERS[0]})"
    )
    parser.add_argument(
        "--top",
        type=int,
        default=10,
        metavar="N",
        help="layers to show, and to measure at the outputs (default: 10)",
    )
    parser.add_argument(
        "--programs",
        action="store_true",
        help="compare each program of a vendor's tools with the nodes of the plan that it stands for, worst first",
    )
    parser.add_argument("--min-program-snr", metavar="DB", help="with --programs: the least SNR; exit code 1 below it")
    parser.add_argument(
        "--batches", type=int, metavar="N", help="with --programs: the most batches to run, since simulators take long"
    )
    saving = parser.add_mutually_exclusive_group()
    saving.add_argument("--save-node", default="", metavar="NODE", help="write this node alone, with its inputs, to -o")
    saving.add_argument("--save-region", type=int, metavar="N", help="write this region alone, with its inputs, to -o")
    parser.add_argument("-o", "--output", type=output, metavar="OUT", help="folder for --save-node or --save-region")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default: 0)")


def run_verify(args: argparse.Namespace) -> int:
    """Run `verify`."""
    _check_verify(args)
    goals, shapes = goals_of(args), checked_shapes(args)
    if args.save_node or args.save_region is not None:
        return _save_part(args)
    if args.programs:
        return _verify_programs(args)
    import dovetail
    from dovetail.passes import Request
    from dovetail.plugin import CompiledModel
    from dovetail_runtime.data_workers import workers_of, working_on
    from dovetail_runtime.run_command import executor_of

    from dovetail_verify.functions import verify

    plugins = plugins_of(args)
    original = dovetail.open(args.original, plugins)
    result = dovetail.load(args.result, plugins) if args.result.is_dir() else args.result
    executor = executor_of(args, result) if isinstance(result, CompiledModel) else ""
    with Progress() as progress, workers_of(args.cluster, plugins) as (workers, notes), working_on(workers):
        note(*(f"note: {text}" for text in notes))
        verification = verify(
            original,
            result,
            args.data,
            seed=args.seed,
            input_shapes=shapes,
            executor=executor,
            **goals,
            plugins=plugins,
            progress=progress,
        )
        layers = None
        if args.layers:
            from dovetail_verify.functions import layer_errors

            layers = layer_errors(
                original, result, args.data, by=args.by, outputs=args.top, plugins=plugins, progress=progress
            )
    if args.json:
        verification.layers = layers
        print_json(verification.as_dict())
    else:
        say(*verification.lines())
        if layers is not None:
            table(layers.table_rows(args.top))
            say(*layers.lines(args.top))
        for text in verification.notes:
            say_note(text)
    tried = ""
    if verification.warnings or verification.missed:
        # Read the plan only if needed: that of a large result takes a second.
        request = result.plan.asked() if result is not args.result else Request()
        request = replace(request, data=args.data or request.data)
        tried = f"`{command_text('bisect', args.original, request, plugins.registry)}` shows which nodes cost it"
        verification.remedy = f"{tried}; `dovetail compile --min-snr 30` raises them"
    if not args.json:
        warn(verification)
    for miss in verification.missed:
        note(f"error: the goal is not met: {miss}")
    if verification.missed:
        note(f"  {tried}; `dovetail compile` with the goal raises them")
        return 1
    if verification.broken:
        note("error: the result is broken: it is no approximation of the original", f"  {verification.way_out}")
        return 1
    return 0


def _check_verify(args: argparse.Namespace) -> None:
    """Check that files exist, and that options belong to each other.

    Raises:
        UsageError: They do not.
    """
    for path in (args.original, args.result):
        existing(path)
    existing_data(args.data)
    if args.layers and args.data is None:
        raise UsageError("there is no data to look at layers with", "add --data: inputs like those the model will see")
    if args.top < 0:
        raise UsageError(f"--top {args.top}: a number from 0 is expected")
    if args.min_program_snr is not None and not args.programs:
        raise UsageError("--min-program-snr is a limit for --programs", "add --programs, or say --min-snr")
    if args.batches is not None and not args.programs:
        raise UsageError("--batches is for --programs", "add --programs")


def _verify_programs(args: argparse.Namespace) -> int:
    """Compare the programs of a result with the nodes of its plan.

    Raises:
        UsageError: There is no data, another look at the result is asked for, or it has no programs.
    """
    if args.data is None:
        raise UsageError("there is no data to run programs on", "add --data: inputs like those the model will see")
    if args.layers:
        raise UsageError("--layers looks at nodes, --programs at what was compiled of them", "leave one of them out")
    from dovetail_verify.functions import program_errors

    plugins = plugins_of(args)
    with Progress() as progress:
        found = program_errors(
            args.original,
            args.result,
            args.data,
            min_program_snr=args.min_program_snr,
            most=args.batches,
            plugins=plugins,
            progress=progress,
        )
    if args.json:
        print_json(found.as_dict())
    else:
        table(found.table_rows())
        say(*found.lines())
    note(*(f"error: {miss}" for miss in found.missed))
    return 1 if found.missed else 0


def _save_part(args: argparse.Namespace) -> int:
    """Write one node or one region.

    Raises:
        UsageError: The data, the folder or the plan is missing.
    """
    if args.data is None or args.output is None:
        raise UsageError("a node is written with the inputs that it has", "add --data FILE and -o FOLDER")
    import dovetail
    from dovetail.passes import Context

    from dovetail_verify.compiled_from import request_of_result
    from dovetail_verify.reducing.isolating import save_part

    plugins = plugins_of(args)
    plan = dovetail.load_plan(args.result, plugins)
    ctx = Context(request_of_result(plan, plugins), plugins=plugins)
    original = dovetail.open(args.original, plugins)
    said = save_part(original, plan, args.data, ctx, args.output, node=args.save_node, region=args.save_region)
    if args.json:
        print_json({"output": str(args.output), "said": said})
    else:
        say(said)
    return 0


VERIFY = PlainCommand(add_verify_arguments, run_verify)
