"""Region models as bytes or as files, whichever an engine's reader can take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dovetail_onnx.map_types import to_proto

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.plugin import RegionModel

__all__ = ["needs_file", "source_of"]

LARGEST_IN_MEMORY = 1 << 30
"""Bytes of weights up to which a model is handed over in memory; protobuf ends at two gigabytes."""


def needs_file(model: Model) -> bool:
    """Whether a model must be handed over as a file: its weights lie in files of their own, or are too large."""
    import onnx_ir as ir

    size = 0
    for _, graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                return True
            if tensor is not None and tensor.dtype is not ir.DataType.STRING:
                size += tensor.nbytes
    return size > LARGEST_IN_MEMORY


def source_of(region: RegionModel) -> Path | bytes:
    """The file of a region where there is one, its serialised form otherwise."""
    return region.path if region.path is not None else to_proto(region.model.ir).SerializeToString()
