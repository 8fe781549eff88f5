"""`dovetail plugins`: list the installed plugins and what each one registers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from dovetail.cli.backends import broken_lines
from dovetail.cli.common import PlainCommand, columns, no_arguments, plugins_of, print_json

if TYPE_CHECKING:
    from dovetail.plugin.discovery import PluginRecord
    from dovetail.plugin.registry import Registry


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    plugins = plugins_of(args)
    found = [_document(record, plugins.registry) for record in plugins.plugins]
    if args.json:
        print_json({"plugins": found})
        return 0
    for item in found:
        if item["status"] == "ok":
            print(f"{item['name']}  ({item['distribution']} {item['version']})")
            rows = [(kind, ", ".join(names)) for kind, names in item["brings"].items()]
            rows += [("hooks", ", ".join(hooks))] if (hooks := [h for h in item["hooks"] if h != "register"]) else []
            print("\n".join(columns(rows, indent="    ")))
    print("\n".join(broken_lines(plugins)), end="")
    return 0


def _document(record: PluginRecord, registry: Registry) -> dict[str, Any]:
    brings = {
        table.kind: names
        for table in registry.tables
        if (names := [entry.name for entry in table.entries if entry.owner == record.distribution])
    }
    return {**record.as_dict(), "brings": brings}


PLUGINS = PlainCommand("plugins", "List plugins and what each of them brings.", no_arguments, run)
