"""The engine iree-runtime: runs programs of the emitter, in the process of the tool."""

from dovetail.plugin import Availability, Engine, EngineError, Reads
from dovetail_runtime import ToolProgram

from dovetail_iree.emitter import missing, tool


class Runtime(Engine):
    """Loads programs of IREE."""

    name = "iree-runtime"
    loads_artifacts = True
    reads = Reads(opset=22, ir_version=10, types=frozenset({"float32"}))

    def available(self):
        why = missing()
        return Availability(not why, why)

    def load(self, region, options):
        (node, *_) = region.model.graph
        if region.artifact is None:
            raise EngineError(f"{self.name} runs programs of IREE, and '{node.name}' is not one", node=node.name)
        program = tool().opened("load", program=(region.artifact / "net.vmfb").read_bytes())
        return ToolProgram(program, node, "float32")
