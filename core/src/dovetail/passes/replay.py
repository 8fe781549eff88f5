"""Replay of crash reproducers: repeat every step that led to the failure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.passes.context import Context
from dovetail.passes.pipeline import Pipeline
from dovetail.passes.reproducer import read_reproducer
from dovetail.passes.request import Request

if TYPE_CHECKING:
    from dovetail.passes.instrumentation import Instrumentation
    from dovetail.passes.result import Result
    from dovetail.plugin.loader import PluginSet
    from dovetail.plugin.registry import Registry

__all__ = ["run_reproducer"]


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
