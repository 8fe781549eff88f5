"""Nested pipelines: their anchors, and the regions that they run over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.api_extensions import api_extension
from dovetail.errors import DovetailError, UsageError
from dovetail.passes.steps import Nested, Step, nested_in
from dovetail.planning.placement import HOST, placed_backends
from dovetail.suggestions import did_you_mean

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes.context import Context
    from dovetail.plugin.services import Regions


def check_anchors(steps: Iterable[Step], model: Model, ctx: Context) -> None:
    """Refuse nested pipelines for backends that are neither chosen nor in the placements of the model.

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
    """Return the regions of the backend that a nested pipeline is anchored on.

    Raises:
        DovetailError: The model is not placed, or nothing that takes regions out is installed.
    """
    if not placed_backends(model):
        raise DovetailError(
            f"{nested}: the model has no placements", "run `place` before it, or give a model that was compiled"
        )
    found: Regions = api_extension("regions")(model, nested.backend)
    return found
