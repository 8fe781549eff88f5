"""Rewriting of region models that OpenVINO's ONNX frontend would misread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from dovetail.plugin import RegionModel, TemporaryFolder, is_onnx
from dovetail_runtime import needs_file

if TYPE_CHECKING:
    import onnx_ir as ir
    import openvino as ov
    from dovetail.ir import Model


# Types that the frontend misreads outside `raw_data`: it interprets the bits of bfloat16 as integers, and each uint32
# element, which the proto stores in 64 bits, as two.
_MISREAD = frozenset({"BFLOAT16", "UINT32"})
# Attributes whose default in the frontend differs from ONNX (`tools/check_defaults.py`): omitting them changes the
# result.
_OTHER_DEFAULTS = {"RoiAlign": "sampling_ratio"}


def prepare_for_frontend(region: RegionModel) -> tuple[RegionModel, TemporaryFolder | None]:
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
    folder = TemporaryFolder("openvino")
    path = folder.path / "model.onnx"
    model.save(path, external=True)
    return RegionModel(model, path), folder


def _misread(model: Model) -> Iterator[tuple[ir.Value | ir.Node, ir.TensorProtocol]]:
    """Yield the constants that would be misread, each with the value or node that holds it."""
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
    """Yield nodes that omit an attribute whose default would be misread, with that attribute."""
    import onnx
    import onnx_ir as ir

    for node in model.nodes():
        name = _OTHER_DEFAULTS.get(node.op_type)
        if name is not None and is_onnx(node) and name not in node.attributes:
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


def exact_scalars(model: Model) -> dict[str, dict[int, float]]:
    """Return the float attributes of all nodes, by node and by the upper 16 bits that bfloat16 keeps.

    OpenVINO truncates the lower bits: the slope 1/6 of a HardSigmoid becomes 0.16602, an error in every element.
    Numbers of one node with equal upper bits are omitted. A node has an entry for its name and one for each of its
    results, since OpenVINO names operations after either.
    """
    import numpy as np

    found: dict[str, dict[int, float]] = {}
    ambiguous: set[tuple[str, int]] = set()
    for node in model.nodes():
        names = {name for name in (node.name, *(output.name for output in node.outputs)) if name}
        for number in _numbers(node, model.ir.opset_imports):
            for exact in (np.float32(number), -np.float32(number)):  # the frontend negates the bound of a Shrink
                bits = int(exact.view(np.uint32)) >> 16
                for name in names:
                    if found.setdefault(name, {}).setdefault(bits, float(exact)) != float(exact):
                        ambiguous.add((name, bits))
    for name, bits in ambiguous:
        del found[name][bits]
    return found


def scalar_of(constant: ov.Node, scalars: Mapping[str, Mapping[int, float]]) -> float | None:
    """Return the exact attribute value from which `constant` was created, or None.

    The frontend names neither the constant nor operations computed from it, up to the operation that yields the node's
    result, where the search ends.
    """
    import numpy as np

    bits = int(constant.data.view(np.uint16).reshape(-1)[0])
    waiting, seen = [constant], {constant.get_name()}
    while waiting:
        for output in waiting.pop().outputs():
            for reader in (port.get_node() for port in output.get_target_inputs()):
                numbers = _numbers_of(reader.get_friendly_name(), scalars)
                if numbers is not None:
                    return numbers.get(bits)
                if reader.get_name() not in seen:
                    seen.add(reader.get_name())
                    waiting.append(reader)
    return None


def _numbers_of(name: str, scalars: Mapping[str, Mapping[int, float]]) -> Mapping[int, float] | None:
    """Return the numbers of the node that an operation is named after, with or without a suffix."""
    while name not in scalars and "/" in name:
        name = name.rpartition("/")[0]
    return scalars.get(name)


def _numbers(node: ir.Node, opsets: dict[str, int]) -> Iterator[float]:
    import onnx_ir as ir

    defaults = _defaults(node.op_type, node.domain, opsets.get(node.domain, 1))
    yield from (number for name, number in defaults if name not in node.attributes)
    for attribute in node.attributes.values():
        if not attribute.is_ref() and attribute.type is ir.AttributeType.FLOAT:
            yield attribute.as_float()


@cache
def _defaults(operator: str, domain: str, opset: int) -> tuple[tuple[str, float], ...]:
    import onnx

    try:
        schema = onnx.defs.get_schema(operator, opset, domain)
    except onnx.defs.SchemaError:
        return ()
    floats = onnx.AttributeProto.FLOAT
    defaults = ((name, attribute.default_value) for name, attribute in schema.attributes.items())
    return tuple((name, value.f) for name, value in defaults if value.type == floats)


def remove_idle_strides(operations: list[ov.Node]) -> None:
    """Replace the convolutions among `operations` that have one channel, a stride and one position in the last axis."""
    for node in operations:
        if node.get_type_name() != "Convolution" or node.get_attributes()["strides"][-1] == 1:
            continue
        data, filters = node.input(0).get_partial_shape(), node.input(1).get_partial_shape()
        if data.rank.is_dynamic or data.rank.get_length() < 4 or filters.is_dynamic or filters.to_shape()[1] != 1:
            continue
        positions = node.output(0).get_partial_shape()[data.rank.get_length() - 1]
        if positions.is_static and positions.get_length() > 1:
            continue
        if not _remove_stride(node):
            _add_channel(node)


def _remove_stride(node: ov.Node) -> bool:
    """Set the last stride of `node` to 1, and trim padding and data to the window.

    Returns:
        Whether that was possible: extents must be known, and the window must read data.
    """
    import numpy as np
    from openvino import opset13

    attributes, shape = node.get_attributes(), list(node.input(0).get_partial_shape())
    padded_by_extent = attributes["auto_pad"].startswith("same")
    if any(extent.is_dynamic for extent in (shape[2:] if padded_by_extent else shape[-1:])):
        return False
    begins, ends = list(attributes["pads_begin"]), list(attributes["pads_end"])
    window = (node.input(1).get_shape()[-1] - 1) * attributes["dilations"][-1] + 1
    extent, read = shape[-1].get_length(), window - begins[-1]
    if read < 1:
        return False
    data = node.input_value(0)
    if read < extent:
        bounds = (np.array([number], np.int64) for number in (0, read, 1, -1))
        data = opset13.slice(data, *(opset13.constant(bound) for bound in bounds)).output(0)
    ends[-1] = max(read - extent, 0)
    _replace(node, data, node.input_value(1), [*attributes["strides"][:-1], 1], begins, ends, "explicit")
    return True


def _add_channel(node: ov.Node) -> None:
    """Give `node` a second channel of zeros, because its last extent is unknown, and may leave one position."""
    import numpy as np
    from openvino import opset13

    rank = node.input(0).get_partial_shape().rank.get_length()
    zero = opset13.convert_like(opset13.constant(np.float32(0)), node.input_value(0))
    none, one = (opset13.constant(np.array([0, extra, *[0] * (rank - 2)], np.int64)) for extra in (0, 1))
    data, filters = (opset13.pad(node.input_value(i), none, one, "constant", zero).output(0) for i in (0, 1))
    was = node.get_attributes()
    _replace(node, data, filters, was["strides"], was["pads_begin"], was["pads_end"], was["auto_pad"])


def _replace(
    node: ov.Node, data: ov.Output, filters: ov.Output, strides: list, begins: list, ends: list, kind: str
) -> None:
    from openvino import opset13

    dilations = node.get_attributes()["dilations"]
    made = opset13.convolution(data, filters, strides, begins, ends, dilations, kind)
    made.set_friendly_name(node.get_friendly_name())
    made.output(0).set_names(node.output(0).get_names())
    node.output(0).replace(made.output(0))
