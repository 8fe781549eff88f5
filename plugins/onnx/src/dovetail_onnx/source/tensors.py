"""Tensors of a proto: iteration, checks of their data, and dropping or zero-filling it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, cast

from dovetail.errors import DovetailError

from dovetail_onnx.wire import SPARSE_BYTES

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


_LARGEST = 1 << 62
"""Bytes; larger sizes are invalid and would overflow 64-bit integers in the libraries used."""


class ElementType(NamedTuple):
    """Storage of the elements of one type."""

    name: str
    bits: int  # 0 for strings
    field: str  # of TensorProto, if the data is not raw
    per_entry: float  # elements per entry of that field


@cache
def element_type(number: int) -> ElementType | None:
    """Return how elements of the ONNX type `number` are stored; None if there is no such type."""
    import onnx
    import onnx_ir as ir

    try:
        kind = ir.DataType(number)
        field = onnx.helper.tensor_dtype_to_field(number)
    except (ValueError, KeyError):
        return None
    if kind.name in ("UNDEFINED", "STRING"):
        return ElementType("string", 0, field, 1) if kind.name == "STRING" else None
    if kind.name in ("COMPLEX64", "COMPLEX128"):
        return ElementType(kind.name.lower(), kind.bitwidth, field, 0.5)
    return ElementType(kind.name.lower(), kind.bitwidth, field, 8 // kind.bitwidth if kind.bitwidth < 8 else 1)


def known_type(number: int) -> ElementType:
    """Return how elements of the valid ONNX type `number` are stored."""
    return cast("ElementType", element_type(number))


def size_in_bytes(tensor: onnx.TensorProto) -> int:
    """Return the bytes that type and dims of a valid numeric tensor need; types below a byte are packed."""
    return (math.prod(tensor.dims) * known_type(tensor.data_type).bits + 7) // 8


def is_empty(tensor: onnx.TensorProto) -> bool:
    """Check whether a tensor with elements has no data, neither inline nor external."""
    return not tensor.external_data and bool(math.prod(tensor.dims)) and not data_fields(tensor)


def data_fields(tensor: onnx.TensorProto) -> list[str]:
    """Return the names of the fields that hold data."""
    return [field.name for field, _ in tensor.ListFields() if field.name in _FIELDS]


def form_problem(tensor: onnx.TensorProto) -> str:
    """Return the problem with type and dims of `tensor`; empty if there is none."""
    kind = element_type(tensor.data_type)
    if kind is None:
        return f"has an element type that ONNX does not know ({tensor.data_type})"
    dims = tensor.dims
    if dims and min(dims) < 0:
        return f"has a negative extent ({list(dims)})"
    # An extent of zero must not hide others whose product overflows.
    if dims and math.prod(max(dim, 1) for dim in dims) * (kind.bits or 8) > _LARGEST:
        return f"has impossible extents ({list(dims)})"
    if tensor.HasField("segment"):
        return "is a segment of a larger tensor, which is not supported"
    return ""


def data_problem(tensor: onnx.TensorProto, raw_bytes: int | None = None) -> str:
    """Return the problem with a tensor that has inline data; empty if there is none.

    Args:
        tensor: The tensor.
        raw_bytes: The length of its `raw_data` if that was left on disk.
    """
    if problem := form_problem(tensor):
        return problem
    kind = known_type(tensor.data_type)
    fields = data_fields(tensor)
    if raw_bytes is not None:
        fields.append("raw_data")
    elements = math.prod(tensor.dims)
    if not fields:
        return f"holds no data for its extents {list(tensor.dims)}" if elements else ""
    if len(fields) > 1:
        return f"holds its data twice ({', '.join(fields)})"
    if fields[0] == "raw_data":
        if kind.name == "string":
            return "holds strings as raw data"
        have = len(tensor.raw_data) if raw_bytes is None else raw_bytes
        if have != size_in_bytes(tensor):
            need = f"{list(tensor.dims)} {kind.name} needs {size_in_bytes(tensor)}"
            return f"holds {have} bytes, but {need}"
        return ""
    if fields[0] != kind.field:
        return f"holds {fields[0]}, which is not where {kind.name} is kept ({kind.field})"
    entries, needed = len(getattr(tensor, kind.field)), math.ceil(elements / kind.per_entry)
    if entries != needed:
        return f"holds {entries} entries of {kind.field}, but {list(tensor.dims)} {kind.name} needs {needed}"
    return ""


_FIELDS = frozenset({
    "raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data",
})  # fmt: skip


_KEPT_UP_TO = 1024  # bytes


def all_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield initializers and tensors in attributes of the graph, all bodies, functions and training information."""
    graphs = [proto.graph]
    for info in proto.training_info:
        graphs += [info.initialization, info.algorithm]
    attributes: list[Iterable[onnx.AttributeProto]] = []
    for function in proto.functions:
        attributes.append(function.attribute_proto)
        attributes += [node.attribute for node in function.node]
    while graphs or attributes:
        if not attributes:
            graph = graphs.pop()
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
            attributes += [node.attribute for node in graph.node]
            continue
        for attribute in attributes.pop():
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("g"):
                graphs.append(attribute.g)
            yield from attribute.tensors
            graphs += attribute.graphs


def drop_data(proto: onnx.ModelProto) -> None:
    """Drop the data of every tensor above a kilobyte and of every stub; name, dims and type stay."""
    for tensor in all_tensors(proto):
        if tensor.external_data or tensor.ByteSize() > _KEPT_UP_TO:
            declared = type(tensor)(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            tensor.CopyFrom(declared)


def zeros(tensor: onnx.TensorProto) -> ir.TensorProtocol:
    """Return zeros without allocated memory for a tensor that is declared without data."""
    import numpy as np
    import onnx_ir as ir

    dtype = ir.DataType(tensor.data_type)
    if dtype.bitwidth < 8:
        packed = np.broadcast_to(np.zeros((), np.uint8), (size_in_bytes(tensor),))
        return ir.PackedTensor(packed, dtype, shape=ir.Shape(tensor.dims), name=tensor.name)
    return ir.Tensor(np.broadcast_to(np.zeros((), dtype.numpy()), tuple(tensor.dims)), dtype, name=tensor.name)


def fill_with_zeros(proto: onnx.ModelProto, name: str) -> dict[str, ir.TensorProtocol]:
    """Fill every tensor that is declared without data with zeros, or empty strings.

    Returns:
        The zeros of the main graph's initializers, by name; all other tensors are filled in place.

    Raises:
        DovetailError: A tensor has invalid type or dims, or those filled in place are too large together.
    """
    import onnx

    initializers = {id(tensor): tensor for tensor in proto.graph.initializer}
    weights, size = {}, 0
    for tensor in all_tensors(proto):
        if not is_empty(tensor):
            continue
        if problem := form_problem(tensor):
            raise DovetailError(f"{name}: tensor '{tensor.name}' {problem}", "write the reproducer again")
        if tensor.data_type == onnx.TensorProto.STRING:
            size += math.prod(tensor.dims)
        elif id(tensor) in initializers:
            weights[tensor.name] = zeros(tensor)
            continue
        else:
            size += size_in_bytes(tensor)
        if size > SPARSE_BYTES:
            raise DovetailError(f"{name}: more than {SPARSE_BYTES >> 20} MiB are declared in attributes and bodies")
        if known_type(tensor.data_type).bits:
            tensor.raw_data = bytes(size_in_bytes(tensor))
        else:
            tensor.string_data.extend([b""] * math.prod(tensor.dims))
    return weights
