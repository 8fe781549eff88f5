"""The arguments of a compilation request, for the commands that build one."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.cli import DECISIONS, INPUTS, WRITTEN, existing, option_group, plugins_of
from dovetail.errors import UsageError
from dovetail.passes import BackendChoice, Request
from dovetail.plugin.loading import blaming, installed_options, names_file, use_file
from dovetail_onnx.files.locations import data_location

if TYPE_CHECKING:
    from dovetail.plugin import Registry


__all__ = ["CHOICES", "add_model", "add_request", "completed_model", "request_of"]


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
        raise UsageError("no model is named", f"write: dovetail {args.command_line.name} MODEL")
    if not args.backend and not getattr(args, "plan", None):
        raise UsageError("no backend is named", "add --backend NAME (repeatable); `dovetail backends` lists them")
    return args.model


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add the options that make up a request."""
    for one in CHOICES:
        option_group(parser, _GROUPS.get(one.field, DECISIONS)).add_argument(one.option, **one.argument)


def existing_data(data: str | Path | None) -> str | Path | None:
    """Return what `--data` names; of other file systems, it is looked for when it is read.

    Raises:
        UsageError: There is no such file.
    """
    return data if isinstance(data, str) else existing(data)


def request_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments for `dovetail.plan` and `dovetail.compile`."""
    _use_files(args)
    given = {one.field: vars(args)[one.option.strip("-").replace("-", "_")] for one in CHOICES}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return {**given, "backends": args.backend, "data": existing_data(args.data), "plugins": plugins_of(args)}


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


class _Choice(NamedTuple):
    """An option of commands for one choice of a request.

    Attributes:
        field: The field of `Request`, which is also the keyword of `dovetail.plan` and `dovetail.compile`.
        option: The option.
        argument: The keywords of `add_argument`.
    """

    field: str
    option: str
    argument: Mapping[str, Any]

    def words(self, value: Any) -> list[str]:
        """Return the words that choose `value`; none for the default."""
        if value == self.argument.get("default", False if "action" in self.argument else None):
            return []
        if isinstance(value, bool):
            return [self.option if value else f"--no-{self.option[2:]}"]
        if isinstance(value, tuple):
            return _each(self.option, value)
        return [self.option, str(value) if isinstance(value, (str, Path)) else "FILE"]


def _repeatable(metavar: str, help: str, **more: Any) -> dict[str, Any]:
    return {"action": "append", "default": [], "metavar": metavar, "help": f"{help} (repeatable)", **more}


_LOW, _HIGH = "compute nodes in the low precision", "compute nodes in the source model's types"
CHOICES = (
    _Choice("backends", "--backend", {
        "action": "append", "default": [], "type": _backend, "metavar": "NAME|FILE[:key=value,...]",
        "help": "a backend to use, or the file of one; repeat in order of preference",
    }),
    _Choice("strategy", "--strategy", {
        "metavar": "NAME", "help": "how nodes are claimed, instead of what the backends say",
    }),
    _Choice("solver", "--solver", {
        "default": "forward", "metavar": "NAME", "help": "forward (default), fixpoint, min-cut, or one of a plugin",
    }),
    _Choice("costs", "--costs", {
        "metavar": "FILE|NAME", "help": "what min-cut counts; `dovetail profile` measures such a table",
    }),
    _Choice("pins", "--pin", _repeatable("SELECTOR=backend/FORMAT", "a manual choice")),
    _Choice("edits", "--edit", _repeatable("KIND=NODE[:before|after]", "change the graph next to a node", type=_edit)),
    _Choice("low", "--low", _repeatable("SELECTOR", f"{_LOW} whatever their policy is")),
    _Choice("high", "--high", _repeatable("SELECTOR", _HIGH)),
    _Choice("keep_io_types", "--keep-io-types", {
        "action": argparse.BooleanOptionalAction, "default": True,
        "help": "keep the types of the model's inputs and outputs (default: yes)",
    }),
    _Choice("freeze_inputs", "--freeze-inputs", {
        "action": "store_true",
        "help": "treat inputs that have a default as constants",
    }),
    _Choice("data", "--data", {
        "type": data_location, "metavar": "FILE|FOLDER",
        "help": "calibration and verification data: .npz, .npy, .pb, a folder of them, s3://...; prompts of a language "
                "model: texts (.txt, .json) or token ids (.json, .npy, .npz)",
    }),
)  # fmt: skip
"""The choices of a request that commands offer. A test compares their fields with those of `Request`."""

_GROUPS = {"backends": WRITTEN, "data": WRITTEN, "keep_io_types": INPUTS, "freeze_inputs": INPUTS}
"""Groups of options by field; all others are decisions."""

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
    words += _each("--backend", [named_as_given(choice, registry) for choice in request.backends] or ["NAME"])
    for one in CHOICES[1:]:
        words += one.words(vars(request)[one.field])
    if command in _NEEDS_DATA and request.data is None:
        words += ["--data", "FILE"]
    options, unsaid = _option_words(command, request, registry)
    words += options
    if request.plan is not None:
        unsaid.append("the plan that was replayed")
    text = shlex.join([*words, *more])
    return f"{text}  # without {', '.join(unsaid)}" if unsaid else text


def named_as_given(choice: BackendChoice, registry: Registry) -> str:
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
