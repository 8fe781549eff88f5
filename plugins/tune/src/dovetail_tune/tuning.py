"""`dovetail.tune`: the fastest plan within an accuracy goal, measured on this machine."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import dovetail
from dovetail.errors import UsageError
from dovetail.passes import BackendChoice, Context, Request
from dovetail.plugin import TemporaryFolder, load_plugins
from dovetail_runtime.data.sources import data_digest
from dovetail_runtime.machine import cpus, fingerprint
from dovetail_verify.accuracy.goals import Goals
from dovetail_verify.runners import reference

from dovetail_tune.candidates import Candidate, candidates_of
from dovetail_tune.contest import Contest
from dovetail_tune.data_split import split
from dovetail_tune.deadline import Deadline
from dovetail_tune.hosts import Executors, Hosts
from dovetail_tune.journal import Journal
from dovetail_tune.outcome import Tuned
from dovetail_tune.tasks import Place
from dovetail_tune.trying import Bench

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
    budget: float | None = None,
    journal: str | Path | None = None,
    executor: Executor | Executors | None = None,
    plugins: PluginSet | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Tuned:
    """Find the fastest plan of `model` that meets the accuracy goals, by measuring.

    Candidates are compiled and run in processes of their own, with half of the samples; the other half judges them.
    Speed is compared in pairs, in alternating turns.

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
        budget: Seconds to stop after, with what is known then; no limit by default.
        journal: Folder that keeps results and a journal, so that an interrupted tuning goes on where it stopped.
        executor: Where to compile and time, in place of processes of this program: conversions run beside each other,
            timings alone on their machine. All machines need the model, the journal's folder and the same versions.
            `dovetail_tune.cluster.connect` makes one of a cluster.
        plugins: The plugins to use; workers load the installed ones without those left out here.
        progress: Called with (what, done, total).

    Raises:
        UsageError: There is no goal or no data, or an argument is invalid.
        DovetailError: The model or the data is invalid, no backend runs here, or the time is up before the host ran.
    """
    goals = Goals.of(min_snr, min_cosine, min_top1, max_abs, max_kl, max_perplexity_rise)
    check(goals, data, measure)
    deadline = Deadline(budget)
    plugins = plugins or load_plugins()
    threads = tuple(threads) or ((0,) if measure == LATENCY else (0, 1))
    given = (backends,) if isinstance(backends, (str, BackendChoice)) else backends
    candidates = candidates_of(plugins.registry, given, threads)
    original = dovetail.open(model, plugins)
    goals.check_model(original)
    with ExitStack() as stack:
        folder = Path(journal) if journal is not None else stack.enter_context(TemporaryFolder("tune"))
        path = _file_of(model, original, folder)
        source = dovetail.input_data(data)
        callers = cpus() if measure == THROUGHPUT else 1
        owned = distributions(plugins)
        hosts = Hosts(executor, Place(_blocked(plugins), callers, owned)) if executor is not None else None
        key = {
            "model": model_digest(original, path), "data": data_digest(source.given), "goals": str(goals),
            "mode": measure, **(fingerprint(owned) if hosts is None else hosts.machine),
        }  # fmt: skip
        book = Journal(folder / _JOURNAL if journal is not None else None, key)
        halves = split(original, source.given, folder, reference(original, Context(Request(), plugins=plugins)))
        if hosts is not None:
            hosts.check_paths([str(path), str(halves.judge.resolve())])
        bench = Bench(path, halves, goals.as_dict(), folder, book, deadline, _blocked(plugins), callers)
        tuned = Contest(bench, candidates, original, plugins, progress, hosts).run(mixed)
        tuned.model = path.name if isinstance(model, (str, Path)) else original.graph.name or "model"
        if tuned.winner is not None:
            tuned.compiled = _loaded(bench, tuned.winner.candidate, plugins)
            if journal is None:
                # Weights are read from the folder until the result is saved; it goes when the result does.
                _keep_until_freed(tuned, stack.pop_all())
        return tuned


def _loaded(bench: Bench, candidate: Candidate, plugins: PluginSet) -> CompiledModel:
    """Load the result of a candidate, to run with the threads that it was timed with."""
    compiled = dovetail.load(bench.folder_of(candidate), plugins)
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


def _blocked(plugins: PluginSet) -> tuple[str, ...]:
    return tuple(record.name for record in plugins.plugins if record.status == "disabled")


def distributions(plugins: PluginSet) -> tuple[str, ...]:
    """Return the distributions whose versions timings depend on."""
    return tuple(record.distribution for record in plugins.plugins if record.status == "ok" and record.distribution)


def _keep_until_freed(tuned: Tuned, stack: ExitStack) -> None:
    import weakref

    weakref.finalize(cast("Any", tuned.compiled), stack.close)
