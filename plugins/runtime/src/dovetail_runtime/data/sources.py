"""Sources of input data: arrays in memory, files, folders, and iterators of batches."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.files import entries
from dovetail.plugin.loading import described, own_output
from dovetail_onnx.files.locations import is_remote, local_path
from dovetail_onnx.files.reading import check_input, open_input

from dovetail_runtime.data.array_files import ENDINGS, Arrays, InputNames, named, read_arrays, read_arrays_of
from dovetail_runtime.data.kept import KeptBatches, RereadBatches
from dovetail_runtime.data.remote_files import remote_digest, remote_items

if TYPE_CHECKING:
    pass


def data_files(path: Path) -> list[Path]:
    """Return the data files at a path, in reading order."""
    return [file for _, files in data_folders(path) for file in files] if path.is_dir() else [path]


def data_folders(path: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Yield a folder and its subfolders that hold data files, each with its files, sorted by name.

    Subfolders of a folder without data files are skipped, except those of `path` itself: ONNX test data has one folder
    per sample.

    Raises:
        DovetailError: There is no data file, a data file is no regular file, or a link leads to a folder that was
            visited before, such as its parent.
    """
    found = [(folder, files) for folder, files in _walk(path) if files]
    if not found:
        raise DovetailError(
            f"{path} holds no .npz, .npy or .pb file", "save the inputs with numpy.savez, by input name"
        )
    yield from found


def _walk(path: Path) -> Iterator[tuple[Path, list[Path]]]:
    seen: dict[tuple[int, int], Path] = {}
    stack = [path]
    while stack:
        folder = stack.pop()
        inside = _entries(folder, seen)
        files = [entry for entry in inside if entry.suffix in ENDINGS and not entry.is_dir()]
        for file in files:
            check_input(file)
        yield folder, files
        if files or folder == path:
            stack += [entry for entry in reversed(inside) if entry.is_dir()]


def _entries(folder: Path, seen: dict[tuple[int, int], Path]) -> list[Path]:
    try:
        status = os.stat(folder)
        found = entries(folder)
    except OSError as error:
        raise DovetailError(f"{folder}: cannot be read: {error.strerror or error}") from None
    identity = (status.st_dev, status.st_ino)
    if identity in seen:
        raise DovetailError(f"{folder} is {seen[identity]} once more", "remove the link; samples are read once")
    seen[identity] = folder
    return found


Read = Callable[[], Arrays]  # the arrays of one batch


def as_data(data: object) -> object:
    """Return `data` in a form that can be read more than once, and `file://` as the path that it names."""
    return KeptBatches(data) if isinstance(data, Iterator) else local_path(data)


def read_data(data: object, inputs: Sequence[str], optional: Sequence[str] = ()) -> Iterator[tuple[Arrays, str]]:
    """Yield the arrays in `data` by input name, each mapping with a description of its origin.

    Args:
        data: One of
            - a mapping of arrays by input name;
            - an array, for a model with one input;
            - a list or an iterator of batches, or a function that returns one; a batch is a mapping, an array for a
              model with one input, or a tuple of arrays in the order of the inputs;
            - a path: `.npz` (arrays by input name), `.npy` (named after its input, or for a model with one input),
              `.pb` (a TensorProto, as ONNX's test data has them), or a folder of such files; also of another file
              system, as fsspec reads it: `s3://bucket/samples`.
        inputs: Names of the inputs that the model needs.
        optional: Names of its inputs with a default.

    Raises:
        DovetailError: A file is missing or damaged, or a batch is none of the above.
    """
    for read, where in data_items(data, inputs, optional):
        yield read(), where


def data_items(data: object, inputs: Sequence[str], optional: Sequence[str] = ()) -> Iterator[tuple[Read, str]]:
    """Yield what reads each mapping of `read_data`, with its origin; files are opened when it is called.

    Raises:
        DovetailError: There is no such file, or a batch cannot be read.
    """
    names = InputNames(tuple(inputs), tuple(optional))
    if is_remote(data):
        yield from remote_items(str(data), names)
    elif isinstance(data, (str, Path)):
        yield from _items_of_path(Path(data), names)
    elif isinstance(data, Mapping):
        yield lambda: data, "the data"
    elif callable(data):
        yield from _items_of_batches(_called(data), names)
    elif hasattr(data, "__array__"):
        yield lambda: named(data, names, "the data"), "the data"
    elif isinstance(data, Iterable):
        yield from _items_of_batches(data, names)
    else:
        raise DovetailError(f"data cannot be {type(data).__name__}", "give arrays by input name, or the path of a file")


def array_shapes(path: Path, inputs: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the first arrays in a data file, by input name."""
    arrays, _ = next(read_data(path, inputs))
    return {name: tuple(array.shape) for name, array in arrays.items() if name in inputs}


def data_digest(data: object) -> str:
    """Hash the content of data files or arrays in memory; empty for data that can be read only once."""
    if is_remote(data):
        return remote_digest(str(data))
    digest = hashlib.sha256()
    if isinstance(data, (str, Path)):
        for file in data_files(Path(data)) if Path(data).exists() else []:
            with open_input(file) as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
        return digest.hexdigest()
    batches = [data] if isinstance(data, Mapping) or hasattr(data, "__array__") else data
    if not isinstance(batches, (list, tuple, RereadBatches)):
        return ""
    for batch in batches:
        _digest_batch(batch, digest)
    return digest.hexdigest()


def _digest_batch(batch: object, digest: Any) -> None:
    import numpy as np

    pairs = batch.items() if isinstance(batch, Mapping) else enumerate(batch if isinstance(batch, tuple) else [batch])
    for name, array in sorted(pairs, key=lambda pair: str(pair[0])):
        array = np.ascontiguousarray(array)
        digest.update(f"{name}|{array.dtype}|{array.shape}|".encode())
        digest.update(array.tobytes() if array.dtype.hasobject else array.reshape(-1).view(np.uint8).data)


def _called(function: Callable[[], Any]) -> Any:
    try:
        inspect.signature(function).bind()
    except ValueError:
        pass  # C callables do not expose their signature
    except TypeError as error:
        raise DovetailError(f"the function that gives data cannot be called without arguments: {error}") from error
    with _user_code("the function that gives data"):
        return function()


def _items_of_batches(batches: object, inputs: InputNames) -> Iterator[tuple[Read, str]]:
    if not isinstance(batches, Iterable):
        raise DovetailError(f"the function that gives data returned {type(batches).__name__}", "return an iterator")
    for number, batch in enumerate(spoken(batches)):
        where = f"batch {number} of the data"
        yield partial(_by_name, batch, inputs, where), where


def _by_name(batch: object, inputs: InputNames, where: str) -> Arrays:
    return batch if isinstance(batch, Mapping) else named(batch, inputs, where)


def spoken(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches of a user's iterator; capture its output, and name it in errors."""
    with _user_code("the data"):
        iterator = iter(batches)
    while True:
        with _user_code("the data"):
            try:
                batch = next(iterator)
            except StopIteration:
                return
        yield batch


@contextlib.contextmanager
def _user_code(what: str) -> Iterator[None]:
    """Run user code inside a pass that reads data, with its output captured.

    Raises:
        DovetailError: The user code raises any error.
    """
    try:
        with own_output():
            yield
    except (DovetailError, GeneratorExit):
        raise
    except Exception as error:
        raise DovetailError(f"{what} cannot be read: {described(error)}", "look at the code that makes it") from error


def _items_of_path(path: Path, inputs: InputNames) -> Iterator[tuple[Read, str]]:
    if not path.exists():
        raise DovetailError(f"{path} does not exist")
    if not path.is_dir():
        yield partial(read_arrays, path, inputs), str(path)
        return
    for folder, files in data_folders(path):
        yield from _items_of_folder(folder, files, inputs)


def _items_of_folder(folder: Path, files: list[Path], inputs: InputNames) -> Iterator[tuple[Read, str]]:
    whole = [file for file in files if file.suffix == ".npz"]
    single = [file for file in files if file.suffix != ".npz"]
    for file in whole:
        yield partial(read_arrays, file, inputs), str(file)
    named = any(file.stem in inputs.optional for file in single)
    if single and (len(inputs.required) != 1 or named or single[0].suffix == ".pb"):
        # One array per file and one file per input: together they form one batch.
        wanted = [file for file in single if file.suffix == ".npy" or file.name.startswith("input")]
        yield partial(read_arrays_of, wanted, inputs), str(folder)
    elif single:
        for file in single:
            yield partial(read_arrays, file, inputs), str(file)
