"""Crash reproducers: one ONNX file with the model, the pipeline, the request and the versions.

The model is the source, and the pipeline includes all that ran before, so that a replay repeats every step. Weights may
be confidential, and passes seldom fail because of their values: by default, initializers and constants above a kilobyte
are stored without data and replayed as zeros. The file opens in any ONNX viewer; everything else is JSON under one
metadata key.
"""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes.context import Context
    from dovetail.passes.pipeline import Pipeline
    from dovetail.plugin.frontend import SourceSnapshot
    from dovetail.plugin.loader import PluginSet
    from dovetail.plugin.registry import Registry

__all__ = ["METADATA_KEY", "changed_versions", "describe_saved", "read_reproducer"]

METADATA_KEY = "dovetail.reproducer"
_LIBRARIES = ("dovetail", "onnx", "onnx-ir", "numpy")


def describe_saved(
    path: Path, source: SourceSnapshot | None, pipeline: Pipeline, ctx: Context, error: str, weights: bool = False
) -> str:
    """Write the reproducer; return how to use it, or why it could not be written. Never raises.

    Args:
        path: The file to write.
        source: The model before any pass; None if no front end with a dialect is installed, which records it.
        pipeline: The pipeline that failed.
        ctx: The context of the run.
        error: The failure.
        weights: Write the weights, too.
    """
    if source is None:
        return "no reproducer is written, because no front end recorded the model: pip install dovetail-onnx"
    try:
        _save(path, source, pipeline, ctx, error, weights)
    except Exception as failure:
        return f"no reproducer could be written to {path}: {failure}"
    return f"repeat it with: dovetail opt {path} --run-reproducer"


def _save(path: Path, source: SourceSnapshot, pipeline: Pipeline, ctx: Context, error: str, weights: bool) -> None:
    data = {
        "pipeline": ",".join(filter(None, [*ctx.pipelines, str(pipeline)])),
        "request": ctx.request.as_dict(),
        "versions": _versions(ctx.plugins),
        "error": error,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    source.with_metadata({METADATA_KEY: json.dumps(data, default=str)}, weights=weights).save(path)


def read_reproducer(path: str | Path, registry: Registry) -> tuple[Model, dict[str, Any]]:
    """Read the model and the data of a reproducer: `pipeline`, `request`, `versions`, `error`.

    Args:
        path: The file.
        registry: Has the front end that reads it.

    Raises:
        DovetailError: The file does not open or is not a reproducer.
    """
    from dovetail.frontends import open_declared

    model = open_declared(Path(path), registry)
    try:
        data = json.loads(model.ir.metadata_props.pop(METADATA_KEY))
        if not {"pipeline", "request", "versions", "error"} <= set(data):
            raise KeyError
    except (KeyError, ValueError, TypeError, RecursionError):
        hint = "`dovetail opt` and `dovetail compile` write one when a pass fails"
        raise DovetailError(f"{path} is not a reproducer", hint) from None
    return model, data


def changed_versions(data: dict[str, Any], plugins: PluginSet | None = None) -> list[str]:
    """Return the differences from the installation that wrote the reproducer, one line per distribution."""
    now = _versions(plugins)
    return [
        f"{name} was {then}, is {now.get(name, 'not installed')}"
        for name, then in data["versions"].items()
        if now.get(name) != then
    ]


def _versions(plugins: PluginSet | None) -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    for record in plugins.plugins if plugins else ():
        if record.status == "ok":
            found.setdefault(record.distribution, record.version)
    return found
