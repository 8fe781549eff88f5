"""The command `dovetail export`: write what a product ships."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dovetail.cli import PlainCommand, existing, note, output, plugins_of, print_json, say
from dovetail.text import pluralize


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from dovetail_export.exporting import RUNNERS

    parser.add_argument("result", type=Path, metavar="DIR", help="folder that compile wrote")
    parser.add_argument(
        "--to", type=output, required=True, metavar="FOLDER", help="folder to write; an export is replaced"
    )
    parser.add_argument("--runner", choices=RUNNERS, help="add a program that runs it with the engines' packages alone")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from dovetail import api
    from dovetail.plugin import shipped_folder

    from dovetail_export.exporting import export

    existing(args.result)
    plugins = plugins_of(args)
    if shipped_folder(args.result, plugins) is not None:
        return _told_of_folder(export(args.result, args.to, args.runner, plugins), args)
    result = api.load(args.result, plugins)
    description = export(result, args.to, args.runner)
    note(*(f"warning: {text}" for text in result.warnings()))
    if args.json:
        print_json(description)
        return 0
    _tell_steps(description)
    say(f"{args.to}: {pluralize(len(description['steps']), 'step')}, described in {args.to / 'deploy.json'}")
    return 0


def _told_of_folder(description: dict[str, Any], args: argparse.Namespace) -> int:
    """Tell what an export of a folder holds."""
    if args.json:
        print_json(description)
        return 0
    for name, part in description["parts"].items():
        say(f"parts/{name}:")
        _tell_steps(part)
    say(f"{args.to}: {pluralize(len(description['files']), 'file')} for {description['runtime']}")
    return 0


def _tell_steps(description: dict[str, Any]) -> None:
    for number, step in enumerate(description["steps"]):
        size = sum(file["bytes"] for file in step["files"])
        files = ", ".join(file["path"] for file in step["files"])
        say(f"{number}  {', '.join(step['backends'])} on {step['engine']}  {files}  {size} bytes")
        if step["needs"]:
            say(f"   for CPUs with {' and '.join(' or '.join(group) for group in step['needs'])}")


EXPORT = PlainCommand(add_arguments, run)
