"""External data: weights in files beside the model, checked by name before any work begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.skeleton import is_stub, stays_inside, stub

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["resolve_external_data"]


def resolve_external_data(proto: onnx.ModelProto, path: Path) -> dict[str, ir.TensorProtocol]:
    """Check every reference to external data, and turn those of the main graph into stubs.

    Small values that inference may need, and tensors inside bodies and attributes, are read into the proto.

    Returns:
        The tensors of the stubs by name; they map their files when they are first read.

    Raises:
        DovetailError: A data file is missing, too short, or outside the folder of the model.
    """
    weights = {}
    for tensor in proto.graph.initializer:
        if tensor.external_data and not is_stub(tensor):
            external = _checked(tensor, path)
            if stays_inside(external):
                _read_in(tensor, external)
            else:
                weights[tensor.name] = external
                stub(tensor)
    for tensor in _tensors(proto.graph):
        if tensor.external_data and not is_stub(tensor):
            _read_in(tensor, _checked(tensor, path))
    return weights


def _read_in(tensor: onnx.TensorProto, external: ir.ExternalTensor) -> None:
    del tensor.external_data[:]
    tensor.ClearField("data_location")
    tensor.raw_data = external.tobytes()


def _checked(tensor: onnx.TensorProto, path: Path) -> ir.ExternalTensor:
    import onnx_ir as ir

    entries = {entry.key: entry.value for entry in tensor.external_data}
    folder, location = path.resolve().parent, entries.get("location", "")
    where = Path(folder, location)
    subject = f"{path}: the data of initializer '{tensor.name}'"
    if not location or not where.resolve().is_relative_to(folder):
        raise DovetailError(
            f"{subject} lies outside the model's folder ({location or 'no location'})",
            "copy the data beside the model and save it again; a path that leaves the folder is not followed",
        )
    if not where.is_file():
        raise DovetailError(f"{subject} is missing: {where} does not exist", "copy the data file beside the model")
    dtype, shape = ir.DataType(tensor.data_type), ir.Shape(tensor.dims)
    try:
        offset = int(entries["offset"]) if "offset" in entries else None
        length = int(entries["length"]) if "length" in entries else None
    except ValueError:
        raise DovetailError(f"{subject} has an offset or length that is no number", "export the model again") from None
    external = ir.ExternalTensor(location, offset, length, dtype, shape=shape, name=tensor.name, base_dir=folder)
    end, size = (offset or 0) + external.nbytes, where.stat().st_size
    if size < end:
        raise DovetailError(
            f"{subject} is cut short: {where} has {size} bytes, {end} are needed", "copy the data file again"
        )
    return external


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers and tensor attributes of a graph and of its bodies."""
    stack = [graph]
    while stack:
        graph = stack.pop()
        yield from graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
                if attribute.HasField("g"):
                    stack.append(attribute.g)
                stack.extend(attribute.graphs)
