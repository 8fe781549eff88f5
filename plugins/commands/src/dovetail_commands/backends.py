"""The backends that are installed, without loading any: `dovetail.backends`, and the command `dovetail backends`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.cli import PlainCommand, broken_lines, columns, plugins_of, print_json, say
from dovetail.errors import DovetailError, UsageError
from dovetail.passes import BackendChoice
from dovetail.plugin import BackendSummary, load_plugins
from dovetail.plugin.loading import calling, load_chosen, make_engine, named_format_of
from dovetail.text import did_you_mean

from dovetail_commands.engine_environments import add_engine_env

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.plugin import Backend, PluginSet, Registry


@dataclass(frozen=True)
class BackendInfo:
    """The listing of one backend.

    Attributes:
        name: Its name, as after `--backend`.
        summary: A one-line description.
        distribution: The distribution that provides it.
        engines: Name, availability here, and the reason or caveat of each engine, in order of preference; devices where
            it lists them.
        needs: The device that it runs on.
        error: The error in its file, or empty.
    """

    name: str
    summary: str
    distribution: str
    engines: tuple[tuple[str, bool, str], ...] = ()
    needs: str = ""
    error: str = ""


def backends(plugins: PluginSet | None = None, names: Sequence[str] = ()) -> list[BackendInfo]:
    """List the installed backends, by name, without loading any engine.

    Args:
        plugins: The plugins; all installed ones by default.
        names: The backends to list; all of them by default.

    Raises:
        UsageError: One of that name is not installed.
    """
    registry = (plugins or load_plugins()).registry
    for name in names:
        if name not in registry.backend:
            why = f"no backend '{name}' is installed{did_you_mean(name, registry.backend)}"
            raise UsageError(why, "`dovetail backends` lists all")
    found = []
    for entry in registry.backend.entries:
        if names and entry.name not in names:
            continue
        try:
            seen = _peek(entry.name, registry)
            engines = tuple(_engine_info(name, registry) for name in seen.engines)
            found.append(BackendInfo(entry.name, seen.summary, entry.owner, engines, seen.device))
        except DovetailError as error:
            found.append(BackendInfo(entry.name, "", entry.owner, error=error.message))
    return found


def _peek(name: str, registry: Registry) -> BackendSummary | Backend:
    """Return the summary of a backend; its file is not fully checked."""
    if not registry.backend.is_file(name):
        return load_chosen(registry, BackendChoice(name))
    source = registry.backend[name]
    title, format_ = named_format_of(registry, source)
    with calling(title):
        seen = format_.peek(source)
    if not isinstance(seen, BackendSummary):
        raise DovetailError(f"{title} sees {type(seen).__name__} in {source.name}", "`peek` gives a BackendSummary")
    if not (seen.device and seen.engines) and seen.extends in registry.backend:
        below = _peek(seen.extends, registry)
        return seen._replace(device=seen.device or below.device, engines=seen.engines or tuple(below.engines))
    return seen


def _engine_info(name: str, registry: Registry) -> tuple[str, bool, str]:
    try:
        engine = make_engine(registry, name)
        ok, why = engine.available()
        if ok and (devices := engine.devices()):
            why = "; ".join(filter(None, (f"on {', '.join(devices)}", why)))
    except (DovetailError, ImportError) as error:
        return name, False, str(error).partition("\n")[0]
    return name, ok, why


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    plugins = plugins_of(args)
    found = backends(plugins, args.names)
    if args.json:
        print_json({"backends": [_document(info) for info in found], "plugins": [p.as_dict() for p in plugins.plugins]})
        return 0
    if not found:
        print("no backend is installed; pip install dovetail-host brings the one that runs what no other takes")
    for info in found:
        say(f"{info.name}  ({info.distribution})  {info.summary}".rstrip())
        rows = [(name, "available" if ok else "absent", why) for name, ok, why in info.engines]
        print("\n".join(columns(rows, indent="    ")))
        if info.needs:
            say(f"    needs {info.needs}")
        if info.error:
            say(f"    {info.error}")
    print("\n".join(broken_lines(plugins)), end="")
    return 0


def _document(info: BackendInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "summary": info.summary,
        "distribution": info.distribution,
        "engines": [{"name": name, "available": ok, "why": why} for name, ok, why in info.engines],
        "needs": info.needs,
        "error": info.error,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("names", nargs="*", metavar="BACKEND", help="list only these")
    add_engine_env(parser)


BACKENDS = PlainCommand(add_arguments, run)
