"""The command `dovetail probe`."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.cli import PlainCommand, note, output, plugins_of, print_json, say
from dovetail.errors import DovetailError, UsageError
from dovetail.passes import BackendChoice
from dovetail.plugin.loading import load_chosen, make_engine
from dovetail_schemas.check_command import seconds

if TYPE_CHECKING:
    from dovetail.plugin import PluginSet

    from dovetail_testing.probe.probing import Probe, Progress
    from dovetail_testing.time_limit import TimeLimit


_SUFFIX = ".backend.yaml"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_SECONDS = 900.0
_ON_MACHINES = 0.8  # of the time limit; then their outcomes are read here, where the rules are learned


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `probe`."""
    parser.add_argument(
        "target",
        nargs="?",
        metavar="BACKEND|ENGINE",
        help="a backend, whose first engine is probed, or an engine; without it, an error says which are here",
    )
    parser.add_argument(
        "-o", "--output", type=output, metavar="FILE", help="the backend file to write, such as acme.backend.yaml"
    )
    parser.add_argument(
        "--against", metavar="BACKEND|FILE", default="", help="compare what this file claims (default: that of BACKEND)"
    )
    parser.add_argument(
        "--operator", action="append", default=[], metavar="NAME", help="probe only this operator (repeatable)"
    )
    parser.add_argument(
        "--time-limit", type=seconds, default=_SECONDS, metavar="SECONDS",
        help="stop after this time, and write what is known (default: 900)",
    )  # fmt: skip
    parser.add_argument(
        "--cluster", metavar="ADDRESS",
        help="address of a dask.distributed scheduler: its machines that have the engine try some operators each",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run `probe`."""
    from dovetail_testing.time_limit import TimeLimit  # the help lists this command

    limit = TimeLimit(args.time_limit)  # before what takes seconds to import
    from dovetail_onnx import write_text

    from dovetail_testing.probe.claims import contradictions, lines_of
    from dovetail_testing.probe.probing import probe
    from dovetail_testing.probe.writing import file_of
    from dovetail_testing.progress import progress_lines

    plugins = plugins_of(args)
    if args.target is None:
        raise UsageError("no backend or engine is named", _here(plugins))
    target, against = args.target, args.against or _own_file(args.target, plugins)
    file = args.output or Path(target.partition(":")[0] + _SUFFIX)
    name = _name_of(file, plugins)
    state = file.with_name(file.name + ".state")
    try:
        with progress_lines() as progress:
            elsewhere = _on_machines(args, limit, state, plugins, progress) if args.cluster else ""
            found = probe(
                target, plugins=plugins, state=state, time_limit=limit, operators=args.operator,
                against=against, elsewhere=elsewhere, progress=progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        note(f"what was measured is in {state}; the same command resumes there")
        raise
    if not any(rule.is_taken for rule in found.rules.values()):
        raise DovetailError(f"{found.line()}; {file} was not written{_reason(found)}", _hint(found, plugins))
    listed = contradictions(found) if against else []
    write_text(file, file_of(found, name))
    if args.json:
        print_json({
            "file": str(file), "engine": found.engine, "precision": found.precision, "nodes": found.known,
            "tried": found.tried, "resumed": found.resumed, "seconds": round(found.seconds, 1),
            "unfinished": found.unfinished, "against": against, "contradictions": [each.as_dict() for each in listed],
        })  # fmt: skip
        return 0
    if against:
        say(*lines_of(listed, against))
    if found.unfinished:
        say(f"the time limit left out nodes of {len(found.unfinished)} operators; the same command resumes")
    say(found.line(), f"{file}: written; dovetail check {file}")
    return 0


def _here(plugins: PluginSet) -> str:
    """Say which backends have an engine here, and which other engines are here."""
    registry = plugins.registry
    here: dict[str, bool] = {}
    for name in registry.engine:
        with suppress(DovetailError):
            here[name] = make_engine(registry, name).available().ok
    found: dict[str, str] = {}
    for backend in registry.backend:
        with suppress(DovetailError):
            engines = [name for name in load_chosen(registry, BackendChoice(backend)).engines if here.get(name)]
            found |= dict.fromkeys([backend] if engines else [], *engines[:1])
    others = [name for name, is_here in here.items() if is_here and name not in found.values()]
    backends = ", ".join(f"{backend} ({engine})" for backend, engine in found.items())
    return f"backends, with the engine that is probed: {backends}; other engines: {', '.join(others) or 'none'}"


def _on_machines(
    args: argparse.Namespace, limit: TimeLimit, state: Path, plugins: PluginSet, progress: Progress
) -> str:
    """Try nodes on the machines of a cluster that have the engine, so that what is left resumes from their outcomes.

    Returns:
        The engine, if it is not on this machine; else empty.
    """
    from dovetail_runtime.data_workers import workers_of

    from dovetail_testing.probe.parts import probe_in_parts

    with workers_of(args.cluster, plugins) as (workers, notes):
        note(*(f"note: {text}" for text in notes))
        assert workers is not None, "an address is given"
        return probe_in_parts(
            workers, args.target, state, time_limit=limit.left(_ON_MACHINES), operators=args.operator,
            plugins=plugins, progress=progress,
        )  # fmt: skip


def _reason(found: Probe) -> str:
    """Return the most frequent reason of nodes that are not computed, after a colon; empty if no node was tried."""
    from dovetail_testing.probe.clauses import reason_of

    reasons = Counter(reason_of(each) for each in found.observations)
    return f": {reasons.most_common(1)[0][0]}" if reasons else ""


def _hint(found: Probe, plugins: PluginSet) -> str:
    if not found.observations:
        return "give it more time with --time-limit"
    if not found.backend and make_engine(plugins.registry, found.engine).loads_artifacts:
        return "this engine loads the programs of an emitter: name the backend that has both"
    return ""


def _own_file(target: str, plugins: PluginSet) -> str:
    """Return the backend that is probed, whose file is compared; empty for an engine."""
    return "" if target in plugins.registry.engine else target


def _name_of(file: Path, plugins: PluginSet) -> str:
    """Return the name of the backend in a file.

    Raises:
        UsageError: The file's name gives none.
        DovetailError: A backend of that name is installed.
    """
    stem = file.name.removesuffix(_SUFFIX).removesuffix(".yaml").lower().replace("_", "-")
    if not _NAME.fullmatch(stem):
        raise UsageError(f"{file.name} gives no name for a backend", "name it as in acme.backend.yaml")
    return f"{stem}-probed" if stem in plugins.registry.backend else stem


PROBE = PlainCommand(add_arguments, run)
