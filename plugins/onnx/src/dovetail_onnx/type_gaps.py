"""Gaps of onnx-ir: map types are metadata of outputs, sparse tensors become dense, long attributes stay compact."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from dovetail.ir import all_nodes, bodies
from google.protobuf.message import Message

from dovetail_onnx.source.tensors import form_problem, known_type, size_in_bytes
from dovetail_onnx.wire import SPARSE_BYTES, tag, varint

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
    plain = _without_long_lists(proto)
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


def _without_long_lists(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without the long lists of the main graph, which are never copied."""
    plain = type(proto)()
    for field, value in proto.ListFields():
        if field.name != "graph":
            _copy_field(plain, field.name, value)
    for field, value in proto.graph.ListFields():
        if field.name != "node":
            _copy_field(plain.graph, field.name, value)
    for node in proto.graph.node:
        made = plain.graph.node.add()
        if not any(map(_is_long, node.attribute)):
            made.CopyFrom(node)
            continue
        for field, value in node.ListFields():
            kept = value if field.name != "attribute" else [one for one in value if not _is_long(one)]
            _copy_field(made, field.name, kept)
    return plain


def _copy_field(target: Message, name: str, value: Any) -> None:
    """Copy the value of a field, whatever its kind, to another message of the same type."""
    held = getattr(target, name)
    if isinstance(held, Message):
        held.CopyFrom(value)
    elif isinstance(held, (str, bytes, int, float)):
        setattr(target, name, value)
    else:
        held.extend(value)


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
    Each keeps its encoded form, because a model is written several times in a compilation.
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


class _Encoded:
    """A long list with its encoded attribute; while that is written, iterating over the list yields nothing."""

    encoded: bytes

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the items, unless the encoded attribute is being written."""
        return iter(()) if _WRITTEN_ENCODED.get() else super().__iter__()  # type: ignore[misc]


class _Numbers(_Encoded, array):
    """A long list of integers or floats."""


class _Texts(_Encoded, list[str]):
    """A long list of texts; a list, because there are no weak references to tuples."""

    def __repr__(self) -> str:
        """Write it as onnx-ir's tuples are written: keys of nodes depend on that."""
        return repr(tuple(self))


_WRITTEN_ENCODED: ContextVar[bool] = ContextVar("written_encoded", default=False)


_ALIVE: WeakValueDictionary[bytes, _Numbers | _Texts] = WeakValueDictionary()
"""Long lists by their encoded form: the graphs that are built of one model share them."""


def _compact(attribute: onnx.AttributeProto) -> _Encoded:
    content = type(attribute)()
    content.CopyFrom(attribute)
    content.ClearField("name")
    content.ClearField("doc_string")
    encoded = content.SerializeToString()
    made = _ALIVE.get(encoded)
    if made is None:
        made = _decoded(attribute)
        made.encoded = encoded
        _ALIVE[encoded] = made
    return made


def _decoded(attribute: onnx.AttributeProto) -> _Numbers | _Texts:
    if attribute.type == _STRINGS:
        written = attribute.strings[:]
        texts = {raw: raw.decode("utf-8") for raw in set(written)}
        return _Texts(map(texts.__getitem__, written))
    # protobuf gives NumPy a whole list at once, and anything else number by number.
    import numpy as np

    kind = np.int64 if attribute.type == _INTS else np.float32
    made = _Numbers("q" if attribute.type == _INTS else "f")
    made.frombytes(np.array(attribute.ints if attribute.type == _INTS else attribute.floats, kind).tobytes())
    return made


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Return the proto of `model`, with map types restored."""
    proto, encoded = _written(model)
    for index, lists in encoded.items():
        for at, value in lists:
            proto.graph.node[index].attribute[at].MergeFromString(value.encoded)
    return proto


def to_bytes(model: ir.Model) -> bytes:
    """Return the serialized proto of `model` for a reader that merges the parts of a message, as protobuf's does.

    Long lists are copied in their encoded form: the nodes from the first one that has any follow the rest of the graph.
    """
    proto, encoded = _written(model)
    first = min(encoded, default=len(proto.graph.node))
    pieces: list[bytes] = []
    for index, node in enumerate(proto.graph.node[first:], first):
        parts = []
        lists = encoded.get(index, [])
        for at, value in lists:
            head = node.attribute[at].SerializeToString()
            parts += [tag(_NODE_ATTRIBUTE), varint(len(head) + len(value.encoded)), head, value.encoded]
        for at, _ in reversed(lists):
            del node.attribute[at]
        parts.append(node.SerializeToString())
        pieces += [tag(_GRAPH_NODE), varint(sum(map(len, parts))), *parts]
    del proto.graph.node[first:]
    if not pieces:
        return proto.SerializeToString()
    return b"".join([proto.SerializeToString(), tag(_MODEL_GRAPH), varint(sum(map(len, pieces))), *pieces])


_MODEL_GRAPH, _GRAPH_NODE, _NODE_ATTRIBUTE = 7, 1, 5  # numbers of fields, in `onnx.proto`


def _written(model: ir.Model) -> tuple[onnx.ModelProto, dict[int, list[tuple[int, _Encoded]]]]:
    """Serialize a model without long lists of the main graph, which are returned by node, with their positions.

    Where bodies have such lists, too, all lists are in the proto, item by item.
    """
    import onnx_ir as ir

    encoded = {index: lists for index, node in enumerate(model.graph) if (lists := _encoded_lists(node))}
    inner = (node for body in _inner_graphs(model) for node in all_nodes(body)) if encoded else ()
    if any(map(_encoded_lists, inner)):
        encoded = {}
    token = _WRITTEN_ENCODED.set(bool(encoded))
    try:
        proto = ir.to_proto(model)
    finally:
        _WRITTEN_ENCODED.reset(token)
    for value, output in zip(model.graph.outputs, proto.graph.output):
        if value is not None and _TYPE in value.meta and not output.HasField("type"):
            output.type.CopyFrom(value.meta[_TYPE])
    return proto, encoded


def write_node(target: onnx.NodeProto, node: ir.Node) -> None:
    """Serialize one node; its long lists are copied in their encoded form."""
    from onnx_ir.serde import serialize_node_into

    encoded = _encoded_lists(node) if not bodies(node) else []
    if not encoded:
        serialize_node_into(target, node)
        return
    token = _WRITTEN_ENCODED.set(True)
    try:
        serialize_node_into(target, node)
    finally:
        _WRITTEN_ENCODED.reset(token)
    for at, value in encoded:
        target.attribute[at].MergeFromString(value.encoded)


def _encoded_lists(node: ir.Node) -> list[tuple[int, _Encoded]]:
    """Return the long lists among the attributes of a node, with their positions."""
    if not node.attributes.data:  # the wrapped dict: this runs for every node, and the wrapper is slow
        return []
    return [
        (at, attribute.value)
        for at, attribute in enumerate(node.attributes.data.values())
        if isinstance(attribute.value, _Encoded)
    ]


def _inner_graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """Yield the bodies of control flow in the main graph, and those of functions."""
    for node in model.graph:
        yield from bodies(node)
    for function in model.functions.values():
        yield function.graph


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
