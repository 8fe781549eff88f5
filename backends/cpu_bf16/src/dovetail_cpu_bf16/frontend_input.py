"""Rewrite region models so that OpenVINO's ONNX frontend reads them correctly."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.plugin import RegionModel
from dovetail_runtime.serialise import needs_file

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model


# Types that the frontend misreads outside `raw_data`: it takes the bits of bfloat16 for integers, and each uint32
# element, which the proto holds in 64 bits, for two.
_MISREAD = frozenset({"BFLOAT16", "UINT32"})
# Attributes whose default in the frontend is not that of ONNX (`tools/check_defaults.py`): leaving them out changes the
# result.
_OTHER_DEFAULTS = {"RoiAlign": "sampling_ratio"}


def prepare_for_frontend(region: RegionModel) -> tuple[RegionModel, tempfile.TemporaryDirectory | None]:
    """Return a region that the frontend reads correctly, and the folder of its file if it needs a new one.

    Local functions are inlined, misread constants are stored as bytes, and misread defaults are written out.

    Returns the region itself, and no folder, if there is nothing to change.
    """
    functions = region.path is None and bool(region.model.ir.functions)
    constants = next(_misread(region.model), None) is not None
    if not functions and not constants and next(_left_out(region.model), None) is None:
        return region, None
    model = region.model.clone()
    if functions:
        from onnx_ir.passes.common import InlinePass

        InlinePass()(model.ir)
    for holder, tensor in list(_misread(model)):
        _store_as_bytes(holder, tensor)
    for node, default in list(_left_out(model)):
        node.attributes.add(default)
    model.touch()
    if region.path is None or not needs_file(model):
        return RegionModel(model), None
    folder = tempfile.TemporaryDirectory(prefix="dovetail-openvino-")
    path = Path(folder.name, "model.onnx")
    model.save(path, external=True)
    return RegionModel(model, path), folder


def _misread(model: Model) -> Iterator[tuple[ir.Value | ir.Node, ir.TensorProtocol]]:
    """Yield the constants that would be misread, each with the value or the node that holds it."""
    for _, graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None and _is_misread(tensor):
                yield value, tensor
        for node in graph:
            for attribute in node.attributes.values():
                if not attribute.is_ref() and attribute.type.name == "TENSOR" and _is_misread(attribute.value):
                    yield node, attribute.value


def _left_out(model: Model) -> Iterator[tuple[ir.Node, ir.Attr]]:
    """Yield the nodes without an attribute whose default would be misread, with that attribute."""
    import onnx
    import onnx_ir as ir

    for node in model.nodes():
        name = _OTHER_DEFAULTS.get(node.op_type)
        if name is not None and not node.domain and name not in node.attributes:
            schema = onnx.defs.get_schema(node.op_type, model.opset, "")
            yield node, ir.serde.deserialize_attribute(schema.attributes[name].default_value)


def _is_misread(tensor: ir.TensorProtocol | None) -> bool:
    import onnx_ir as ir

    if not isinstance(tensor, ir.serde.TensorProtoTensor) or tensor.dtype.name not in _MISREAD:
        return False
    return not tensor.raw.HasField("raw_data")


def _store_as_bytes(holder: ir.Value | ir.Node, tensor: ir.TensorProtocol) -> None:
    import onnx_ir as ir

    made = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)
    if isinstance(holder, ir.Value):
        holder.const_value = made
        return
    for name, attribute in list(holder.attributes.items()):
        if attribute.type.name == "TENSOR" and attribute.value is tensor:
            holder.attributes[name] = ir.AttrTensor(name, made)
