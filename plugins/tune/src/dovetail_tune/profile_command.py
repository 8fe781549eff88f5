"""The command `dovetail profile`: what computing and converting cost with a backend's engine on this machine."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.cli import PlainCommand, note, output, plugins_of, print_json
from dovetail.errors import DovetailError
from dovetail_commands.progress import Progress
from dovetail_onnx.files.writing import write_text
from dovetail_runtime.machine import fingerprint, profile_file

if TYPE_CHECKING:
    from dovetail.passes import Context
    from dovetail.plugin import Backend
    from dovetail_runtime.engines import GuardedEngine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `profile`."""
    add = parser.add_argument
    add("backend", metavar="NAME[:key=value,...]", help="the backend whose engine is measured")
    add("-o", "--output", type=output, metavar="FILE.yaml", help="file to write (default: the profile of this machine)")


def run(args: argparse.Namespace) -> int:
    """Run `profile`."""
    import yaml
    from dovetail.passes import BackendChoice, Context
    from dovetail.plugin.loading import load_chosen, use_file

    from dovetail_tune.engine_costs import measure_costs
    from dovetail_tune.tuning import distributions

    plugins = plugins_of(args)
    ctx = Context(plugins=plugins)
    backend = load_chosen(ctx.registry, BackendChoice.parse(use_file(ctx.registry, args.backend)))
    engine = _engine(backend, ctx)
    high = backend.high or "float32"
    with Progress() as progress:
        table = measure_costs(engine, backend.low or high, high, progress)
    table = {"machine": fingerprint(distributions(plugins)), **table}
    text = f"# Measured with {engine.name}. See `dovetail compile --costs`.\n" + yaml.safe_dump(table, sort_keys=False)
    path = args.output or profile_file(backend.name)
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DovetailError(f"{path}: cannot be written: {error}", "name another file with -o") from None
    write_text(path, text)
    what = "reports predict times from it" if not args.output else "measured"
    note(f"{path}: {what}; --solver min-cut --costs {shlex.quote(str(path))} minimizes them")
    if args.json:
        print_json(table)
    elif not args.output:
        print(text, end="")
    return 0


def _engine(backend: Backend, ctx: Context) -> GuardedEngine:
    """Return the first engine of the backend that can run here."""
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


PROFILE = PlainCommand(add_arguments, run)
