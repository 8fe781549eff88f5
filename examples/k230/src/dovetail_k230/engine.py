"""The engine k230-simulator: runs programs on nncase's simulator of the KPU."""

import json

import numpy as np
from dovetail.plugin import Availability, Engine, EngineError, Executed, Reads, Session

from dovetail_k230.emitter import missing, tool


class Simulator(Engine):
    """Loads programs of nncase."""

    name = "k230-simulator"
    loads_artifacts = True
    reads = Reads(26, 13, frozenset({"float32", "uint8", "int8", "int16"}))

    def available(self):
        why = missing()
        return Availability(not why, why or "slow: simulates every instruction of the KPU")

    def load(self, region, options):
        (node, *_) = region.model.graph
        if region.artifact is None:
            raise EngineError(f"{self.name} runs programs of nncase, and '{node.name}' is none", node=node.name)
        return Program(region.artifact, node)


class Program(Session):
    """A program in the process of nncase, which is loaded again if nncase ends the process."""

    def __init__(self, folder, node):
        self._about = json.loads((folder / "net.json").read_text())
        kmodel = (folder / "net.kmodel").read_bytes()
        self._loaded = tool().opened("load", kmodel=kmodel)
        self._inputs = [value.name for value in node.inputs]  # weights stand behind those of the program
        self._outputs = [value.name for value in node.outputs]

    def run(self, inputs):
        entering, leaving = self._about["entering"], self._about["leaving"]
        floats = {source: from_border(inputs[name], how) for name, (source, how) in zip(self._inputs, entering)}
        results = self._loaded.ask("run", inputs=[floats[name] for name in self._about["inputs"]])
        found = dict(zip(self._about["outputs"], results, strict=True))
        return {name: found[source] for name, source in zip(self._outputs, leaving)}

    def executed(self):
        return dict.fromkeys(self._about["nodes"], Executed("uint8", "reported"))

    def close(self):
        self._loaded.close()


def from_border(array, how):
    """Return the floats of a value that crosses the border."""
    return array if how is None else ((array.astype(np.float32) - how[1]) * np.float32(how[0])).astype(np.float32)
