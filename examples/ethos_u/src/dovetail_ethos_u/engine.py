"""The engine ethos-u-reference: what programs were compiled from, by LiteRT's reference kernels."""

from dovetail.plugin import Availability, Engine, EngineError, Reads
from dovetail_runtime import ToolProgram

from dovetail_ethos_u.emitter import missing, tool


class Reference(Engine):
    """Runs the network that Vela compiled; Arm's kernels for the device are bit-exact to these."""

    name = "ethos-u-reference"
    loads_artifacts = True
    reads = Reads(opset=22, ir_version=10, types=frozenset({"int8", "float32"}))

    def available(self):
        why = missing()
        return Availability(not why, why or "slow: reference kernels")

    def load(self, region, options):
        (node, *_) = region.model.graph
        if region.artifact is None:
            raise EngineError(f"{self.name} runs programs of Vela, and '{node.name}' is not one", node=node.name)
        program = tool().opened("load", program=(region.artifact / "net.tflite").read_bytes())
        return ToolProgram(program, node, "int8")
