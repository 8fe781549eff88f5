"""Walk all tensors of a proto, and drop or zero-fill their data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError

from dovetail_onnx.limits import SPARSE_BYTES
from dovetail_onnx.tensor_data import form_problem, is_empty, known_type, size_in_bytes

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


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
    """Return zeros, which take no memory, for a tensor that is declared without data."""
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
