"""What onnx-ir lacks: map types are metadata of outputs, sparse tensors become dense, long attributes stay compact."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from dovetail_onnx.source.tensors import form_problem, known_type, size_in_bytes
from dovetail_onnx.wire import SPARSE_BYTES

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import onnx_ir as ir

    from dovetail_onnx.external import TensorLoader


_TYPE = "dovetail.map_type"


def from_proto(proto: onnx.ModelProto) -> ir.Model:
    """Return the onnx-ir model of `proto`; outputs of map types are untyped there, with their type in `meta`."""
    import onnx_ir as ir

    held = [(index, output) for index, output in enumerate(proto.graph.output) if _holds_map(output.type)]
    infos = [info for info in proto.graph.value_info if _holds_map(info.type)]
    long = [index for index, node in enumerate(proto.graph.node) if any(map(_is_long, node.attribute))]
    if not held and not infos and not long:
        return ir.from_proto(proto)
    plain = type(proto)()
    plain.CopyFrom(proto)
    for index in long:
        attributes = plain.graph.node[index].attribute
        for at in reversed([at for at, attribute in enumerate(attributes) if _is_long(attribute)]):
            del attributes[at]
    for index, _ in held:
        plain.graph.output[index].ClearField("type")
    for info in [info for info in plain.graph.value_info if _holds_map(info.type)]:
        plain.graph.value_info.remove(info)
    model = ir.from_proto(plain)
    for index, output in held:
        model.graph.outputs[index].meta[_TYPE] = output.type
    nodes = list(model.graph) if long else []
    for index in long:
        _complete(nodes[index], proto.graph.node[index])
    return model


_LONG = 1024  # numbers or texts
_FLOATS, _INTS, _STRINGS = 6, 7, 8  # onnx.AttributeProto.AttributeType


def _is_long(attribute: onnx.AttributeProto) -> bool:
    """Check whether an attribute is a long list, such as those of a tree ensemble."""
    if attribute.type not in (_FLOATS, _INTS, _STRINGS):
        return False
    return max(len(attribute.ints), len(attribute.floats), len(attribute.strings)) > _LONG


def _complete(node: ir.Node, source: onnx.NodeProto) -> None:
    """Give a node its long attributes, in the order of the source.

    onnx-ir would hold, and check, an object for each number. Here numbers are arrays, and equal texts are one object.
    """
    import onnx_ir as ir

    known = dict(node.attributes)
    node.attributes.clear()
    for attribute in source.attribute:
        made = known.get(attribute.name)
        if made is None:
            kind = ir.AttributeType(attribute.type)
            made = ir.Attr(attribute.name, kind, None, doc_string=attribute.doc_string or None)
            made._value = _compact(attribute)
        node.attributes.add(made)


def _compact(attribute: onnx.AttributeProto) -> Sequence[object]:
    if attribute.type == _INTS:
        return array("q", attribute.ints)
    if attribute.type == _FLOATS:
        return array("f", attribute.floats)
    texts = {raw: raw.decode("utf-8") for raw in set(attribute.strings)}
    return tuple(texts[raw] for raw in attribute.strings)


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Return the proto of `model`, with map types restored."""
    import onnx_ir as ir

    proto = ir.to_proto(model)
    for value, output in zip(model.graph.outputs, proto.graph.output):
        if value is not None and _TYPE in value.meta and not output.HasField("type"):
            output.type.CopyFrom(value.meta[_TYPE])
    return proto


def _holds_map(type_: onnx.TypeProto) -> bool:
    kind = type_.WhichOneof("value")
    while kind in ("sequence_type", "optional_type"):
        type_ = getattr(type_, kind).elem_type
        kind = type_.WhichOneof("value")
    return kind == "map_type"


_SPARSE_TENSOR, _SPARSE_TENSORS, _TENSOR = 11, 12, 4  # onnx.AttributeProto.AttributeType


def densify_initializers(graph: onnx.GraphProto, loader: TensorLoader) -> None:
    """Turn the sparse initializers of `graph` into dense ones of the same names.

    Raises:
        DovetailError: One is malformed, or too large when dense.
    """
    for sparse in graph.sparse_initializer:
        graph.initializer.append(_dense(sparse, f"sparse initializer '{sparse.values.name}'", loader))
    del graph.sparse_initializer[:]


def densify_attributes(attributes: Iterable[onnx.AttributeProto], loader: TensorLoader, label: str) -> None:
    """Turn the sparse value of a constant into a dense one.

    Raises:
        DovetailError: It is malformed, too large when dense, or a list of sparse tensors.
    """
    for attribute in attributes:
        if attribute.type == _SPARSE_TENSORS:
            raise loader.refuse(f"attribute '{attribute.name}' of {label}", "is a list of sparse tensors", _NO_LISTS)
        if attribute.type == _SPARSE_TENSOR and attribute.HasField("sparse_tensor"):
            attribute.t.CopyFrom(_dense(attribute.sparse_tensor, f"attribute '{attribute.name}' of {label}", loader))
            attribute.ClearField("sparse_tensor")
            attribute.type = cast("onnx.AttributeProto.AttributeType", _TENSOR)
            attribute.name = attribute.name.removeprefix("sparse_")


_NO_LISTS = "no ONNX operator takes one; export the model again"


def _dense(sparse: onnx.SparseTensorProto, what: str, loader: TensorLoader) -> onnx.TensorProto:
    import numpy as np
    import onnx

    values, indices = sparse.values, sparse.indices
    loader.check_and_inline(values, f"the values of {what}")
    loader.check_and_inline(indices, f"the indices of {what}")
    dense = onnx.TensorProto(name=values.name, data_type=values.data_type, dims=sparse.dims)
    if problem := form_problem(dense):
        raise loader.refuse(what, problem)
    kind = known_type(values.data_type)
    if kind.bits < 8 or indices.data_type != onnx.TensorProto.INT64:
        raise loader.refuse(what, f"is sparse with values of {kind.name} and indices of type {indices.data_type}")
    if size_in_bytes(dense) > SPARSE_BYTES:
        size = f"is larger than {SPARSE_BYTES >> 20} MiB with its zeros ({list(sparse.dims)} {kind.name})"
        raise loader.refuse(what, size, "store it as a dense initializer")
    content = onnx.numpy_helper.to_array(values).reshape(-1)
    places = _places(onnx.numpy_helper.to_array(indices), list(sparse.dims), len(content))
    if places is None or len(values.dims) != 1:
        raise loader.refuse(what, f"has indices that do not fit {len(content)} values in {list(sparse.dims)}")
    filled = np.zeros(math.prod(sparse.dims), content.dtype)
    filled[places] = content
    dense.raw_data = filled.tobytes()
    return dense


def _places(indices: np.ndarray, dims: list[int], count: int) -> np.ndarray | None:
    """Convert indices in either of ONNX's two forms to flat positions; None if any is out of range."""
    import numpy as np

    if indices.shape == (count,):
        flat = indices
    elif indices.shape == (count, len(dims)):
        if ((indices < 0) | (indices >= np.array(dims))).any():
            return None
        flat = np.ravel_multi_index(tuple(indices.T), dims) if count else np.zeros(0, np.int64)
    else:
        return None
    inside = not count or flat.min() >= 0 and flat.max() < math.prod(dims)
    return flat if inside else None
