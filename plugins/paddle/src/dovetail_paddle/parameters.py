"""Memory-mapped `.pdiparams` files: consecutive tensors, sorted by name; the names are not in the file."""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dovetail.errors import DovetailError
from dovetail.files import seen
from dovetail.plugin.loading import check_regular

from dovetail_paddle.element_types import BY_NUMBER, element_type
from dovetail_paddle.legacy.reading import tensor_class

if TYPE_CHECKING:
    import onnx_ir as ir


_LONGEST_HEADER = 4096  # bytes of type and extents
_LARGEST = 1 << 62
_WAY_OUT = "copy the .pdiparams that was exported with this program, whole"


@dataclass(frozen=True)
class DeclaredParameter:
    """Declaration of a parameter in the program.

    Attributes:
        dtype: The name of its element type.
        shape: Its extents.
    """

    dtype: str
    shape: tuple[int, ...]


def map_parameters(path: Path, declared: Mapping[str, DeclaredParameter]) -> dict[str, ir.TensorProtocol]:
    """Return the tensors of a parameter file by name, as arrays over its mapped bytes.

    Args:
        path: The file.
        declared: The parameters of the program.

    Raises:
        DovetailError: The file is missing, truncated, or does not match the program's declarations; names the tensor.
    """
    if not declared:
        return {}
    if not seen(path).exists():
        problem = f"{path} does not exist, and the program needs it for {len(declared)} parameters"
        raise DovetailError(problem, "copy the .pdiparams beside the program")
    check_regular(path)
    try:
        with seen(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise DovetailError(f"{path} cannot be read: {error.strerror or error}", "check the file") from error
    reader = _Reader(path, mapped, size)
    found = {name: reader.tensor(name, declared[name]) for name in sorted(declared)}
    if reader.at < size:
        problem = f"{path}: {size - reader.at} bytes follow the last of the program's {len(declared)} parameters"
        raise DovetailError(problem, _WAY_OUT)
    return found


class _Reader:
    """Sequential reader of tensors.

    Attributes:
        at: The position in bytes.
    """

    def __init__(self, path: Path, mapped: mmap.mmap | bytes, size: int):
        self.path = path
        self.at = 0
        self._mapped = mapped
        self._size = size

    def tensor(self, name: str, declared: DeclaredParameter) -> ir.TensorProtocol:
        """Read the next tensor, which is named `name`."""
        from dovetail_onnx.external import MappedTensor

        version = self._number("<I", name)
        if version:
            raise self._refuse(name, f"is of version {version}, and only 0 is known")
        for _ in range(self._number("<Q", name)):
            self._skip(self._number("<Q", name), name)
        version = self._number("<I", name)
        if version:
            raise self._refuse(name, f"is of version {version}, and only 0 is known")
        dtype, shape = self._header(name)
        if (dtype, shape) != (declared.dtype, declared.shape):
            have, want = _form(dtype, shape), _form(declared.dtype, declared.shape)
            raise self._refuse(name, f"is {have}, but the program declares {want}")
        kind = element_type(dtype)
        count = math.prod(shape)
        start = self.at
        self._skip(count * kind.bitwidth // 8, name)
        return MappedTensor(cast("mmap.mmap", self._mapped), kind, shape, start, name)

    def _header(self, name: str) -> tuple[str, tuple[int, ...]]:
        from google.protobuf.message import DecodeError

        length = self._number("<i", name)
        if not 0 <= length <= _LONGEST_HEADER:
            raise self._refuse(name, f"has a header of {length} bytes")
        start = self.at
        self._skip(length, name)
        try:
            proto = tensor_class().FromString(self._mapped[start : self.at])
        except DecodeError:
            raise self._refuse(name, "has a header that cannot be read") from None
        shape = tuple(proto.dims)
        dtype = BY_NUMBER.get(proto.data_type)
        if dtype is None:
            raise self._refuse(name, f"has an element type that Paddle does not know ({proto.data_type})")
        if any(extent < 0 for extent in shape) or math.prod(max(extent, 1) for extent in shape) > _LARGEST >> 7:
            raise self._refuse(name, f"has impossible extents ({list(shape)})")
        return dtype, shape

    def _number(self, form: str, name: str) -> int:
        start = self.at
        self._skip(struct.calcsize(form), name)
        return struct.unpack_from(form, self._mapped, start)[0]

    def _skip(self, length: int, name: str) -> None:
        if length > self._size - self.at:
            missing = f"{length} bytes are needed at {self.at}, and the file has {self._size}"
            raise self._refuse(name, f"is cut short: {missing}")
        self.at += length

    def _refuse(self, name: str, problem: str) -> DovetailError:
        return DovetailError(f"{self.path}: parameter '{name}' {problem}", _WAY_OUT)


def _form(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"
