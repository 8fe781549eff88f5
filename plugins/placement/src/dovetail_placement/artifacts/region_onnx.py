"""The emitter `region-onnx`: each region as an ONNX file in an opset that the backend's tools read, with a manifest."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dovetail.planning import get_placement, operator_name, origin_of, quantized_values_document
from dovetail.plugin import Artifact, Emitter, EngineError
from dovetail_transforms.lowering import NotLowered, lower

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.planning import BorderValue
    from dovetail.plugin import EmittedRegion


MODEL, MANIFEST = "region.onnx", "manifest.json"


class RegionOnnx(Emitter):
    """Writes `region.onnx`, the region as its engines load it, and `manifest.json`, which describes it.

    Nodes compute in the formats of the plan: casts, QuantizeLinear and DequantizeLinear are nodes of the region, as
    `border:` of the backend's file says, and weights are stored in the types in which they are read. The file is in the
    highest opset that the backend's file names, or in that of the model if it is older.
    """

    def emit(self, region: EmittedRegion, folder: Path) -> Artifact:
        """Write the files.

        Raises:
            EngineError: A node cannot be expressed in that opset.
        """
        highest = region.backend.opset[1]
        model = region.model.clone()
        formats = {node.name: _format(node) for node in model.graph}
        if model.opset > highest:
            try:
                model = lower(model, highest).model
            except NotLowered as error:
                why = f"{region.backend.name} reads opset {highest}: {error.message}"
                raise EngineError(why, error.hint, error.node) from error
        document = _manifest(region, model, formats)
        for node in model.nodes():
            node.meta.clear()  # other tools do not read placements
        model.save(folder / MODEL)
        (folder / MANIFEST).write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        return Artifact(tuple(sorted(path.name for path in folder.iterdir())))


def _manifest(region: EmittedRegion, model: Model, formats: dict[str | None, str]) -> dict[str, Any]:
    """Return the description of a region.

    Args:
        region: The region.
        model: The model that is written.
        formats: The format in which each node computes, before nodes were lowered.
    """
    return {
        "backend": region.backend.name,
        "options": dict(region.backend.chosen),
        "region": region.name,
        "model": MODEL,
        "opset": model.opset,
        "ir_version": model.ir.ir_version,
        "inputs": _values(model.graph.inputs, region.inputs),
        "outputs": _values(model.graph.outputs, region.outputs),
        "nodes": [
            {
                "name": node.name,
                "operator": operator_name(node.domain, node.op_type),
                "source": list(origin_of(node)),
                "format": formats.get(node.name, ""),
            }
            for node in model.graph
        ],
        "quantized_values": quantized_values_document(region.quantized_values),
    }


def _values(values: Iterable[ir.Value], borders: Iterable[BorderValue]) -> list[dict[str, Any]]:
    """Return names, element types, shapes, and the values of the source; an open extent is its name, or null."""
    return [
        {
            "name": value.name,
            "type": str(value.dtype).lower() if value.dtype is not None else "",
            "shape": None
            if value.shape is None
            else [extent if isinstance(extent, int) else extent.value for extent in value.shape],
            "source": border.source,
            **_scale(border),
        }
        for value, border in zip(values, borders, strict=True)
    ]


def _scale(border: BorderValue) -> dict[str, Any]:
    """Return format, scale and zero point of a quantized value; nothing for any other."""
    if border.parameters is None:
        return {}
    scale, zero_point = border.parameters
    return {"format": str(border.format), "scale": list(scale), "zero_point": list(zero_point)}


def _format(node: ir.Node) -> str:
    placement = get_placement(node)
    return str(placement.precision) if placement is not None and placement.precision is not None else ""
