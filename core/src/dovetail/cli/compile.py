"""`dovetail compile`: place, type and join a model, write the result, and measure it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dovetail.cli.common import add_instrumentation, add_request, command, existing, instrumentation_of, request_of
from dovetail.cli.output import Progress, print_json, table
from dovetail.errors import UsageError

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(commands, "compile", run, "Compile a model for one or several backends.")
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT", help="folder to write; nothing is written without it"
    )
    parser.add_argument("--plan", type=Path, metavar="plan.yaml", help="replay a plan instead of deciding")
    parser.add_argument(
        "--verify", action="store_true", help="measure the result, on random inputs if there is no data"
    )
    parser.add_argument("--external-data", action="store_true", help="store the weights in a file of their own")
    add_request(parser)
    add_instrumentation(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if not args.backend and not args.plan:
        raise UsageError("no backend is named", "add --backend NAME (repeatable), or --plan FILE")
    request = {**request_of(args), "plan": existing(args.plan), "verify": True if args.verify else None}
    from dovetail import api

    model = api.open(existing(args.model))
    with Progress() as progress:
        compiled = api.compile(model, **request, progress=progress, instrumentation=instrumentation_of(args, progress))
        if args.output:
            compiled.save(args.output, external=True if args.external_data else None, progress=progress)
    if args.json:
        print_json(_document(args, compiled))
        return 0
    table(compiled.placement_table())
    if compiled.verification is not None:
        print("\n".join(compiled.verification.lines()))
    for note in compiled.notes():
        print(f"note: {note}")
    print(compiled.summary())
    return 0


def _document(args: argparse.Namespace, compiled: Any) -> dict[str, Any]:
    return {
        "output": args.output and str(args.output),
        "placements": compiled.placement_table(),
        "plan": compiled.plan.as_dict(),
        "remarks": [remark.as_dict() for remark in compiled.remarks],
        "verification": compiled.verification and compiled.verification.as_dict(),
        "notes": compiled.notes(),
        "summary": compiled.summary(),
    }
