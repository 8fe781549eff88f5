"""The region former `engine-regions`: as few regions as possible, with the cheapest borders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_placement.engine_regions.atoms import atoms_of
from dovetail_placement.engine_regions.graph_problem import graph_problem

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin.services import RegionView


class EngineRegions:
    """Forms regions for engines that are built ahead of time.

    Nodes of other owners count one by one, so whatever these make of them, they can go around. If several backends name
    this former, the regions of one are whole for the next.
    """

    def form(self, view: RegionView) -> list[list[ir.Node]]:
        """Return the regions of `view.nodes`."""
        nodes, formed, found = list(view.graph), [tuple(group) for group in view.formed], []
        for backend in view.backends:
            legal = {node for node in view.nodes if view.backend_of(node) == backend}
            if legal:
                stated = graph_problem(nodes, legal, view.reads, atoms_of(nodes, legal), formed)
                found += stated.regions()
                formed = [*map(tuple, view.formed), *map(tuple, found)]
        return found
