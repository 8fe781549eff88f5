"""The arguments of a compilation request, for the commands that build one."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import existing, plugins_of
from dovetail.errors import UsageError
from dovetail.passes import BackendChoice, Request
from dovetail.plugin.loading import blaming, installed_options, names_file, use_file

if TYPE_CHECKING:
    from dovetail.plugin import Registry


__all__ = ["add_model", "add_request", "completed_model", "request_of"]


def add_model(parser: argparse.ArgumentParser, metavar: str = "MODEL") -> None:
    """Add the argument that names the model; options of plugins may name it instead."""
    parser.add_argument("model", type=Path, nargs="?", metavar=metavar)


def completed_model(args: argparse.Namespace) -> Path:
    """Return the path of the model, after options of plugins filled in omitted arguments.

    Raises:
        UsageError: No model or no backend is named.
        DovetailError: An option cannot read its own file.
    """
    _use_files(args)
    for option in args.command_line.options:
        with blaming(option):
            option.option.complete(args)
    if args.model is None:
        raise UsageError("no model is named", f"write: dovetail {args.command.name} MODEL")
    if not args.backend and not getattr(args, "plan", None):
        raise UsageError("no backend is named", "add --backend NAME (repeatable); `dovetail backends` lists them")
    return args.model


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add the options that make up a request."""
    group = parser.add_argument_group("request")
    add = group.add_argument
    add(
        "--backend",
        action="append",
        default=[],
        type=_backend,
        metavar="NAME|FILE[:key=value,...]",
        help="a backend to use, or the file of one; repeat in order of preference",
    )
    add(
        "--data",
        type=Path,
        metavar="FILE|FOLDER",
        help="calibration and verification data: .npz, .npy, .pb, or a folder of them; for a language model: prompts, "
        "as texts (.txt, .json) or token ids (.json, .npy, .npz)",
    )
    add("--strategy", metavar="NAME", help="how nodes are claimed, instead of what the backends say")
    add("--solver", default="forward", metavar="NAME", help="forward (default), fixpoint, min-cut, or one of a plugin")
    add("--costs", metavar="FILE|NAME", help="what min-cut counts; `dovetail profile` measures such a table")
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
    """Return the keyword arguments for `dovetail.plan` and `dovetail.compile`."""
    _use_files(args)
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


def _use_files(args: argparse.Namespace) -> None:
    """Register the backend files of the command line, so that everything else sees names.

    Raises:
        DovetailError: A file is missing or invalid, or has the name of another backend.
    """
    args.backend = [use_file(plugins_of(args).registry, text) for text in args.backend]


def _backend(text: str) -> str:
    from dovetail.passes import BackendChoice

    if names_file(text):
        return text
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


_NEEDS_DATA = ("bisect",)


def command_text(
    command: str,
    model: str | Path | None,
    request: Request,
    registry: Registry,
    more: Sequence[str] = (),
) -> str:
    """Return a command line for a request, quoted for a shell.

    Each plugin option writes its own part (`dovetail.plugin.Option.words`). If the command cannot express it, a comment
    at the end names the option, so that the command is not mistaken for the same request.

    Args:
        command: `compile`, `plan` or `bisect`.
        model: The file of the model; None for one in memory.
        request: The request.
        registry: The registry with the installed options.
        more: Further words at the end.
    """
    words = ["dovetail", command, str(model or "MODEL")]
    words += _each("--backend", [_named_as_given(choice, registry) for choice in request.backends] or ["NAME"])
    words += _each("--strategy", [request.strategy] if request.strategy else [])
    words += _each("--solver", [request.solver] if request.solver != "forward" else [])
    words += _each("--costs", [request.costs] if request.costs else [])
    words += _each("--pin", request.pins) + _each("--edit", request.edits)
    words += _each("--low", request.low) + _each("--high", request.high)
    words += ["--no-keep-io-types"] * (not request.keep_io_types) + ["--freeze-inputs"] * request.freeze_inputs
    if isinstance(request.data, (str, Path)):
        words += ["--data", str(request.data)]
    elif request.data is not None or command in _NEEDS_DATA:
        words += ["--data", "FILE"]
    options, unsaid = _option_words(command, request, registry)
    words += options
    if request.plan is not None:
        unsaid.append("the plan that was replayed")
    text = shlex.join([*words, *more])
    return f"{text}  # without {', '.join(unsaid)}" if unsaid else text


def _named_as_given(choice: BackendChoice, registry: Registry) -> str:
    """Return a backend as the user names it: one that is not installed by its file."""
    table = registry.backend
    owner = table.entry(choice.name).owner if choice.name in table else ""
    return str(replace(choice, name=owner)) if names_file(owner) else str(choice)


def _option_words(command: str, request: Request, registry: Registry) -> tuple[list[str], list[str]]:
    """Return the words of the options, and the options whose part of the request the command cannot express."""
    known = {found.name: found for found in installed_options(registry, command)}
    every = {found.name: found for name in ("compile", "plan") for found in installed_options(registry, name)}
    words: list[str] = []
    unsaid: list[str] = []
    for name, recorded in request.options.items():
        found = known.get(name) or every.get(name)
        if found is not None:
            with blaming(found):
                said = found.option.words(command, recorded)
            if said is not None:
                words += said
                continue
        unsaid.append(f"what option '{name}' asks for")
    return words, unsaid


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (option, str(value))]
