"""Comparison of a result with its original: here, or on parts of the data, each in another process.

The differences of all batches are added in the order of the data. A result is read where it was saved; the trials of a
search are sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.planning import HOST
from dovetail_runtime.data.file_items import FileItems
from dovetail_runtime.data_workers import DataWorkers, answering, data_workers

from dovetail_verify.batch_differences import by_batch
from dovetail_verify.compare import summed, verify
from dovetail_verify.metrics import DifferenceSums
from dovetail_verify.runners import CachedOriginal, exact_runner, reference_runner, runner, source_runner
from dovetail_verify.sent_results import can_be_sent, packed, unpacked

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context, Progress
    from dovetail.plugin import CompiledModel, PluginSet

    from dovetail_verify.compare import OutputVerification


def compared(
    original: Model,
    result: CompiledModel | Model,
    data: object,
    shapes: Mapping[str, Sequence[int]] | None,
    progress: Progress | None,
    ctx: Context,
    seed: int = 0,
    executor: str = "",
) -> OutputVerification:
    """Compare a result with its original on data, by workers with its engines if there are any, or on random inputs.

    Raises:
        DovetailError: One of both cannot be run, no worker has the engines, or none finds what it needs.
    """
    from dovetail.plugin import CompiledModel

    workers = data_workers()
    if workers is not None and isinstance(result, CompiledModel) and not executor and folder_of(result) is not None:
        workers = workers.that_run(result)
        found = verified_in_parts(workers, original, result, data, progress) if data is not None else None
        if found is not None:
            return found
        if workers.elsewhere:
            problem = f"{workers.elsewhere} is on workers alone, which read the model and the data from files"
            raise DovetailError(problem, "give --data: a file or folder that they see")

    run = runner(result, executor) if isinstance(result, CompiledModel) else reference_runner(result, ctx)
    made = result.model if isinstance(result, CompiledModel) else result
    return verify(original, source_runner(original, ctx), run, data, seed, progress, shapes, made)


def verified_in_parts(
    workers: DataWorkers,
    original: Model,
    result: CompiledModel,
    data: object,
    progress: Progress | None,
    others: float = 0.0,
    sent: bool = False,
) -> OutputVerification | None:
    """Compare a result with its original, part by part in other processes; see `compare.verify`.

    Args:
        workers: The processes.
        original, result, data, progress, others: See there.
        sent: The result is a trial: sent where it is not saved, and run as its plan says (`exact_runner`).

    Returns:
        The comparison; None where the workers do not find the files: a model in memory, a result that is neither saved
        nor can be sent, or data that is not in several files.

    Raises:
        DovetailError: A part of the data does not fit, or no machine finishes it.
    """
    source, folder = original.path, folder_of(result)
    sends = sent and folder is None and can_be_sent(result)
    parts = workers.divided(original, data) if source is not None and (folder is not None or sends) else []
    if not parts or source is None or original.revision:
        return None
    both = {"original": str(source.absolute()), "result": folder and str(folder), "exact": sent}
    tasks = [{**both, "data": part.as_dict()} for part in parts]
    answers = workers.run(verify_part, tasks, packed(result) if sends else b"", progress, "verify, parts")
    try:
        said = dict.fromkeys(str(text) for answer in answers for text in answer["said"])
        batches = [
            (int(item), number, {str(name): DifferenceSums.from_dict(sums) for name, sums in found.items()})
            for answer in answers
            for number, (item, found) in enumerate(answer["batches"])
        ]
        engines = dict.fromkeys(str(engine) for answer in answers for engine in answer["engines"])
    except (ValueError, KeyError, TypeError, OverflowError, AttributeError) as error:
        raise DovetailError(f"a worker gives an answer that is not valid: {error!r}", "verify here") from error
    batches.sort(key=lambda one: one[:2])  # of one file, a worker's order is that of the file
    found = summed(original, [differences for _, _, differences in batches], None, others)
    found.cut, found.ran_on = list(said), tuple(engines)
    return found


def engines_that_ran(result: CompiledModel) -> list[str]:
    """Return the engines that ran a result, each with its backend, without the host's: `half-sums (gpu-fp16)`."""
    ran = dict.fromkeys((one.engine, one.backend) for one in result.regions if one.backend != HOST)
    return [f"{engine} ({backend})" for engine, backend in ran]


def folder_of(result: CompiledModel) -> Path | None:
    """Return the folder of a result that other processes can load; None if it is not saved as it is."""
    return result.saved_to.absolute() if result.saved_to is not None and result.is_saved else None


def verify_part(text: str, model: bytes) -> str:
    """Compare on a part of the data in this process; see `verified_in_parts`.

    Args:
        text: The task.
        model: The result, if it was sent; other models are read where they lie.

    Returns:
        The answer; see `dovetail_runtime.data_workers`.
    """
    return answering(lambda: _verified(json.loads(text), model))


def _verified(task: Mapping[str, Any], sent: bytes) -> dict[str, Any]:
    from dovetail import api
    from dovetail.passes import Context, Request

    plugins = plugins_without(tuple(task["blocked"]))
    folder, path = task["result"], Path(task["original"])
    result = unpacked(sent, plugins).compiled if folder is None else api.load(folder, plugins)
    original, run = _original(path, _state_of(path), plugins)
    runs = run, exact_runner(result, Context(Request(), plugins=plugins)) if task["exact"] else runner(result)
    said: list[str] = []
    found: list[tuple[int, dict[str, Any]]] = []
    items = FileItems.from_dict(task["data"])
    for part in items.divided(len(items.numbers)):
        differences = by_batch(original, *runs, part, result.model, said.append, task["exact"])
        found += [(part.numbers[0], {name: sums.as_dict() for name, sums in one.items()}) for one in differences]
    engines = [] if task["exact"] else engines_that_ran(result)
    return {"batches": found, "said": list(dict.fromkeys(said)), "engines": engines}


@lru_cache(maxsize=1)
def _original(path: Path, state: tuple[int, int], plugins: PluginSet) -> tuple[Model, CachedOriginal]:
    """Return the model of a file, and what runs it, kept with its outputs for the next trial of a search."""
    from dovetail import api
    from dovetail.passes import Context, Request

    original = api.open(path, plugins)
    return original, CachedOriginal(reference_runner(original, Context(Request(), plugins=plugins)))


def _state_of(path: Path) -> tuple[int, int]:
    """Return time and size of a file, which say that it is still the same; those of none if there is no such file."""
    try:
        state = path.stat()
    except OSError:
        return 0, 0  # opening it says what is wrong
    return state.st_mtime_ns, state.st_size


@cache
def plugins_without(blocked: tuple[str, ...]) -> PluginSet:
    """Return all installed plugins but some, loaded once in a worker."""
    from dovetail import load_plugins

    return load_plugins(block=blocked)
