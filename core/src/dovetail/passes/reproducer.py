"""Crash reproducers: one ONNX file with the model, the pipeline, the request and the versions.

The model is the source, and the pipeline includes all earlier steps, so a replay repeats the whole run. Weights may be
confidential, and failures rarely depend on their values: by default, initializers and constants above a kilobyte are
stored without data and replayed as zeros. The file opens in any ONNX viewer; everything else is JSON under one metadata
key.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.installed import DISTRIBUTION, version_of

if TYPE_CHECKING:
    from dovetail.ir.dialect import SourceSnapshot
    from dovetail.passes.pipeline import Pipeline
    from dovetail.plugin.context import Context
    from dovetail.plugin.loading.loader import PluginSet


METADATA_KEY = "dovetail.reproducer"
_LIBRARIES = (DISTRIBUTION, "onnx", "onnx-ir", "numpy")


def describe_saved(
    path: Path, source: SourceSnapshot | None, pipeline: Pipeline, ctx: Context, error: str, weights: bool = False
) -> str:
    """Write the reproducer; return a note on how to use it, or why it could not be written. Never raises.

    Args:
        path: The file to write.
        source: The model before any pass; None if no front end with a dialect is installed to record it.
        pipeline: The pipeline that failed.
        ctx: The context of the run.
        error: The failure.
        weights: Include the weights.
    """
    if source is None:
        return "no reproducer is written, because no front end recorded the model: pip install dovetail-onnx"
    try:
        _save(path, source, pipeline, ctx, error, weights)
    except Exception as failure:
        return f"no reproducer could be written to {path}: {failure}"
    return f"repeat it with: dovetail opt {shlex.quote(str(path))} --run-reproducer"


def _save(path: Path, source: SourceSnapshot, pipeline: Pipeline, ctx: Context, error: str, weights: bool) -> None:
    data = {
        "pipeline": ",".join(filter(None, [*ctx.round.pipelines, str(pipeline)])),
        "request": ctx.request.as_dict(),
        "versions": versions(ctx.plugins),
        "error": error,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    source.with_metadata({METADATA_KEY: json.dumps(data, default=str)}, weights=weights).save(path)


def versions(plugins: PluginSet | None) -> dict[str, str]:
    """Return the versions that may matter to a failure, by distribution."""
    found = {name: version for name in _LIBRARIES if (version := version_of(name))}
    for record in plugins.plugins if plugins else ():
        if record.status == "ok":
            found.setdefault(record.distribution, record.version)
    return found
