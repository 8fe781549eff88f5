"""`dovetail bench`: measure what this machine takes."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from dovetail.cli.common import PlainCommand, note, output, plugins_of, print_json
from dovetail.errors import DovetailError
from dovetail_commands.terminal import Progress
from dovetail_onnx.files.writing import write_text

if TYPE_CHECKING:
    from dovetail.passes import Context
    from dovetail.plugin.backend import Backend
    from dovetail_runtime.guard import GuardedEngine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("what", choices=["costs"], help="costs: a cost table for the solver min-cut")
    parser.add_argument("backend", help="the backend whose engine is measured")
    parser.add_argument("-o", "--output", type=output, metavar="FILE.yaml", help="file to write; printed without it")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    import yaml
    from dovetail.passes.backends import load_chosen
    from dovetail.passes.context import Context
    from dovetail.passes.request import BackendChoice

    from dovetail_precision.measuring import measure_costs

    ctx = Context(plugins=plugins_of(args))
    backend = load_chosen(ctx.registry, BackendChoice.parse(args.backend))
    if not backend.low:
        raise DovetailError(f"backend '{backend.name}' has no low precision", "there is nothing to choose from")
    engine = _engine(backend, ctx)
    with Progress() as progress:
        table = measure_costs(engine, backend.low, backend.high or "float32", progress)
    text = f"# Measured with {engine.name}. See `dovetail compile --costs`.\n" + yaml.safe_dump(table, sort_keys=False)
    if args.output:
        write_text(args.output, text)
        note(f"{args.output}: use it with --solver min-cut --costs {shlex.quote(str(args.output))}")
    if args.json:
        print_json(table)
    elif not args.output:
        print(text, end="")
    return 0


def _engine(backend: Backend, ctx: Context) -> GuardedEngine:
    """The first engine of the backend that can run here."""
    from dovetail_runtime.engines import engines_of

    refusals: list[str] = []
    for engine in engines_of([backend], ctx.registry)[backend.name]:
        ok, why = engine.available()
        if ok:
            if refusals:
                note(f"measuring {engine.name} instead of what comes first ({'; '.join(refusals)})")
            return engine
        refusals.append(f"{engine.name}: {why}")
    raise DovetailError(f"no engine of '{backend.name}' can run here ({'; '.join(refusals)})")


BENCH = PlainCommand("bench", "Measure what an engine takes on this machine.", add_arguments, run)
