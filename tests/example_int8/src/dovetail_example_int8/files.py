"""The emitter: the float32 model at the opset of the vendor's compiler, and the parameters of its values."""

import json

from dovetail.plugin import Artifact, Emitter


class Files(Emitter):
    """Writes `region.onnx` and `parameters.json`."""

    def emit(self, region, folder):
        """Write them."""
        region.source.save(folder / "region.onnx", external=False)
        values = {}
        for holding in region.holdings:
            values.setdefault(holding.value, []).append({
                "format": str(holding.format), "scale": list(holding.parameters.scale),
                "zero_point": list(holding.parameters.zero_point), "group": holding.group,
                "made_by": holding.made_by, "read_by": list(holding.readers),
            })  # fmt: skip
        document = {"generation": region.backend.chosen["generation"], "nodes": list(region.nodes), "values": values}
        (folder / "parameters.json").write_text(json.dumps(document, indent=1) + "\n")
        return Artifact(("region.onnx", "parameters.json"))
