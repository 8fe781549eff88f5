"""External data: tensors whose bytes are in files next to the model.

This is the only module that follows paths in a model (`data_paths` says where they lead). Their targets must be
regular files, which is checked before the file is opened, so that a pipe or a device cannot block.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.errors import DovetailError
from dovetail.files import seen, unfetched
from dovetail.text import printable

from dovetail_onnx.data_paths import DataPlaces
from dovetail_onnx.source.tensors import data_fields, data_problem, form_problem, known_type, size_in_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx


_READ_IN_UP_TO = 1 << 30  # bytes, for all tensors together that must be inlined in the proto
_DIGITS = 19


class TensorLoader:
    """Checks the tensors of one model, and resolves external data.

    Args:
        name: Name of the model in messages.
        path: The model's file; if None, external data is refused.
    """

    def __init__(self, name: str, path: Path | None):
        self.name = name
        self._places = DataPlaces(path) if path is not None else None
        self._files: dict[str, tuple[Path, int]] = {}
        self._read_in = 0
        self._sizes: dict[tuple, int] = {}

    @property
    def files(self) -> tuple[Path, ...]:
        """The other files that data of the checked tensors is in."""
        return tuple(where for where, _ in self._files.values())

    def refuse(self, tensor: str, problem: str, hint: str = "export or copy the model again") -> DovetailError:
        """Return the error for an invalid tensor."""
        return DovetailError(f"{self.name}: {printable(f'{tensor} {problem}')}", hint)

    def check(self, tensor: onnx.TensorProto, what: str, raw_bytes: int | None = None) -> ir.ExternalTensor | None:
        """Check one tensor.

        Args:
            tensor: The tensor.
            what: Its label in messages: `initializer 'w'`.
            raw_bytes: The length of its `raw_data` if that was left on disk.

        Returns:
            The external tensor if its data is in another file, else None.

        Raises:
            DovetailError: Its data does not match type and dims, or is missing, truncated or outside the folder.
        """
        # Fast path: nearly all tensors hold raw data only, and models repeat a few types and dims.
        form = (tensor.data_type, *tensor.dims)
        if form in self._sizes:
            raw, fields = (len(tensor.raw_data), 4) if raw_bytes is None else (raw_bytes, 3)
            # Exactly the fields name, type, dims and raw data are set.
            if (
                raw
                and raw == self._sizes[form]
                and tensor.name
                and len(form) > 1
                and len(tensor.ListFields()) == fields
            ):
                return None
        external = self._judged(tensor, what, raw_bytes)
        if known_type(tensor.data_type).bits:
            self._sizes[form] = size_in_bytes(tensor)
        return external

    def _judged(self, tensor: onnx.TensorProto, what: str, raw_bytes: int | None) -> ir.ExternalTensor | None:
        import onnx

        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            if problem := data_problem(tensor, raw_bytes):
                raise self.refuse(what, problem)
            # Entries without the EXTERNAL mark have no effect; some tools leave them behind.
            if tensor.external_data:
                del tensor.external_data[:]
            return None
        if problem := form_problem(tensor):
            raise self.refuse(what, problem)
        if raw_bytes is not None or data_fields(tensor):
            raise self.refuse(what, "says that its data lies in another file, and holds data itself")
        if known_type(tensor.data_type).name == "string":
            raise self.refuse(what, "holds strings, which cannot lie in another file")
        return self._external(tensor, what)

    def check_and_inline(self, tensor: onnx.TensorProto, what: str) -> None:
        """Check a tensor that stays in the proto, and inline external data.

        Raises:
            DovetailError: As for `check`; or more than a gigabyte would have to be inlined.
        """
        external = self.check(tensor, what)
        if external is not None:
            self.inline_external(tensor, external, what)

    def inline_external(self, tensor: onnx.TensorProto, external: ir.ExternalTensor, what: str) -> None:
        """Replace a reference to external data by the data.

        Raises:
            DovetailError: More than a gigabyte would be inlined in total.
        """
        self._read_in += external.nbytes
        if self._read_in > _READ_IN_UP_TO:
            limit = f"more than {_READ_IN_UP_TO >> 20} MiB of data in attributes, bodies and functions"
            raise self.refuse(what, f"is part of {limit}", "keep large weights as initializers of the main graph")
        del tensor.external_data[:]
        tensor.ClearField("data_location")
        tensor.raw_data = external.tobytes()

    def _external(self, tensor: onnx.TensorProto, what: str) -> ir.ExternalTensor:
        import onnx_ir as ir

        what = f"the data of {what}"
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if len(entries) < len(tensor.external_data):
            raise self.refuse(what, "is described twice")
        location = entries.get("location", "")
        if location not in self._files:
            self._files[location] = self._file(location, what)
        where, size = self._files[location]
        offset, length = (self._number(entries, key, what) for key in ("offset", "length"))
        needed = size_in_bytes(tensor)
        if length is not None and length != needed:
            raise self.refuse(what, f"has a length of {length} bytes, but its extents need {needed}")
        if size < (offset or 0) + needed:
            if (pointer := unfetched(where)) is not None:
                raise self.refuse(what, f"cannot be read: {pointer.message}", pointer.hint)
            problem = f"is cut short: {where} has {size} bytes, {(offset or 0) + needed} are needed"
            raise self.refuse(what, problem, "copy the data file again")
        dtype, shape = ir.DataType(tensor.data_type), ir.Shape(tensor.dims)
        stored = StoredTensor(where.name, offset, length, dtype, shape=shape, name=tensor.name, base_dir=where.parent)
        stored.written = location
        return stored

    def _number(self, entries: dict[str, str], key: str, what: str) -> int | None:
        text = entries.get(key)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()):
            raise self.refuse(what, f"has an {key} that is not a number of bytes" if key == "offset" else _NO_LENGTH)
        if len(text) > _DIGITS:
            raise self.refuse(what, f"has an impossible {key} of {len(text)} digits")
        return int(text)

    def _file(self, location: str, what: str) -> tuple[Path, int]:
        """Return the file that `location` leads to, without links on the way, and its size."""
        if self._places is None:
            way_out = "give the path of the model, or call onnx.load_external_data_for_model first"
            raise self.refuse(what, "lies in another file, and the model has no folder", way_out)
        try:
            where = self._places.file(location)
            found = seen(where).stat() if where is not None else None
        except FileNotFoundError as error:
            problem = f"is missing: {error.filename} does not exist"
            raise self.refuse(what, problem, "copy the data file beside the model") from None
        except (OSError, ValueError, RuntimeError) as error:  # name too long, NUL, circular links, no permission
            reason = getattr(error, "strerror", None) or str(error)
            raise self.refuse(what, f"cannot be read: {_shortened(location)}: {reason}") from None
        if where is None or found is None:
            raise self.refuse(
                what,
                f"lies outside the model's folder ({_shortened(location) or 'no location'})",
                "copy the data beside the model and save it again; a path that leaves the folder is not followed",
            )
        if not stat.S_ISREG(found.st_mode):
            problem = f"is missing: {_shortened(location)} is not a regular file"
            raise self.refuse(what, problem, "copy the data file beside the model")
        return where, found.st_size


_NO_LENGTH = "has a length that is not a number of bytes"


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


class StoredTensor(ir.ExternalTensor):
    """A tensor in a file that `TensorLoader` found and checked.

    A second hard link to the file is not an attack: copies and caches use them (`cp -al`, package managers).

    Attributes:
        written: The location as the model writes it.
    """

    written = ""

    def _check_path_containment(self) -> None:
        """Check, in place of onnx-ir, that the file is still no link: its folder and name have none on the way."""
        if os.path.realpath(self.path) != os.path.abspath(self.path):
            problem = f"{printable(self.path)} was replaced by a link while the model was open"
            raise DovetailError(problem, "open the model again")


def lies_beside(tensors: Iterable[ir.TensorProtocol | None], path: Path) -> bool:
    """Check whether every engine finds the data of a model by itself: in the folder of its path, and not through links.

    Engines have their own rules about links; OpenVINO, for example, reads no model from such a cache.

    Args:
        tensors: The weights.
        path: The path of the model.
    """
    folder = Path(os.path.abspath(path)).parent.resolve()
    files = {(tensor.written, Path(tensor.path)) for tensor in tensors if isinstance(tensor, StoredTensor)}
    return all(file.is_relative_to(folder) and (folder / written).resolve() == file for written, file in files)


_CHUNK = 1 << 22  # bytes


class MappedTensor(ir.Tensor):
    """A tensor whose elements are bytes of a mapped file, without a copy.

    Args:
        mapped: The mapped file.
        dtype: The type of the elements, of whole bytes.
        shape: The extents.
        offset: Offset of the elements in the file, in bytes.
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
    """Yield bytes of a mapped file in chunks of a few MiB; the pages of each chunk are released afterwards."""
    end = first + count
    for start in range(first, end, _CHUNK):
        stop = min(start + _CHUNK, end)
        yield mapped[start:stop]
        if hasattr(mmap, "MADV_DONTNEED"):
            begin = start - start % mmap.PAGESIZE
            mapped.madvise(mmap.MADV_DONTNEED, begin, stop - begin)
