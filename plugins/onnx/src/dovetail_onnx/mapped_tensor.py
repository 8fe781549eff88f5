"""Tensors over the mapped bytes of a file, read in chunks that do not stay in memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Sequence


_CHUNK = 1 << 22  # bytes


class MappedTensor(ir.Tensor):
    """A tensor whose elements are bytes of a mapped file, without a copy.

    Args:
        mapped: The mapped file.
        dtype: The type of the elements, of whole bytes.
        shape: The extents.
        offset: Where in the file the elements begin, in bytes.
        name: The tensor's name.
    """

    def __init__(self, mapped: mmap.mmap, dtype: ir.DataType, shape: Sequence[int], offset: int, name: str):
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(mapped, dtype.numpy(), count, offset).reshape(tuple(shape))
        super().__init__(array, dtype, shape=ir.Shape(shape), name=name)
        self._mapped, self._offset = mapped, offset

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes, little-endian, in chunks of a few MiB."""
        return mapped_chunks(self._mapped, self._offset, self.nbytes)


def mapped_chunks(mapped: mmap.mmap, first: int, count: int) -> Iterator[bytes]:
    """Yield bytes of a mapped file in chunks of a few MiB; the pages of each are given back to the system behind it."""
    end = first + count
    for start in range(first, end, _CHUNK):
        stop = min(start + _CHUNK, end)
        yield mapped[start:stop]
        if hasattr(mmap, "MADV_DONTNEED"):
            begin = start - start % mmap.PAGESIZE
            mapped.madvise(mmap.MADV_DONTNEED, begin, stop - begin)
