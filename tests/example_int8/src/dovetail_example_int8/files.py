"""The emitter: the float32 model at the opset of the vendor's compiler, and the parameters of its values."""

import json

from dovetail.plugin import Artifact, DovetailError, EngineError
from dovetail_lowering import lower


class Files:
    """Writes `region.onnx` and `parameters.json`."""

    def emit(self, region, folder):
        """Write them.

        Raises:
            EngineError: A node has no form at the compiler's opset.
        """
        try:
            lowered = lower(region.source, region.backend.opset[1]).model
        except DovetailError as error:
            raise EngineError(error.message, error.hint) from error
        lowered.save(folder / "region.onnx", external=False)
        values = {
            holding.value: {"format": str(holding.format), "scale": list(holding.parameters.scale),
                            "zero_point": list(holding.parameters.zero_point), "group": holding.group}
            for holding in region.holdings
        }  # fmt: skip
        document = {"generation": region.backend.chosen["generation"], "nodes": list(region.nodes), "values": values}
        (folder / "parameters.json").write_text(json.dumps(document, indent=1) + "\n")
        return Artifact(("region.onnx", "parameters.json"))
