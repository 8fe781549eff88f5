"""An engine that computes something else."""

import numpy as np
from dovetail.plugin import Availability, Engine, Executed, Reads, Session


class Wrong(Engine):
    name = "acme-wrong"
    reads = Reads(26, 13, frozenset({"float32", "float16"}))

    def available(self):
        return Availability(True)

    def load(self, region, options):
        return Zeros(region)


class Zeros(Session):
    def __init__(self, region):
        self._outputs = {value.name: value for value in region.model.graph.outputs}
        self._nodes = [node.name for node in region.model.nodes()]

    def run(self, inputs):
        (first,) = inputs.values()
        return {name: np.zeros_like(first) - 1 for name in self._outputs}

    def executed(self):
        return {name: Executed("", "not-reported") for name in self._nodes}
