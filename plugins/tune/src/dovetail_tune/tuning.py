"""`dovetail.tune`: the fastest plan within an accuracy goal, measured on this machine."""

from __future__ import annotations

import glob
import hashlib
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import dovetail
from dovetail.errors import UsageError
from dovetail.passes import BackendChoice, Context, Request
from dovetail.plugin import TemporaryFolder, load_plugins
from dovetail_runtime.data.sources import data_digest
from dovetail_runtime.machine import cpus
from dovetail_verify.accuracy.goals import Goals
from dovetail_verify.runners import reference_runner

from dovetail_tune.candidates import Candidate, candidates_of
from dovetail_tune.data_folders import write_split
from dovetail_tune.deadline import Deadline
from dovetail_tune.device_pool import DevicePool, check_device
from dovetail_tune.executor_pool import ExecutorPool, Executors
from dovetail_tune.journal import Journal
from dovetail_tune.local_pool import LocalPool
from dovetail_tune.outcome import Tuned
from dovetail_tune.trial_runner import TrialRunner
from dovetail_tune.tuner import Tuner
from dovetail_tune.worker_pool import WorkerPool, WorkerSettings

if TYPE_CHECKING:
    from dovetail.api import AnyModel
    from dovetail.ir import Model
    from dovetail.plugin import CompiledModel, PluginSet

LATENCY, THROUGHPUT = "latency", "throughput"
_JOURNAL = "journal.jsonl"
WEIGHTS = (".pdiparams", ".pdmodel", ".json", ".data")  # of programs that keep them in a file beside


def tune(
    model: AnyModel,
    backends: str | BackendChoice | Sequence[str | BackendChoice] = (),
    *,
    data: object,
    min_snr: float | None = None,
    min_cosine: float | None = None,
    min_top1: float | str | None = None,
    max_abs: float | None = None,
    max_kl: float | None = None,
    max_perplexity_rise: float | str | None = None,
    measure: str = LATENCY,
    threads: Sequence[int] = (),
    mixed: bool = True,
    budget: float | Deadline | None = None,
    journal: str | Path | None = None,
    executor: Executor | Executors | None = None,
    device: str = "",
    device_timeout: float = 0.0,
    plugins: PluginSet | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Tuned:
    """Find the fastest plan of `model` that meets the accuracy goals, by measuring.

    Candidates are compiled and run in processes of their own. Half of the samples calibrate them, a quarter compares
    them, and the winner is judged on the rest, which no candidate saw. Speed is compared in pairs, in turns.

    Args:
        model: A model or its path.
        backends: Backends to try beside the host; all that run here by default. One that is named with options
            (`NAME:key=value`) competes with these only.
        data: Inputs like those that the model will see; see `dovetail.input_data`. The first batch is what is timed.
        min_snr, min_cosine, min_top1, max_abs, max_kl, max_perplexity_rise: Accuracy goals, of
            which one is needed; see `dovetail.compile`.
        measure: `latency` times one call, `throughput` as many calls at the same time as there are CPUs.
        threads: Thread counts of the engines to try, 0 for their own choice; by default 0, for throughput 0 and 1.
        mixed: Whether to profile segments of the model, and to try plans that mix candidates.
        budget: Time limit in seconds, after which the best plan found so far is returned; none by default. A `Deadline`
            counts from its own beginning.
        journal: Folder that keeps results and a journal, so that an interrupted tuning resumes.
        executor: Where to compile and time, in place of this program's processes: see `dovetail_tune.cluster.connect`.
            All machines need the model, the journal's folder and the same versions, and open data where it lies.
        device: A command that runs results on a device, where they are timed:
            `ssh board /opt/run {folder} {inputs} {outputs} --repeat {repeat}`.
        device_timeout: The most seconds of a call of it; 0 for 600.
        plugins: The plugins to use; workers load the installed ones without those left out here.
        progress: Called with (what, done, total).

    Raises:
        UsageError: There is no goal or no data, or an argument is invalid.
        DovetailError: The model or the data is invalid, no backend runs here, or the time is up before the host ran.
    """
    goals = Goals.of(min_snr, min_cosine, min_top1, max_abs, max_kl, max_perplexity_rise)
    check(goals, data, measure)
    plugins = plugins or load_plugins()
    if device:
        _check_device(device, executor, measure, threads, plugins)
    deadline = budget if isinstance(budget, Deadline) else Deadline(budget)
    named = (backends,) if isinstance(backends, (str, BackendChoice)) else backends
    offers = executor.offers if isinstance(executor, Executors) else None
    counts = tuple(threads) or ((0,) if measure == LATENCY else (0, 1))
    candidates = candidates_of(plugins.registry, named, counts, offers)
    original = dovetail.open(model, plugins)
    goals.check_model(original)
    with ExitStack() as stack:
        folder = Path(journal) if journal is not None else stack.enter_context(TemporaryFolder("tune"))
        path, given = _file_of(model, original, folder), dovetail.input_data(data).given
        pool = _pool_of(executor, device, device_timeout, plugins, measure)
        key = {**_key_of(original, path, given), "goals": str(goals), "mode": measure, **pool.machine}
        book = Journal(folder / _JOURNAL if journal is not None else None, key)
        run = reference_runner(original, Context(Request(), plugins=plugins))
        split = write_split(original, given, folder, run, lies=executor is not None)
        pool.check_paths([str(path), *filter(None, [split.place])])
        runner = TrialRunner(path, split, goals.as_dict(), folder, book, deadline, pool, candidates.found[0])
        tuned = Tuner(runner, candidates, original, plugins, mixed and not device, progress).run()
        tuned.model = path.name if isinstance(model, (str, Path)) else original.graph.name or "model"
        if tuned.winner is not None:
            tuned.compiled = _loaded(runner, tuned.winner.candidate, plugins)
            if journal is None:
                # Weights are read from the folder until the result is saved; it goes when the result does.
                weakref.finalize(tuned.compiled, stack.pop_all().close)
        return tuned


def _check_device(
    device: str, executor: Executor | Executors | None, measure: str, threads: Sequence[int], plugins: PluginSet
) -> None:
    """Check what is asked of a device.

    Raises:
        UsageError: It makes no sense with a command.
        DovetailError: The distribution that runs results on devices is not installed.
    """
    if executor is not None:
        raise UsageError("--device says what runs results", "leave out --cluster (executor)")
    if measure != LATENCY:
        raise UsageError("a device is timed by one call at a time", f"leave out --for {measure}")
    check_device(device, threads, plugins)


def _pool_of(
    executor: Executor | Executors | None, device: str, device_timeout: float, plugins: PluginSet, measure: str
) -> WorkerPool:
    """Return the pool of an executor, of a device, or of this machine."""
    blocked = tuple(record.name for record in plugins.plugins if record.status == "disabled")
    settings = WorkerSettings(blocked, cpus() if measure == THROUGHPUT else 1, distributions(plugins))
    if device:
        return DevicePool(settings, device, device_timeout)
    return LocalPool(settings) if executor is None else ExecutorPool(executor, settings)


def _key_of(original: Model, path: Path, data: object) -> dict[str, str]:
    """Return what all figures depend on besides goals and machine."""
    return {"model": model_digest(original, path), "data": data_digest(data)}


def _loaded(runner: TrialRunner, candidate: Candidate, plugins: PluginSet) -> CompiledModel:
    """Load the result of a candidate, to run with the threads that it was timed with."""
    compiled = dovetail.load(runner.folder_of(candidate), plugins)
    if candidate.threads:
        compiled.options["threads"] = candidate.threads
    return compiled


def check(goals: Goals, data: object, measure: str = LATENCY) -> None:
    """Check that there is a goal, and data to measure it on.

    Raises:
        UsageError: One of them is missing, or `measure` is unknown.
    """
    if not goals:
        raise UsageError("no goal says how accurate the result must be", "add --min-snr 30, or another goal")
    goals.check_data(data)
    if measure not in (LATENCY, THROUGHPUT):
        raise UsageError(f"{measure!r} is no measure of speed", f"write {LATENCY} or {THROUGHPUT}")


def model_digest(model: Model, path: Path) -> str:
    """Hash the file of a model, and sizes and times of the files with its weights: those it names, or beside it.

    Args:
        model: The opened model.
        path: Its file or folder.
    """
    found = hashlib.sha256()
    if path.is_file():
        with path.open("rb") as content:
            found.update(hashlib.file_digest(content, "sha256").digest())
    beside = path.rglob("*") if path.is_dir() else path.parent.glob(f"{glob.escape(path.stem)}.*")
    for location in sorted({*_weights(model), *(file for file in beside if file.suffix in WEIGHTS)}):
        state = location.stat()
        found.update(f"{location.name} {state.st_size} {state.st_mtime_ns}".encode())
    return found.hexdigest()


def _weights(model: Model) -> set[Path]:
    """Return the paths of files with external weights."""
    from onnx_ir import ExternalTensor

    tensors = (value.const_value for value in model.graph.initializers.values())
    return {Path(tensor.path) for tensor in tensors if isinstance(tensor, ExternalTensor)}


def _file_of(model: object, original: Model, folder: Path) -> Path:
    """Return the file that workers read; a model in memory is written to `folder`."""
    if isinstance(model, (str, Path)):
        return Path(model).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    original.save(folder / "source.onnx", external=True)
    return (folder / "source.onnx").resolve()


def distributions(plugins: PluginSet) -> tuple[str, ...]:
    """Return the distributions whose versions timings depend on."""
    return tuple(record.distribution for record in plugins.plugins if record.status == "ok" and record.distribution)
