"""A request as the text of a command, to be copied: hints and suggestions repeat what they are about."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes.request import BackendChoice, Request
from dovetail.plugin.options import blaming, installed_options

if TYPE_CHECKING:
    from dovetail.planning.plan import Plan
    from dovetail.plugin.registry import Registry


_NEEDS_DATA = ("bisect",)


def command_text(
    command: str,
    model: str | Path | None,
    request: Request,
    registry: Registry,
    more: Sequence[str] = (),
) -> str:
    """A command line for a request, quoted for a shell.

    What an option of a plugin asks for is written by that option (`dovetail.plugin.Option.words`). Where the command
    cannot say it, a comment at the end names the option, so that nobody takes the command for the same request.

    Args:
        command: `compile`, `plan` or `bisect`.
        model: The file of the model; None for one in memory.
        request: What is asked for.
        registry: Has the installed options.
        more: Words at the end.
    """
    words = ["dovetail", command, str(model or "MODEL")]
    words += _each("--backend", [str(choice) for choice in request.backends] or ["NAME"])
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
        if command == "compile" and isinstance(request.plan, (str, Path)):
            words += ["--plan", str(request.plan)]
        else:
            unsaid.append("the plan that was replayed")
    text = shlex.join([*words, *more])
    return f"{text}  # without {', '.join(unsaid)}" if unsaid else text


def request_of_plan(plan: Plan) -> Request:
    """The request that a plan was made for; of a plan that replays another one, or was edited, the backends alone."""
    try:
        found = Request.from_dict(plan.summary.get("request", {}))
    except (DovetailError, TypeError, ValueError, AttributeError):
        found = Request()
    if found.backends:
        return found
    return Request(tuple(BackendChoice(entry["name"], dict(entry.get("options", {}))) for entry in plan.backends))


def _option_words(command: str, request: Request, registry: Registry) -> tuple[list[str], list[str]]:
    """The words of the options, and those options whose part of the request the command cannot say."""
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
