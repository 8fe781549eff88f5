"""The emitter `ppl-json`: the model in float32 as PPL reads it, and a file that says what it computes in int8."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dovetail.plugin import Artifact, DovetailError, Emitter
from dovetail_transforms.lowering import lower

from dovetail_ppl_int8.quant_info import op_info, quant_info

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.plugin import EmittedRegion


MODEL, CONFIGURATION = "model.onnx", "ppl.json"


class PplJson(Emitter):
    """Writes `model.onnx`, the whole model in float32, and `ppl.json`, which names values and nodes in it.

    PPL quantizes by itself: it takes scales from the file, weights from the model, and computes every node in int8 that
    the file lists.
    """

    whole = True

    def emit(self, region: EmittedRegion, folder: Path) -> Artifact:
        """Write them.

        A model with nodes that have no form at the opset that PPL reads is written as it is, with a note: they are on
        other backends, and a later PPL may read them.

        Raises:
            EngineError: A value has two scales.
        """
        highest = region.backend.opset[1]
        notes: tuple[str, ...] = ()
        try:
            model = lower(region.source, highest).model
        except DovetailError as error:
            model = region.source
            notes = (f"PPL reads opset {highest} at the highest, and {MODEL} has opset {model.opset}: {error.message}",)
        document = {"quant_info": quant_info(region), "op_info": op_info(model, region.backend.name)}
        for node in model.nodes():
            node.meta.clear()  # what was decided here means nothing to PPL
        model.save(folder / MODEL)
        (folder / CONFIGURATION).write_text(json.dumps(document, indent=4) + "\n")
        return Artifact(tuple(sorted(path.name for path in folder.iterdir())), notes=notes)
