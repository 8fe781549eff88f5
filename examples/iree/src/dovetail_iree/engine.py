"""The engine iree-runtime: runs programs of the emitter, in the process of the tool."""

from dovetail.plugin import Availability, Engine, EngineError, Executed, Reads, Session

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
        return Program(tool().opened("load", program=(region.artifact / "net.vmfb").read_bytes()), node)


class Program(Session):
    """A program in the process of the tool."""

    def __init__(self, loaded, node):
        self._loaded, self._node = loaded, node.name
        self._inputs = [value.name for value in node.inputs]
        self._outputs = [value.name for value in node.outputs]

    def run(self, inputs):
        results = self._loaded.ask("run", inputs=[inputs[name] for name in self._inputs])
        return dict(zip(self._outputs, results, strict=True))

    def executed(self):
        return {self._node: Executed("float32", "reported")}

    def close(self):
        self._loaded.close()
