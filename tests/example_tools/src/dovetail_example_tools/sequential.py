"""The executor `sequential`: every node is a region of its own, so that each of its values can be looked at."""

from dovetail.planning import get_placement, regions_from
from dovetail_runtime import RegionExecutor


class Sequential(RegionExecutor):
    """Runs node after node, each on the engine of its backend."""

    def __init__(self, compiled):
        graph = compiled.model.graph
        regions = regions_from(graph, [[node] for node in graph], lambda node: get_placement(node).backend)
        super().__init__(compiled.model, compiled.engines, compiled.options, regions=regions)
        self.notes.append(f"{len(self.runners)} nodes run one after the other")
