"""`dovetail passes`: list the installed passes by stage, and the named pipelines."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from dovetail.cli import PlainCommand, broken_lines, columns, no_arguments, plugins_of, print_json
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.passes import Pass
    from dovetail.plugin import Registry
    from dovetail.plugin.loading import Registration


_BY_HAND = "only where a pipeline names them"


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from dovetail.passes import STAGES

    plugins = plugins_of(args)
    found = [_document(plugins.registry, entry) for entry in plugins.registry.pass_.entries]
    pipelines = [
        {"name": entry.name, "distribution": entry.owner, "text": entry.target}
        for entry in plugins.registry.pipeline.entries
    ]
    if args.json:
        print_json(
            {"passes": found, "pipelines": pipelines, "plugins": [record.as_dict() for record in plugins.plugins]}
        )
        return 0
    for heading, stage in [*((stage, stage) for stage in STAGES), (_BY_HAND, None)]:
        rows = [
            (item["name"], item["distribution"], item["summary"])
            for item in found
            if item["stage"] == stage and not item["error"]
        ]
        if rows:
            print("\n".join([f"{heading}:", *columns(rows, indent="    ")]))
    if pipelines:
        print("\n".join(["pipelines:", *columns([tuple(item.values()) for item in pipelines], indent="    ")]))
    failed = [(item["name"], item["distribution"], item["error"]) for item in found if item["error"]]
    if failed:
        print("\n".join(["cannot be loaded:", *columns(failed, indent="    ")]))
    print("\n".join(broken_lines(plugins)), end="")
    return 0


def _document(registry: Registry, entry: Registration) -> dict[str, Any]:
    from dovetail.passes import load_pass

    item: dict[str, Any] = {"name": entry.name, "distribution": entry.owner}
    item |= {"stage": None, "summary": "", "options": [], "error": ""}
    try:
        cls = load_pass(registry, entry.name)
    except DovetailError as error:
        return item | {"error": error.message}
    return item | {
        "stage": cls.stage,
        "summary": _summary_of(cls),
        "options": [option.name for option in fields(cls)],
        "requires": cls.requires,
        "after": cls.after,
        "before": cls.before,
    }


PASSES = PlainCommand(no_arguments, run)


def _summary_of(pass_: type[Pass]) -> str:
    """Return the first line of a pass's docstring, or empty. (A dataclass without one has its signature there.)"""
    text = (pass_.__dict__.get("__doc__") or "").strip()
    return "" if text.startswith(f"{pass_.__name__}(") else text.partition("\n")[0]
