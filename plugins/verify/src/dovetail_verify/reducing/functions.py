"""Implementation of `dovetail.reduce`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dovetail
from dovetail.api import AnyModel, named_backends
from dovetail.errors import UsageError
from dovetail.plugin import load_plugins
from dovetail_onnx.files.reading import file_sha256
from dovetail_onnx.files.writing import replacing_file, write_text
from dovetail_runtime.data.batches import as_given
from dovetail_runtime.data.input_data import input_data

from dovetail_verify.accuracy.goals import Goals
from dovetail_verify.reducing.checks import BackendCheck, Check, CommandCheck, FunctionCheck, write_arrays
from dovetail_verify.reducing.journal import ReductionJournal
from dovetail_verify.reducing.reduction import Reducer, Reduction

if TYPE_CHECKING:
    from dovetail.passes import BackendChoice
    from dovetail.plugin import PluginSet

    from dovetail_verify.reducing.parts import FailingModel


def reduce(
    model: AnyModel,
    backends: str | BackendChoice | Sequence[str | BackendChoice] = (),
    *,
    check: str | Callable[..., bool] | None = None,
    raises: str = "",
    min_snr: float | None = None,
    min_cosine: float | None = None,
    min_top1: float | str | None = None,
    max_abs: float | None = None,
    max_kl: float | None = None,
    max_perplexity_rise: float | str | None = None,
    data: object = None,
    output: str | Path | None = None,
    timeout: float = 120.0,
    attempts: int = 1,
    plugins: PluginSet | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **request: Any,
) -> Reduction:
    """Find the smallest part of a model that still fails, with the inputs that it fails on.

    Regions are removed first, then nodes; a value that a removed node computed becomes an input with the array that it
    had. Then outputs, extents and the elements of weights are simplified.

    Args:
        model: The model.
        backends: Backends whose result misses a goal, or raises an error.
        check: Instead: a shell command with `{model}` that exits nonzero when the model fails, or a function that is
            called with a model and its inputs and returns whether they fail.
        raises: Text that the error, or the output of the command, must contain for a failure to count.
        min_snr, min_cosine, min_top1, max_abs, max_kl, max_perplexity_rise:
            Accuracy goals for the backends' result.
        data: Inputs, see `dovetail_runtime.data.sources.read_data`; random ones by default.
        output: A folder for the model, its inputs and the journal. With the same arguments, a reduction that was
            interrupted resumes there.
        timeout: Seconds that a command may take; one that takes longer has not failed.
        attempts: Runs of each check; a model fails if one of them does.
        plugins: The plugins to use.
        progress: Called with (what, done, total).
        request: Further keyword arguments of `dovetail.compile`, such as `solver` or `pins`.

    Raises:
        UsageError: There is no check, or more than one.
        DovetailError: The whole model does not fail, fails only sometimes, or the check fails on any model; or the
            folder holds something else.
    """
    backends = [backends] if not isinstance(backends, Sequence) or isinstance(backends, str) else list(backends)
    if attempts < 1 or timeout <= 0:
        raise UsageError("attempts and timeout are numbers above 0")
    plugins = plugins or load_plugins()
    backends = named_backends(backends, plugins)
    goals = Goals.of(min_snr, min_cosine, min_top1, max_abs, max_kl, max_perplexity_rise)
    tested = _check(check, backends, goals, raises, timeout, {"backends": backends, **request}, plugins)
    source = dovetail.open(model, plugins)
    given = None if data is None else input_data(data).given
    if given is not None:
        (source,) = as_given(source, given)
    folder = Path(output) if output is not None else None
    identity = {"model": _digest(model), "data": _digest(data), **tested.identity(), "attempts": attempts}
    journal = ReductionJournal(folder, identity)
    return _reduced(Reducer(source, tested, journal, plugins, given, backends, attempts, progress), journal, folder)


def _reduced(reducer: Reducer, journal: ReductionJournal, folder: Path | None) -> Reduction:
    """Reduce; an interrupted reduction leaves what it has."""
    try:
        found = reducer.run()
    except KeyboardInterrupt:
        if folder is not None and reducer.smallest is not None:
            _write(folder, reducer.smallest, {"interrupted": True})
        raise
    finally:
        journal.close()
    if folder is not None:
        _write(folder, found, found.as_dict())
    return found


def _check(
    check: str | Callable[..., bool] | None,
    backends: Sequence[Any],
    goals: Goals,
    raises: str,
    timeout: float,
    request: Mapping[str, Any],
    plugins: PluginSet,
) -> Check:
    if check is None:
        if not backends:
            raise UsageError("no condition of failure is given", "give a check, or backends with a goal or `raises`")
        return BackendCheck(request, goals, raises, plugins)
    if goals:
        raise UsageError(f"{goals} is measured on a backend's result, and the check says itself what fails",
                         "leave one of them out")  # fmt: skip
    return FunctionCheck(check) if callable(check) else CommandCheck(check, timeout, raises)


def _write(folder: Path, found: Reduction | FailingModel, document: Mapping[str, Any]) -> None:
    """Write the smallest model and its inputs; the report comes last."""
    found.model.save(folder / "model.onnx")
    with replacing_file(folder / "inputs.npz") as file:
        write_arrays(file, found.feeds)
    write_text(folder / "reduced.json", json.dumps(document, indent=2, default=str) + "\n")


def _digest(source: object) -> str:
    """Return a digest of a file, of the files in a folder, or of bytes; the type's name for other objects."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    if not isinstance(source, (str, Path)):
        return type(source).__name__
    path = Path(source)
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return hashlib.sha256("".join(map(file_sha256, files)).encode()).hexdigest()
    return file_sha256(path) if path.is_file() else str(path)
