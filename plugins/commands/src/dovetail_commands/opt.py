"""`dovetail opt`: run a pipeline over a model, text in and text out."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dovetail
from dovetail.cli import PlainCommand, existing, note, output, plugins_of, print_json, say
from dovetail.errors import DovetailError, UsageError
from dovetail.passes import METADATA_KEY, Context, Pipeline, Request, versions
from dovetail.plugin import TemporaryFolder
from dovetail.plugin.loading import open_declared
from dovetail_onnx.files.parsing import parse_json

from dovetail_commands.instrumentation import add_instrumentation, instrumentation_of
from dovetail_commands.request import add_request, request_of

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Instrumentation, Result
    from dovetail.planning import Plan
    from dovetail.plugin import PluginSet, Registry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "model",
        metavar="FILE",
        help="ONNX file, ONNX text (.onnxtxt, .txt), any file that a frontend reads, or - for text from standard input",
    )
    parser.add_argument(
        "-p", "--pipeline", metavar="PIPELINE", help="for example: 'normalize,fixpoint(remove-identity,dead-code)'"
    )
    parser.add_argument("-o", "--output", type=output, metavar="OUT", help="file to write instead of printing")
    parser.add_argument("--stop-after", default="", metavar="PASS", help="stop after the first run of a pass")
    parser.add_argument("--remarks", action="store_true", help="print remarks as comments after the model")
    parser.add_argument("--run-reproducer", action="store_true", help="FILE is a crash reproducer: run what it holds")
    add_request(parser)
    add_instrumentation(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if (args.pipeline is None) != args.run_reproducer:
        raise UsageError("name a pipeline with -p, or replay a file with --run-reproducer, not both")
    result = _replay(args) if args.run_reproducer else _run(args)
    _write(args, result)
    return 0


def _run(args: argparse.Namespace) -> Result:
    from dovetail.passes import Context, Pipeline, Request

    given, path = request_of(args), Path(args.model)
    plugins = given.pop("plugins")
    request = Request.of(*given.pop("backends"), **given)
    pipeline = Pipeline.parse(args.pipeline, plugins.registry)
    from dovetail.plugin.loading import open_file

    if args.model != "-":
        existing(path)
    model = open_file(path, plugins)
    return pipeline.run(model, Context(request, plugins=plugins), instrumentation_of(args, stop_after=args.stop_after))


def _replay(args: argparse.Namespace) -> Result:

    path = Path(args.model)
    existing(path)
    plugins = plugins_of(args)
    _, data = read_reproducer(path, plugins.registry)
    note(f"pipeline: {data['pipeline']}", f"it failed with: {data['error']}", *changed_versions(data, plugins))
    watch = instrumentation_of(args, stop_after=args.stop_after)
    return run_reproducer(path, plugins.registry, plugins=plugins, instrumentation=watch)


def _write(args: argparse.Namespace, result: Result) -> None:
    from dovetail.plugin.loading import write_file

    text = result.model.text() if args.output is None else ""
    if args.output is not None:
        write_file(result.model, args.output, plugins_of(args).registry)
    if args.json:
        passes = [step.as_dict() for step in result.passes]
        remarks = [remark.as_dict() for remark in result.remarks]
        print_json({"changed": result.changed, "passes": passes, "remarks": remarks, "text": text})
        return
    if text:
        print(text.rstrip("\n"))
    if args.remarks:
        for remark in result.remarks:
            because = f" (because of {', '.join(remark.because)})" if remark.because else ""
            say(f"// {remark.kind} {remark.node or '-'}: {remark.pass_}/{remark.rule}: {remark.why}{because}")


OPT = PlainCommand(add_arguments, run)


def read_reproducer(path: str | Path, registry: Registry) -> tuple[Model, dict[str, Any]]:
    """Read the model and the data of a reproducer: `pipeline`, `request`, `versions`, `error`.

    Args:
        path: The file.
        registry: The registry with the front end that reads it.

    Raises:
        DovetailError: The file does not open or is not a reproducer.
    """
    model = open_declared(Path(path), registry)
    try:
        data = parse_json(model.ir.metadata_props.pop(METADATA_KEY))
        if not {"pipeline", "request", "versions", "error"} <= set(data):
            raise KeyError
    except (KeyError, ValueError, TypeError):
        hint = "`dovetail opt` and `dovetail compile` write one when a pass fails"
        raise DovetailError(f"{path} is not a reproducer", hint) from None
    return model, data


def changed_versions(data: dict[str, Any], plugins: PluginSet | None = None) -> list[str]:
    """Return the differences from the installation that wrote the reproducer, one line per distribution."""
    now = versions(plugins)
    return [
        f"{name} was {then}, is {now.get(name, 'not installed')}"
        for name, then in data["versions"].items()
        if now.get(name) != then
    ]


def run_reproducer(
    path: str | Path,
    registry: Registry,
    *,
    plugins: PluginSet | None = None,
    instrumentation: Instrumentation | None = None,
) -> Result:
    """Run the pipeline of a reproducer on its model.

    Raises:
        DovetailError: The run fails again.
    """
    model, data = read_reproducer(path, registry)
    pipeline = Pipeline.parse(data["pipeline"], registry)
    request = Request.from_dict(data["request"], _replayed(data["request"].get("plan"), plugins))
    context = Context(request, plugins=plugins, registry=registry)
    return pipeline.run(model, context, instrumentation)


def _replayed(written: Any, plugins: PluginSet | None) -> Plan | None:
    """Return the plan that a reproducer replays, which it holds as a mapping; None if it replays none."""
    if written is None:
        return None
    with TemporaryFolder("plan") as folder:
        path = folder / "plan.json"
        path.write_text(json.dumps(written), encoding="utf-8")
        return dovetail.load_plan(path, plugins)
