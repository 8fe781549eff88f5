"""Tensors of which parts can be computed alone, so that a large weight is never in memory as a whole."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import onnx_ir as ir

if TYPE_CHECKING:
    import numpy as np

TensorIndex = tuple[slice, ...]
"""A slice for each of the first axes."""


class PartialTensor(ir.LazyTensor, ABC):
    """A lazy tensor of which parts can be computed alone."""

    @abstractmethod
    def parts(self) -> Callable[[TensorIndex], np.ndarray]:
        """Return a function that computes the part at an index.

        What all parts need is kept as long as the function is.
        """

    @property
    def lost(self) -> str:
        """What computing the numbers lost when they were last read, as text; empty if nothing."""
        return ""


class StreamedTensor(ir.LazyTensor, ABC):
    """A lazy tensor whose bytes are computed in order, chunk by chunk, while they are written."""

    @abstractmethod
    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes in order, little-endian."""


def losses_of(tensor: ir.TensorProtocol) -> str:
    """Return what converting a tensor lost when it was last read, as text; empty for most."""
    return tensor.lost if isinstance(tensor, PartialTensor) else ""


def parts_of(tensor: ir.TensorProtocol) -> Callable[[TensorIndex], np.ndarray]:
    """Return a function that gives parts of a tensor.

    It computes each part alone if the tensor can; otherwise the whole tensor is in memory, or mapped, as long as the
    function is kept.
    """
    if isinstance(tensor, PartialTensor):
        return tensor.parts()
    array = tensor.numpy()
    return lambda index: array[index]


_AT_ONCE = 1 << 20  # numbers


def slabs_of(tensor: ir.TensorProtocol) -> Iterator[np.ndarray]:
    """Yield the numbers of a tensor in slabs along its first axis; a tensor without axes is one slab."""
    extents = tensor.shape.numpy()
    if not extents or math.prod(extents) <= _AT_ONCE:
        yield tensor.numpy()
        return
    read, step = parts_of(tensor), max(1, _AT_ONCE * extents[0] // math.prod(extents))
    for start in range(0, extents[0], step):
        yield read((slice(start, start + step),))
