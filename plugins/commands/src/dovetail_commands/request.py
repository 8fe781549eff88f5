"""The arguments that say what is wanted from a compilation, for the commands that make a request."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dovetail.cli.common import existing, plugins_of
from dovetail.errors import UsageError
from dovetail.plugin.options import blaming

__all__ = ["add_model", "add_request", "completed_model", "request_of"]


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the model; options of plugins may name it instead."""
    parser.add_argument("model", type=Path, nargs="?", metavar="MODEL")


def completed_model(args: argparse.Namespace) -> Path:
    """The path of the model, once the options of plugins have said what the command line leaves out.

    Raises:
        UsageError: Nothing names one, or no backend is named.
        DovetailError: An option cannot read its own file.
    """
    for option in args.command_line.options:
        with blaming(option):
            option.option.complete(args)
    if args.model is None:
        raise UsageError("no model is named", f"write: dovetail {args.command.name} MODEL")
    if not args.backend and not getattr(args, "plan", None):
        raise UsageError("no backend is named", "add --backend NAME (repeatable); `dovetail backends` lists them")
    return args.model


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is wanted from a compilation."""
    group = parser.add_argument_group("request")
    add = group.add_argument
    add(
        "--backend",
        action="append",
        default=[],
        type=_backend,
        metavar="NAME[:key=value,...]",
        help="a backend to use; repeat in order of preference",
    )
    add(
        "--data",
        type=Path,
        metavar="FILE|FOLDER",
        help="calibration and verification data: .npz, .npy, .pb, or a folder of them",
    )
    add("--strategy", metavar="NAME", help="how nodes are claimed, instead of what the backends say")
    add("--solver", default="forward", metavar="NAME", help="forward (default), fixpoint, min-cut, or one of a plugin")
    add("--costs", metavar="FILE|NAME", help="what min-cut counts; `dovetail bench costs` measures such a table")
    add("--pin", action="append", default=[], metavar="SELECTOR=backend/FORMAT", help="a manual choice (repeatable)")
    add(
        "--edit",
        action="append",
        default=[],
        type=_edit,
        metavar="KIND=NODE[:before|after]",
        help="change the graph next to a node (repeatable)",
    )
    low, high = "compute nodes in the low precision", "compute nodes in the source model's types"
    add("--low", action="append", default=[], metavar="SELECTOR", help=f"{low} whatever their policy is (repeatable)")
    add("--high", action="append", default=[], metavar="SELECTOR", help=f"{high} (repeatable)")
    add(
        "--keep-io-types",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep the types of the model's inputs and outputs (default: yes)",
    )
    add(
        "--freeze-inputs",
        action="store_true",
        help="take inputs that have a default for constants: nobody will give another value",
    )


def request_of(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of `dovetail.plan` and `dovetail.compile`."""
    return {
        "backends": args.backend,
        "strategy": args.strategy,
        "solver": args.solver,
        "costs": args.costs,
        "pins": tuple(args.pin),
        "edits": tuple(args.edit),
        "low": tuple(args.low),
        "high": tuple(args.high),
        "keep_io_types": args.keep_io_types,
        "freeze_inputs": args.freeze_inputs,
        "data": existing(args.data),
        "plugins": plugins_of(args),
    }


def _backend(text: str) -> str:
    from dovetail.passes import BackendChoice

    try:
        BackendChoice.parse(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(error.message) from None
    return text


def _edit(text: str) -> str:
    from dovetail.plugin import Edit

    try:
        Edit.parse(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from None
    return text
