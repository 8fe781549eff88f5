"""The command `dovetail run`: run a compiled model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import PlainCommand, existing, note, output, plugins_of, print_json, say
from dovetail.errors import UsageError
from dovetail_commands.engine_environments import add_engine_env
from dovetail_commands.terminal import say_note, table
from dovetail_onnx.files.locations import data_location
from dovetail_onnx.files.writing import replacing_file

if TYPE_CHECKING:
    import numpy as np
    from dovetail.plugin import CompiledModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from dovetail_runtime.parallel_run import WAYS  # the help lists this command

    parser.add_argument("result", type=Path, metavar="DIR", help="folder that compile wrote")
    parser.add_argument(
        "--data", type=data_location, required=True, metavar="FILE.npz|FOLDER", help="one array per input"
    )
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="run parts of the data on the machines of a dask.distributed scheduler that have the engines, and see "
        "result and data under the same paths",
    )
    add_executor(parser)
    add_engine_env(parser)
    parser.add_argument("--threads", type=int, metavar="N", help="threads of each engine; all cores by default")
    parser.add_argument(
        "--parallel",
        choices=WAYS,
        default=WAYS[0],
        help="independent regions at the same time: as it is faster (auto, the default), always (on) or never (off)",
    )
    parser.add_argument(
        "--trace", type=output, metavar="OUT.json", help="write when each region ran, for Perfetto or chrome://tracing"
    )
    parser.add_argument("-o", "--output", type=output, metavar="OUT.npz", help="file to write the outputs to")


def add_executor(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say what runs a result."""
    parser.add_argument("--executor", default="", metavar="NAME", help="what runs it, instead of region by region")
    add_device(parser, "run it elsewhere: 'ssh board /opt/run {folder} {inputs} {outputs}' (dovetail-export)")


def add_device(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the arguments that name a device by a command.

    Args:
        parser: The parser.
        text: What the command is for.
    """
    from dovetail_schemas.check_command import seconds  # the help lists this command

    parser.add_argument("--device", metavar="COMMAND", help=text)
    parser.add_argument(
        "--device-timeout",
        type=seconds,
        metavar="SECONDS",
        help="with --device: end a call of the command that takes longer (default: 600)",
    )


def executor_of(args: argparse.Namespace, compiled: CompiledModel) -> str:
    """Return the name of the executor that the arguments of `add_executor` ask for, and set its options.

    Raises:
        UsageError: Two are named, or machines of a cluster as well.
    """
    check_device(args)
    if args.device is None:
        return str(args.executor)
    if args.executor:
        raise UsageError("--device says what runs the result", "leave out --executor")
    compiled.options["device"] = args.device
    if args.device_timeout is not None:
        compiled.options["device_timeout"] = args.device_timeout
    return "device"


def check_device(args: argparse.Namespace) -> None:
    """Check the arguments of `add_device` next to those of a cluster.

    Raises:
        UsageError: They exclude each other.
    """
    if args.device is None and args.device_timeout is not None:
        raise UsageError("--device-timeout is for --device", "leave it out, or name the command of a device")
    if args.device is not None and args.cluster:
        raise UsageError("--device says what runs the result", "leave out --cluster")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    existing(args.result)
    if args.cluster and args.trace:
        raise UsageError("--trace is of one process, and --cluster runs several", "leave one of them out")
    from dovetail import api

    from dovetail_runtime.feeds import arrays_of
    from dovetail_runtime.timeline import trace

    compiled = api.load(args.result, plugins_of(args))
    from dovetail_runtime.parallel_run import WAYS

    if args.parallel != WAYS[0]:
        compiled.options["parallel"] = args.parallel
    if args.threads is not None:
        compiled.options["threads"] = args.threads
    executor = executor_of(args, compiled)
    if args.trace:
        with trace(compiled, args.trace, executor) as timeline:
            given = compiled.run_on(args.data, executor=executor)
    else:
        timeline, given = None, _outputs(args, compiled, executor)
    outputs = {name: array for output, value in given.items() for name, array in arrays_of(output, value).items()}
    if args.output:
        _write(args.output, outputs)
    rows = [_row(name, array) for name, array in outputs.items()]
    if args.json:
        executed = {} if args.cluster else {node: tuple(how) for node, how in compiled.executed().items()}
        document: dict[str, Any] = {
            "outputs": rows,
            "executed": executed,
            "warnings": compiled.warnings(),
            "notes": compiled.notes(),
            "summary": compiled.summary(),
        }
        if timeline is not None:
            document["peak_bytes"] = timeline.peak
        print_json(document)
    else:
        table(rows)
        for text in compiled.notes():
            say_note(text)
        if timeline is not None:
            say_note(f"values of {timeline.peak / 1e6:.3g} MB were live at most; {args.trace} has the timeline")
        say(compiled.summary())
    note(*(f"warning: {text}" for text in compiled.warnings()))
    return 0


def _outputs(args: argparse.Namespace, compiled: CompiledModel, executor: str) -> dict[str, np.ndarray]:
    """Run the result on all of the data, here or on the machines of a cluster."""
    if not args.cluster:
        return compiled.run_on(args.data, executor=executor)
    from dovetail_commands.progress import Progress

    from dovetail_runtime.data_workers import workers_of
    from dovetail_runtime.run_parts import run_in_parts

    with Progress() as progress, workers_of(args.cluster, plugins_of(args)) as (workers, notes):
        assert workers is not None, "an address names workers"
        for text in notes:
            say_note(text)
        return run_in_parts(workers, compiled, args.result, args.data, executor, progress)


def _write(path: Path, outputs: dict[str, np.ndarray]) -> None:
    import numpy as np

    # NumPy files support neither bfloat16 nor 8-bit floats; float32 represents all of their values.
    plain: dict[str, Any] = {n: a if a.dtype.isbuiltin == 1 else a.astype(np.float32) for n, a in outputs.items()}
    with replacing_file(path) as file:
        np.savez(file, **plain)


def _row(name: str, array: np.ndarray) -> dict[str, Any]:
    row: dict[str, Any] = {"output": name, "type": str(array.dtype), "shape": list(array.shape)}
    if array.size and array.dtype.kind in "fiubV":
        values = array.astype("float64")
        row |= {"min": float(values.min()), "mean": float(values.mean()), "max": float(values.max())}
    return row


RUN = PlainCommand(add_arguments, run)
