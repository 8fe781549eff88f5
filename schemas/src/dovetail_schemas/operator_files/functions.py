"""What this distribution adds to the package `dovetail`."""

from __future__ import annotations

from pathlib import Path

from dovetail_schemas.operator_files.entries import Argument, Entry
from dovetail_schemas.operator_files.library import defined
from dovetail_schemas.operator_files.reading import read_operators


def check_operators(file: str | Path) -> list[dict[str, str]]:
    """Check a file of operators.

    Args:
        file: Its path. A list of entries, as Paddle has it, is checked as one of the domain `pd_op`.

    Returns:
        For every operator its `name`, its `signature`, and as `executed` how: `composite`, `kernel` or `invoke`.

    Raises:
        DovetailError: The file cannot be read, or an entry is at fault: a line for every problem.
    """
    found = read_operators(Path(file), "pd_op")
    if found.domain != "pd_op":
        defined(found)
    return [
        {"name": f"{found.domain}::{entry.name}", "signature": _signature(entry), "executed": _executed(entry)}
        for entry in (*found.entries.values(), *found.gradients.values())
    ]


def _signature(entry: Entry) -> str:
    args = ", ".join(map(_argument, entry.args))
    outputs = ", ".join(f"{output.type} {output.name}" for output in entry.outputs)
    return f"({args}) -> {outputs}"


def _argument(arg: Argument) -> str:
    return f"{arg.type} {arg.name}" + (f" = {arg.default!r}" if arg.has_default else "")


def _executed(entry: Entry) -> str:
    ways = {"composite": entry.body or entry.composite, "kernel": entry.kernel, "invoke": entry.invoke}
    return ", ".join(name for name, way in ways.items() if way)
