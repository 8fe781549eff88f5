"""Files of arrays: `.npz`, `.npy`, and tensors of ONNX's test data, `.pb`."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.files import unfetched
from dovetail.text import printable
from dovetail_onnx.files.reading import open_input

if TYPE_CHECKING:
    import numpy as np

ENDINGS = (".npz", ".npy", ".pb")
"""Suffixes of the files."""

Arrays = Mapping[str, Any]
"""Arrays (or lists) by input name."""

_NUMBERED = re.compile(r"input_(\d{1,9})\.pb")
_LARGEST_PROTO = (1 << 31) - 1  # bytes; protobuf's limit
_SAVE = "save it with onnx.save_tensor"
_TRIES = 3


@dataclass(frozen=True)
class InputNames:
    """Names of a model's inputs.

    Attributes:
        required: Those that every run needs, in order.
        optional: Those with a default.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """All names; those with a default are the last."""
        return (*self.required, *self.optional)


def named(batch: object, inputs: InputNames, where: str) -> Arrays:
    """Assign unnamed arrays to input names."""
    if isinstance(batch, tuple) and len(batch) in (len(inputs.required), len(inputs.all)):
        return dict(zip(inputs.all, batch))
    if len(inputs.required) == 1 and (hasattr(batch, "__array__") or isinstance(batch, list)):
        return {inputs.required[0]: batch}
    names = ", ".join(inputs.all) or "none"
    raise DovetailError(f"{where} is {type(batch).__name__}, the model's inputs are {names}", "give arrays by name")


def read_arrays_of(paths: Sequence[Path], inputs: InputNames) -> Arrays:
    """Read files that hold the arrays of one batch together."""
    return {name: array for path in paths for name, array in read_arrays(path, inputs).items()}


def read_arrays(path: Path, inputs: InputNames) -> Arrays:
    """Read a file.

    Raises:
        DovetailError: It is damaged, or something else.
    """
    try:
        with open_input(path) as file:
            return arrays_in(file, path, str(path), inputs)
    except DovetailError as error:
        if (pointer := unfetched(path)) is not None:
            raise pointer from error
        raise


def arrays_in(file: IO[bytes], path: PurePath, title: str, inputs: InputNames) -> Arrays:
    """Read an opened file.

    Args:
        file: The file.
        path: Its path, for its name.
        title: What messages call it.
        inputs: Names of the model's inputs.

    Raises:
        DovetailError: It is damaged, or something else.
    """
    if path.suffix == ".pb":
        return _proto(file, path, title, inputs)
    if path.suffix == ".npy":
        array = _loaded(file, title, ".npy", "numpy.save")
        return {path.stem: array} if path.stem in inputs.all else named(array, inputs, title)
    return _npz(file, title)


def _npz(file: IO[bytes], title: str) -> dict[str, np.ndarray]:
    archive = _loaded(file, title, ".npz", "numpy.savez")
    if not hasattr(archive, "files"):
        raise DovetailError(f"{title} is not an .npz file: it holds one array without a name", "save it as .npy")
    size, memory = sum(member.file_size for member in archive.zip.infolist()), _memory()
    if size > memory:
        raise DovetailError(
            f"{title} unpacks to {size >> 20:,} MB, and this machine has {memory >> 20:,} MB of memory",
            "save the samples in several files, and give their folder",
        )
    try:
        with archive:
            return {name: _parsed(partial(archive.__getitem__, name)) for name in archive.files}
    except Exception as error:  # zipfile and pickle raise arbitrary exceptions on damaged files
        raise DovetailError(f"{title} cannot be read: {error}") from None


def _parsed(read: Callable[[], Any]) -> Any:
    """Return what NumPy reads, which parses a header as Python.

    Some releases of CPython 3.11 and 3.12 fail at that, at random, while another thread parses (gh-106905).
    """
    for _ in range(_TRIES):
        with contextlib.suppress(SystemError):
            return read()
    return read()


def _memory() -> int:
    """Return the memory of this machine in bytes, or the size of the address space if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows
        return sys.maxsize


def _loaded(file: IO[bytes], title: str, ending: str, writer: str) -> Any:
    import numpy as np

    try:
        return _parsed(lambda: np.load(_rewound(file), allow_pickle=False))
    except (ValueError, OSError, EOFError) as error:
        raise DovetailError(f"{title} is not an {ending} file: {error}", f"save it with {writer}") from None
    except Exception as error:  # zipfile and pickle raise arbitrary exceptions on damaged files
        raise DovetailError(f"{title} cannot be read: {error}") from None


def _rewound(file: IO[bytes]) -> IO[bytes]:
    file.seek(0)
    return file


def _proto(file: IO[bytes], path: PurePath, title: str, inputs: InputNames) -> Arrays:
    """Read a tensor of ONNX test data, `input_0.pb`, which may contain the name of its input."""
    import onnx
    from dovetail_onnx.source.tensors import data_problem
    from google.protobuf.message import DecodeError

    proto = onnx.TensorProto()
    try:
        proto.ParseFromString(file.read(_LARGEST_PROTO))
    except DecodeError as error:
        raise DovetailError(f"{title} is not a TensorProto: {error}", _SAVE) from None
    if proto.data_location == onnx.TensorProto.EXTERNAL or proto.external_data:
        # A sample file could refer to any file of this machine.
        raise DovetailError(f"{title}: the tensor says that its data lies in another file", _SAVE)
    if problem := data_problem(proto, None):
        raise DovetailError(f"{title}: the tensor {printable(problem)}", _SAVE)
    try:
        array = onnx.numpy_helper.to_array(proto)
    except (ValueError, TypeError, KeyError) as error:
        raise DovetailError(f"{title} is not a TensorProto: {error}", _SAVE) from None
    numbered = _NUMBERED.fullmatch(path.name)
    if proto.name in inputs.all:
        return {proto.name: array}
    if numbered and int(numbered[1]) < len(inputs.all):
        return {inputs.all[int(numbered[1])]: array}
    return named(array, inputs, title)
