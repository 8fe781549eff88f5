"""The emitter: the float32 model at the opset of the vendor's compiler, and the parameters of its values."""

import json

from dovetail.plugin import Artifact, Emitter


class Files(Emitter):
    """Writes `region.onnx` and `parameters.json`."""

    def emit(self, region, folder):
        """Write them."""
        region.source.save(folder / "region.onnx", external=False)
        values = {}
        for quantized in region.quantized_values:
            values.setdefault(quantized.value, []).append({
                "format": str(quantized.format), "scale": list(quantized.parameters.scale),
                "zero_point": list(quantized.parameters.zero_point), "group": quantized.group,
                "made_by": quantized.made_by, "read_by": list(quantized.readers),
            })  # fmt: skip
        document = {"generation": region.backend.chosen["generation"], "nodes": list(region.nodes), "values": values}
        (folder / "parameters.json").write_text(json.dumps(document, indent=1) + "\n")
        return Artifact(("region.onnx", "parameters.json"))
