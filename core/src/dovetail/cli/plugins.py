"""`dovetail plugins`: list the installed plugins, what each one registers, and targets that do not load."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from dovetail.cli.common import PlainCommand, columns, no_arguments, plugins_of, print_json, say
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.plugin.loading.discovery import PluginRecord
    from dovetail.plugin.loading.loader import PluginSet
    from dovetail.plugin.loading.registry import Registry


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    plugins = plugins_of(args)
    found = [_document(record, plugins.registry) for record in plugins.plugins]
    if args.json:
        print_json({"plugins": found})
        return 0
    for item in found:
        if item["status"] == "ok":
            say(f"{item['name']}  ({item['distribution']} {item['version']})")
            rows = [(kind, ", ".join(names)) for kind, names in item["brings"].items()]
            rows += [("hooks", ", ".join(hooks))] if (hooks := [h for h in item["hooks"] if h != "register"]) else []
            rows += [("does not load", f"{what}: {why}") for what, why in item["does_not_load"].items()]
            print("\n".join(columns(rows, indent="    ")))
    print("\n".join(broken_lines(plugins)), end="")
    return 0


def broken_lines(plugins: PluginSet) -> list[str]:
    """Return one line per broken or disabled plugin, under a heading; empty if there is none."""
    rows = [(p.name, p.distribution, p.status, p.error) for p in plugins.plugins if p.status != "ok"]
    return ["not in use:", *columns(rows, indent="    "), ""] if rows else []


def _document(record: PluginRecord, registry: Registry) -> dict[str, Any]:
    brings: dict[str, list[str]] = {}
    failed: dict[str, str] = {}
    for table in registry.tables:
        for entry in (entry for entry in table.entries if entry.owner == record.distribution):
            brings.setdefault(table.kind, []).append(entry.name)
            try:
                table[entry.name]
            except DovetailError as error:
                failed[f"{table.kind} {entry.name}"] = f"{error.message}; {error.hint}"
    return {**record.as_dict(), "brings": brings, "does_not_load": failed}


PLUGINS = PlainCommand(no_arguments, run)
