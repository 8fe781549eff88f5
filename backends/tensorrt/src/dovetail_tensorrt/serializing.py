"""Serialization of a region for the parser: bytes, or a file with external weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dovetail_onnx import save_model, to_proto

if TYPE_CHECKING:
    from dovetail.ir import Model


_LARGEST_IN_MEMORY = 1 << 24  # bytes of weights


def parse_source(model: Model, folder: Path) -> bytes | Path:
    """Serialize a model; with more than 16 MiB of weights, stream it to a file in `folder`."""
    import onnx_ir as ir

    size = 0
    for _, graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                size = _LARGEST_IN_MEMORY + 1
            elif tensor is not None and tensor.dtype is not ir.DataType.STRING:
                size += tensor.nbytes
    if size <= _LARGEST_IN_MEMORY:
        return to_proto(model.ir).SerializeToString()
    path = folder / "region.onnx"
    save_model(model, path, external=True)
    return path
