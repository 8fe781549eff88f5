"""Replay of crash reproducers: repeat every step that led to the failure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.frontends import open_declared
from dovetail.passes import Context, Pipeline, Request
from dovetail.passes.reproducer import METADATA_KEY, versions
from dovetail_onnx.files.parsing import parse_json

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Instrumentation, Result
    from dovetail.plugin import PluginSet, Registry


def read_reproducer(path: str | Path, registry: Registry) -> tuple[Model, dict[str, Any]]:
    """Read the model and the data of a reproducer: `pipeline`, `request`, `versions`, `error`.

    Args:
        path: The file.
        registry: Has the front end that reads it.

    Raises:
        DovetailError: The file does not open or is not a reproducer.
    """
    model = open_declared(Path(path), registry)
    try:
        data = parse_json(model.ir.metadata_props.pop(METADATA_KEY))
        if not {"pipeline", "request", "versions", "error"} <= set(data):
            raise KeyError
    except (KeyError, ValueError, TypeError):
        hint = "`dovetail opt` and `dovetail compile` write one when a pass fails"
        raise DovetailError(f"{path} is not a reproducer", hint) from None
    return model, data


def changed_versions(data: dict[str, Any], plugins: PluginSet | None = None) -> list[str]:
    """Return the differences from the installation that wrote the reproducer, one line per distribution."""
    now = versions(plugins)
    return [
        f"{name} was {then}, is {now.get(name, 'not installed')}"
        for name, then in data["versions"].items()
        if now.get(name) != then
    ]


def run_reproducer(
    path: str | Path,
    registry: Registry,
    *,
    plugins: PluginSet | None = None,
    instrumentation: Instrumentation | None = None,
) -> Result:
    """Run the pipeline of a reproducer on its model.

    Raises:
        DovetailError: The run fails again.
    """
    model, data = read_reproducer(path, registry)
    pipeline = Pipeline.parse(data["pipeline"], registry)
    context = Context(Request.from_dict(data["request"]), plugins=plugins, registry=registry)
    return pipeline.run(model, context, instrumentation)
