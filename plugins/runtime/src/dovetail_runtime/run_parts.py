"""A saved result on parts of the data, each run in another process; outputs come back in the order of the data."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.errors import DovetailError

from dovetail_runtime.data.file_items import FileItems
from dovetail_runtime.data_workers import DataWorkers, answering

if TYPE_CHECKING:
    from dovetail.passes import Progress
    from dovetail.plugin import CompiledModel

_LARGEST = 1 << 34  # bytes of an output of one batch
_TEXT = "text"


def run_in_parts(
    workers: DataWorkers,
    compiled: CompiledModel,
    folder: Path,
    data: object,
    executor: str = "",
    progress: Progress | None = None,
) -> dict[str, np.ndarray]:
    """Compute all outputs for all arrays of data; see `CompiledModel.run_on`. Workers with the result's engines do it.

    Args:
        workers: The processes.
        compiled: The result, with the options of its engines.
        folder: The folder that it was loaded from, as every machine finds it.
        data: A folder of files.
        executor: Name of the executor that runs it.
        progress: Called with (what, done, total).

    Raises:
        DovetailError: The data is not in several files or does not fit, no worker has the engines, or no machine
            finishes a part.
    """
    from dovetail_runtime.runner import joined_batches

    workers = workers if executor else workers.that_run(compiled)
    parts = workers.divided(compiled.model, data)
    if not parts:
        way = "give a file or folder that the workers see" if workers.elsewhere else "run it here"
        raise DovetailError("the data is not in several files, which other machines could read", way)
    about = {"result": str(folder.absolute()), "executor": executor, "options": dict(compiled.options)}
    tasks = [{**about, "data": part.as_dict()} for part in parts]
    answers = workers.run(run_part, tasks, b"", progress, "run, parts")
    try:
        found = sorted((each for answer in answers for each in answer), key=lambda each: int(each["item"]))
        batches = [
            {str(name): _array(one) for name, one in batch.items()} for each in found for batch in each["batches"]
        ]
    except (ValueError, KeyError, TypeError, OverflowError, AttributeError, zlib.error) as error:
        raise DovetailError(f"a worker gives an answer that is not valid: {error!r}", "run it here") from error
    return joined_batches(batches)


def run_part(text: str, model: bytes) -> str:
    """Run a result on a part of the data in this process; see `run_in_parts`.

    Args:
        text: The task.
        model: Nothing: the result is read where it lies.

    Returns:
        The answer; see `dovetail_runtime.data_workers`.
    """
    return answering(lambda: _ran(json.loads(text)))


def _ran(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    from dovetail import api
    from dovetail.plugin import load_plugins

    from dovetail_runtime.data.batches import batches, fitted

    compiled = api.load(task["result"], load_plugins(block=task["blocked"]))
    compiled.options |= task["options"]
    items, model = FileItems.from_dict(task["data"]), compiled.model
    answer = []
    for item in items.divided(len(items.numbers)):
        given = (fitted(model, feeds) for feeds, _ in batches(model, item, whole=True))
        outputs = (compiled.run(feeds, task["executor"]) for feeds in given)
        found = [{name: _plain(array) for name, array in one.items()} for one in outputs]
        answer.append({"item": item.numbers[0], "batches": found})
    return answer


def _plain(array: np.ndarray) -> list[Any]:
    """Return an array as plain data.

    Raises:
        DovetailError: It is a sequence, which no folder of files joins.
    """
    if not hasattr(array, "dtype"):
        raise DovetailError("an output is a sequence, and sequences of several machines are not joined", "run it here")
    if array.dtype == object:
        return [_TEXT, list(array.shape), [str(one) for one in array.ravel().tolist()]]
    content = zlib.compress(np.ascontiguousarray(array).tobytes(), 1)
    return [array.dtype.name, list(array.shape), base64.b64encode(content).decode()]


def _array(plain: list[Any]) -> np.ndarray:
    """Return the array that `_plain` gave.

    Raises:
        ValueError: It is not valid.
    """
    import ml_dtypes  # noqa: F401 - it makes the names of its types known

    name, extents, content = plain
    shape = tuple(map(int, extents))
    if name == _TEXT:
        return np.array([str(one) for one in content], object).reshape(shape)
    dtype = np.dtype(str(name))
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if min(shape, default=0) < 0 or size > _LARGEST or dtype.hasobject:
        raise ValueError(f"an array of {name} of the shape {shape}")
    data = zlib.decompressobj().decompress(base64.b64decode(content), size + 1)
    return np.frombuffer(bytearray(data), dtype).reshape(shape)
