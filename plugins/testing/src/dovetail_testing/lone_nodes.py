"""Regions of one node, for suites that try nodes alone: what a backend file asks of a region as a whole is left aside.

`need: [Conv]` and `limits: {nodes: 2..}` are about what pays off, not about what is computed rightly. Under them a
suite of single nodes would find every Relu on the host, and check nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.passes import Pass
from dovetail.plugin import Refusal
from dovetail_schemas.backend import FileBackend

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Backend
    from dovetail_schemas.limits import Limit


@dataclass(frozen=True)
class LoneNodes(Pass):
    """Let regions of one node stay on a backend, whatever its file needs in a region.

    Attributes:
        backend: The name of the backend.
    """

    backend: str = ""
    name = "lone-nodes"
    stage = "analyze"

    def run(self, model: Model, ctx: Context) -> bool:
        """Replace the backend of the run by one without these requirements; the graph does not change."""
        ctx.backends = tuple(of_any_size(one) if one.name == self.backend else one for one in ctx.backends)
        return False


def of_any_size(backend: Backend) -> Backend:
    """Return a backend without the requirements that a region of one node violates."""
    if not isinstance(backend, FileBackend) or not requirements(backend):
        return backend
    limits = tuple(limit for limit in backend.region.limits if not _needs_more(limit))
    return replace(backend, region=replace(backend.region, limits=limits, need=()))


def requirements(backend: Backend) -> list[str]:
    """Return what a file requires of a region and one of a single node violates, each with file and line."""
    if not isinstance(backend, FileBackend):
        return []
    rule = backend.region
    found = [f"need: [{', '.join(rule.need)}] [{rule.need_source}]"] if rule.need else []
    return found + [f"{limit} [{limit.source}]" for limit in rule.limits if _needs_more(limit)]


def _needs_more(limit: Limit) -> bool:
    """Check whether a limit refuses every region of one node."""
    return limit.term.text == "nodes" and isinstance(limit.refusal({"nodes": 1}, "refuse"), Refusal)
