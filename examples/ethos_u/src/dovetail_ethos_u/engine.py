"""The engine ethos-u-reference: what programs were compiled from, by LiteRT's reference kernels."""

from dovetail.plugin import Availability, Engine, EngineError, Executed, Reads, Session

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
        return Program(tool().opened("load", program=(region.artifact / "net.tflite").read_bytes()), node)


class Program(Session):
    """A network in the process of the tool."""

    def __init__(self, loaded, node):
        self._loaded, self._node = loaded, node.name
        self._inputs = [value.name for value in node.inputs]
        self._outputs = [value.name for value in node.outputs]

    def run(self, inputs):
        results = self._loaded.ask("run", inputs=[inputs[name] for name in self._inputs])
        return dict(zip(self._outputs, results, strict=True))

    def executed(self):
        return {self._node: Executed("int8", "reported")}

    def close(self):
        self._loaded.close()
