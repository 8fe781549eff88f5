"""The passes that make regions into artifacts or functions. The work is imported only where there is such a region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.passes import Pass

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context


class EmitArtifacts(Pass):
    """Run the emitters that backends name under `emit: {artifacts: [...]}`, on regions or on the whole model.

    Given:  region 0 of a backend that is compiled ahead of time:  a = Conv(x, w)   y = Relu(a)
    Result: artifacts/acme/region_0/net.blob, and y = com.microsoft::EPContext(x) in the place of the region

    A node that an emitter rejects is placed elsewhere, and everything is decided again.
    """

    name = "emit-artifacts"
    stage = "emit"

    def run(self, model: Model, ctx: Context) -> bool:
        """Emit, and replace the regions for which an emitter returns a node."""
        backends = {backend.name: backend for backend in ctx.backends if backend.artifacts}
        if not backends:
            return False
        from dovetail_placement.artifacts.emit_artifacts import emit_artifacts

        return emit_artifacts(model, backends, ctx)


@dataclass(frozen=True)
class OutlineRegions(Pass):
    """Outline the regions of a backend into model-local functions, and call them.

    Given:  region 0 of the backend acme:  a = Conv(x, w)   y = Relu(a)
    Result: y = dovetail.acme::region_0(x, w), with a function of that name; weights are inputs of the function

    Attributes:
        backend: The backend; empty for all backends except the host.
    """

    name = "outline-regions"
    backend: str = ""

    def run(self, model: Model, ctx: Context) -> bool:
        """Outline the regions.

        Raises:
            UsageError: No node is on the backend.
            DovetailError: The model has no placements.
        """
        from dovetail_placement.artifacts.outline_regions import outline_regions

        return outline_regions(model, self.backend, ctx)
