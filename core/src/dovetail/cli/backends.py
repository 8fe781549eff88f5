"""`dovetail backends`: list installed backends, whether they can run here, and broken plugins."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from dovetail.cli.common import PlainCommand, columns, no_arguments, plugins_of, print_json

if TYPE_CHECKING:
    from dovetail.plugin.loading.loader import PluginSet


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    plugins = plugins_of(args)
    from dovetail import api

    found = api.backends(plugins)
    if args.json:
        print_json({"backends": [_document(info) for info in found], "plugins": [p.as_dict() for p in plugins.plugins]})
        return 0
    if not found:
        print("no backend is installed; pip install dovetail-host brings the one that runs what no other takes")
    for info in found:
        print(f"{info.name}  ({info.distribution})  {info.summary}".rstrip())
        rows = [(name, "available" if ok else "absent", why) for name, ok, why in info.engines]
        print("\n".join(columns(rows, indent="    ")))
        if info.needs:
            print(f"    needs {info.needs}")
        if info.error:
            print(f"    {info.error}")
    print("\n".join(broken_lines(plugins)), end="")
    return 0


def broken_lines(plugins: PluginSet) -> list[str]:
    """Return one line per broken or disabled plugin, under a heading; empty if there is none."""
    rows = [(p.name, p.distribution, p.status, p.error) for p in plugins.plugins if p.status != "ok"]
    return ["not in use:", *columns(rows, indent="    "), ""] if rows else []


def _document(info: Any) -> dict[str, Any]:
    return {
        "name": info.name,
        "summary": info.summary,
        "distribution": info.distribution,
        "engines": [{"name": name, "available": ok, "why": why} for name, ok, why in info.engines],
        "needs": info.needs,
        "error": info.error,
    }


BACKENDS = PlainCommand("backends", "List backends, their engines, and plugins that are broken.", no_arguments, run)
