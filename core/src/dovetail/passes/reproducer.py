"""The crash reproducer: one ONNX file that holds the model, the pipeline, the request and the versions.

The model is the one that the pipeline started from, so the file also opens in any ONNX viewer. Everything else is
JSON under one metadata key.
"""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.passes.pipeline import Pipeline
from dovetail.passes.request import Request

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes.context import Context
    from dovetail.passes.instrumentation import Instrumentation
    from dovetail.passes.result import Result
    from dovetail.plugins import PluginSet
    from dovetail.registry import Registry

__all__ = ["METADATA_KEY", "Snapshot", "changed_versions", "read_reproducer", "run_reproducer"]

METADATA_KEY = "dovetail.reproducer"
_LIBRARIES = ("dovetail", "onnx", "onnx-ir", "numpy")


class Snapshot:
    """The model as a pipeline found it, kept until the pipeline is through.

    An untouched model that came from a file is read from there again; only others cost a copy.
    """

    def __init__(self, model: Model):
        self._path = model.path if model.revision == 0 else None
        self._copy = None if self._path else model.clone()

    def save(self, path: Path, pipeline: Pipeline, ctx: Context, error: str) -> None:
        """Write the reproducer."""
        import dovetail.ir

        model = self._copy or dovetail.ir.open_model(self._path)
        model.ir.metadata_props[METADATA_KEY] = json.dumps(
            {
                "pipeline": str(pipeline),
                "request": ctx.request.as_dict(),
                "versions": _versions(ctx.plugins),
                "error": error,
            },
            default=str,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        dovetail.ir.save_model(model, path)

    def describe_saved(self, path: Path, pipeline: Pipeline, ctx: Context, error: str) -> str:
        """Write the reproducer and say how to use it, or why there is none; never raises over the error it is for."""
        try:
            self.save(path, pipeline, ctx, error)
        except Exception as failure:
            return f"no reproducer could be written to {path}: {failure}"
        return f"repeat it with: dovetail opt {path} --run-reproducer"


def read_reproducer(path: str | Path) -> tuple[Model, dict[str, Any]]:
    """The model and the data of a reproducer: `pipeline`, `request`, `versions`, `error`.

    Raises:
        DovetailError: The file does not open or is no reproducer.
    """
    import dovetail.ir

    model = dovetail.ir.open_model(Path(path))
    try:
        data = json.loads(model.ir.metadata_props.pop(METADATA_KEY))
    except (KeyError, ValueError):
        hint = "`dovetail opt` and `dovetail compile` write one when a pass fails"
        raise DovetailError(f"{path} is no reproducer", hint) from None
    return model, data


def run_reproducer(
    path: str | Path,
    registry: Registry,
    *,
    plugins: PluginSet | None = None,
    instrumentation: Instrumentation | None = None,
) -> Result:
    """Run what a reproducer holds.

    Raises:
        DovetailError: What the failed run raised, if it still fails.
    """
    from dovetail.passes.context import Context

    model, data = read_reproducer(path)
    pipeline = Pipeline.parse(data["pipeline"], registry)
    context = Context(Request.from_dict(data["request"]), plugins=plugins, registry=registry)
    return pipeline.run(model, context, instrumentation)


def changed_versions(data: dict[str, Any], plugins: PluginSet | None = None) -> list[str]:
    """How this installation differs from the one that wrote the reproducer, one line per distribution."""
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
