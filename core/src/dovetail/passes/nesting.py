"""Nested pipelines: the backends that anchor them, and the regions that they run on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.api_extensions import api_extension
from dovetail.errors import DovetailError, UsageError
from dovetail.planning.placement import HOST, placed_backends
from dovetail.plugin.steps import Nested, Step, nested_in
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.plugin.context import Context
    from dovetail.plugin.partitioning import Regions


def check_anchors(steps: Iterable[Step], model: Model, ctx: Context) -> None:
    """Reject nested pipelines anchored on backends that are neither chosen nor in the model's placements.

    Raises:
        UsageError: There is such a pipeline.
    """
    anchors = {nested.backend for nested in nested_in(steps)}
    chosen = [choice.name for choice in ctx.request.backends]
    if anchors <= {*chosen, HOST}:
        return
    known = dict.fromkeys([*chosen, HOST, *sorted(placed_backends(model))])
    for name in sorted(anchors - known.keys()):
        raise UsageError(
            f"backend:{name}(...): no backend {name!r} is chosen{did_you_mean(name, known)}",
            f"chosen: {', '.join(known)}; add --backend {name}",
        )


def regions_under(nested: Nested, model: Model) -> Regions:
    """Return the regions of the backend that anchors a nested pipeline.

    Raises:
        DovetailError: The model is not placed, or no distribution that extracts regions is installed.
    """
    if not placed_backends(model):
        raise DovetailError(
            f"{nested}: the model has no placements", "run `place` before it, or give a model that was compiled"
        )
    found: Regions = api_extension("regions")(model, nested.backend)
    return found
