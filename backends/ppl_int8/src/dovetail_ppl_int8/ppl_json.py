"""The emitter `ppl-json`: the float32 model for PPL, and a file with its int8 nodes and scales."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dovetail.plugin import Artifact, DovetailError, Emitter
from dovetail_transforms import lower

from dovetail_ppl_int8.quant_info import op_info, quant_info, values_by_name, with_copies

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.plugin import EmittedRegion


MODEL, CONFIGURATION = "model.onnx", "ppl.json"


class PplJson(Emitter):
    """Writes `model.onnx`, the whole model in float32, and `ppl.json`, which refers to its values and nodes.

    PPL quantizes the model itself: it takes scales from the file and weights from the model, and computes every listed
    node in int8.
    """

    whole = True

    def emit(self, region: EmittedRegion, folder: Path) -> Artifact:
        """Write the files.

        If some nodes cannot be lowered to the opset that PPL reads, the model is written unchanged, with a note: these
        nodes are on other backends, and a later PPL may support them.

        Raises:
            EngineError: A value that is not a constant has two scales.
        """
        values = values_by_name(region)
        source = with_copies(region.source, values)
        highest = region.backend.opset[1]
        notes: tuple[str, ...] = ()
        try:
            model = lower(source, highest).model
        except DovetailError as error:
            model = source
            notes = (f"PPL reads opset {highest} at the highest, and {MODEL} has opset {model.opset}: {error.message}",)
        document = {"quant_info": quant_info(values), "op_info": op_info(model, region.backend.name)}
        for node in model.nodes():
            node.meta.clear()  # the placement means nothing to PPL
        model.save(folder / MODEL)
        (folder / CONFIGURATION).write_text(json.dumps(document, indent=4) + "\n")
        return Artifact(tuple(sorted(path.name for path in folder.iterdir())), notes=notes)
