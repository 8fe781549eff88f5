"""The engine: runs programs. Here ONNX Runtime plays the accelerator."""

import os

import dovetail.plugin
import onnxruntime
from dovetail.plugin import Availability, Engine, EngineError, Executed, Reads

from dovetail_example_engine.program import NAME, unpacked


class Runtime(Engine):
    """Runs programs that were compiled for the revision of this machine."""

    name = "acme-runtime"
    loads_artifacts = True
    reads = Reads(26, 13, frozenset({"float32", "float16", "int64", "bool"}))

    def available(self):
        """It runs where the accelerator is."""
        if os.environ.get("ACME_DEVICE") == "none":
            return Availability(False, "there is no accelerator")
        return Availability(True)

    def load(self, region, options):
        """Load a program.

        Raises:
            EngineError: There is none, or it is for another revision.
        """
        (node,) = region.model.graph
        if region.artifact is None:
            raise EngineError(
                f"acme-runtime runs programs, and '{node.name}' was not compiled into one", node=node.name
            )
        try:
            revision, model = unpacked((region.artifact / NAME).read_bytes())
        except (OSError, ValueError) as error:
            raise EngineError(
                f"acme-runtime cannot read the program of '{node.name}': {error}", node=node.name
            ) from error
        mine = os.environ.get("ACME_REVISION", "2")
        if revision != mine:
            why = f"acme-runtime is of revision {mine}, the program of '{node.name}' is for {revision}"
            raise EngineError(why, "compile for this revision: --backend acme-aot:revision=" + mine, node.name)
        return Session(onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]), node)


class Session(dovetail.plugin.Session):
    """A loaded program."""

    def __init__(self, program, node):
        self._program, self._node = program, node.name
        self._outputs = [value.name for value in node.outputs]

    def run(self, inputs):
        """Compute all outputs by name."""
        first = {given.name: given for given in self._program.get_inputs()}
        feeds = {name: _channels(array, (0, 3, 1, 2)) for name, array in zip(first, inputs.values())}
        return dict(zip(self._outputs, (_channels(array, (0, 2, 3, 1)) for array in self._program.run(None, feeds))))

    def executed(self):
        """What the accelerator says of the program."""
        return {self._node: Executed("", "not-reported")}


def _channels(array, order):
    """An image in the other layout; the program itself is simulated with the channels first."""
    return array.transpose(order) if array.ndim == 4 else array
