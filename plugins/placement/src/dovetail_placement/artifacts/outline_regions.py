"""The `outline-regions` pass: regions as model-local functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError, UsageError
from dovetail.ir.fresh_names import FreshNames
from dovetail.passes import Pass
from dovetail.planning.placement import HOST, placed_backends
from dovetail.suggestions import did_you_mean
from dovetail_transforms.regions.regions import annotated_regions

from dovetail_placement.artifacts.outlining import current_region, outline_region

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context


@dataclass(frozen=True)
class OutlineRegions(Pass):
    """Move the regions of a backend into model-local functions, and call them.

    Given:  region 0 of the backend acme:  a = Conv(x, w)   y = Relu(a)
    Result: y = dovetail.acme::region_0(x, w), with a function of that name; weights are inputs of the function

    Attributes:
        backend: The backend; empty for all but the host.
    """

    name = "outline-regions"
    backend: str = ""

    def run(self, model: Model, ctx: Context) -> bool:
        """Outline the regions.

        Raises:
            UsageError: No node is on the backend.
            DovetailError: The model has no placements.
        """
        known = placed_backends(model)
        if not known:
            hint = "run `place` before it, or give a model that was compiled"
            raise DovetailError("outline-regions: the model has no placements", hint)
        if self.backend and self.backend not in known:
            raise UsageError(f"no node is on backend '{self.backend}'{did_you_mean(self.backend, known)}")
        regions = [region for region in annotated_regions(model.graph) if self._wants(region.backend)]
        names = ctx.analysis(FreshNames, model)
        for region in regions:
            node = outline_region(model, current_region(region), f"region_{region.index}", names)
            ctx.remark("passed", node, "outlined", f"region {region.index} is a function of {len(region.nodes)} nodes")
        if regions:
            model.graph.sort()
            model.touch()
        return bool(regions)

    def _wants(self, backend: str) -> bool:
        return backend == self.backend if self.backend else backend != HOST
