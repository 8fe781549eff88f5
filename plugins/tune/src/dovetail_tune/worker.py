"""The jobs of a child process, which is the worker of a `dovetail.plugin.Tool`.

Jobs: `prepare` compiles a candidate, saves it and measures its accuracy; `judge` measures that of a saved result;
`segment` compiles a part of a model; `load` loads a saved result; `time` runs what was compiled or loaded last.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]  # a system without it

if TYPE_CHECKING:
    import numpy as np
    from dovetail.plugin import CompiledModel, PluginSet

Job = Mapping[str, Any]

LONG = 0.5  # seconds of a run, to which warm caches and idle threads make no difference


class Jobs:
    """The state of a worker: its plugins, and the result that is timed.

    Args:
        plugins: The plugins.
        started: The seconds that the process took to load them.
    """

    def __init__(self, plugins: PluginSet, started: float = 0.0):
        self._plugins, self._started = plugins, started
        self._executor = ""  # what runs the result, where it does not run in this process
        self._compiled: CompiledModel | None = None
        self._feeds: dict[str, np.ndarray] = {}

    def prepare(self, job: Job) -> dict[str, Any]:
        """Compile a candidate on samples that calibrate, save it, and compare it with the original on other samples."""
        import dovetail
        from dovetail_verify.accuracy.goals import Goals

        from dovetail_tune.data_folders import from_plain
        from dovetail_tune.result_digest import result_digest

        candidate, goals = job["candidate"], Goals(**job["goals"])
        margin = candidate["margin"]
        accuracy: dict[str, Any] = {"verify": False}
        if margin:
            accuracy = goals.tightened(margin).as_dict()
        begun = time.perf_counter()
        self._compiled = compiled = dovetail.compile(
            job["model"], candidate["backends"], high=candidate["high"], pins=candidate["pins"],
            data=from_plain(job["calibrate"]), plugins=self._plugins, **accuracy,
        )  # fmt: skip
        seconds = time.perf_counter() - begun
        digest = result_digest(compiled.model, {backend.name: backend.engines for backend in compiled.backends})
        if digest in job["known"]:
            return {"digest": digest}
        compiled.save(job["folder"])
        self._use(compiled, job)
        compared = dovetail.verify(
            job["model"], compiled, from_plain(job["search"]), executor=self._executor, plugins=self._plugins
        )
        gc.collect()  # sessions of earlier candidates, so that their memory and threads are not there while timing
        self._feeds = self._timed_inputs(job)
        if self._executor:
            compiled.executor(self._executor).timed(self._feeds, 1)  # else every candidate finds out that nothing does
        return {
            "digest": digest, "compile_seconds": seconds, "verification": compared.as_dict(),
            "missed": list(map(str, goals.missed(compared))), "doubts": goals.doubts(compared),
            "bytes": _size(Path(job["folder"])), "coverage": compiled.coverage(), "engines": _engines(compiled),
        }  # fmt: skip

    def judge(self, job: Job) -> dict[str, Any]:
        """Compare a saved result with the original on samples that no candidate saw."""
        import dovetail
        from dovetail_verify.accuracy.goals import Goals

        from dovetail_tune.data_folders import from_plain

        compiled = dovetail.load(job["folder"], self._plugins)
        self._use(compiled, job)
        compared = dovetail.verify(
            job["model"], compiled, from_plain(job["judge"]), executor=self._executor, plugins=self._plugins
        )
        return {"figure": compared.worst, "missed": list(map(str, Goals(**job["goals"]).missed(compared)))}

    def load(self, job: Job) -> dict[str, Any]:
        """Load a saved result, and run it once."""
        import dovetail

        before, begun = _peak(), time.monotonic()
        self._compiled = dovetail.load(job["folder"], self._plugins)
        self._use(self._compiled, job)
        self._feeds = self._timed_inputs(job)
        self._compiled.run(self._feeds, self._executor)
        seconds = self._started + time.monotonic() - begun
        grown = 0 if self._executor else max(0, _peak() - before)
        return {"bytes": grown, "engines": _engines(self._compiled), "seconds": seconds}

    def segment(self, job: Job) -> dict[str, Any]:
        """Compile a part of a model, and write its outputs for every batch, for timing and for measuring its noise."""
        import dovetail
        from dovetail_runtime.data.batches import batches, fitted

        from dovetail_tune.data_folders import save_arrays

        candidate = job["candidate"]
        model = dovetail.open(job["model"], self._plugins)
        self._compiled = compiled = dovetail.compile(
            model, candidate["backends"], high=candidate["high"], data=job["data"], plugins=self._plugins, verify=False
        )
        self._use(compiled, job)
        folder = Path(job["outputs"])
        folder.mkdir(parents=True, exist_ok=True)
        self._feeds = {}
        for number, (feeds, _) in enumerate(batches(model, job["data"], compiled.model, whole=True)):
            given = dict(fitted(compiled.model, feeds))
            self._feeds = self._feeds or given
            save_arrays(folder / f"{number:06}.npz", compiled.run(given))
        return {"engines": _engines(compiled)}

    def time(self, job: Job) -> dict[str, Any]:
        """Run once without measuring, which warms caches and lets other processes' threads go idle, then `runs` times.

        If a run takes half a second, neither matters, and the first one is measured, too. With several `callers`, these
        call at the same time, and the seconds are those of all calls over their number.
        """
        compiled, feeds, runs, callers = self._compiled, self._feeds, job["runs"], job.get("callers", 1)
        if compiled is None:
            raise DovetailError("nothing is loaded")
        if self._executor:
            return {"seconds": compiled.executor(self._executor).timed(feeds, runs)}
        if callers == 1:
            first = _seconds(lambda: compiled.run(feeds))
            long = [first] if first >= LONG else []
            return {"seconds": [*long, *(_seconds(lambda: compiled.run(feeds)) for _ in range(runs - len(long)))]}
        with ThreadPoolExecutor(callers) as pool:

            def together(times: int) -> None:
                list(pool.map(lambda _: [compiled.run(feeds) for _ in range(times)], range(callers)))

            first = _seconds(lambda: together(1))
            if first >= LONG and runs == 1:
                return {"seconds": [first / callers]}
            return {"seconds": [_seconds(lambda: together(runs)) / (runs * callers)]}

    def _use(self, compiled: CompiledModel, job: Job) -> None:
        """Set the executor and the options that a job asks for."""
        self._executor = job.get("executor", "")
        for option in ("threads", "streams", "device", "device_timeout"):
            if job.get(option):
                compiled.options[option] = job[option]

    def _timed_inputs(self, job: Job) -> dict[str, np.ndarray]:
        """Return the first batch of the samples that candidates are compared on, in the extents of the result."""
        import dovetail
        from dovetail_runtime.data.batches import batches, fitted

        from dovetail_tune.data_folders import from_plain

        original = dovetail.open(job["model"], self._plugins)
        made = self._compiled.model if self._compiled is not None else original
        feeds, _ = next(batches(original, from_plain(job["search"]), made, whole=True))
        return dict(fitted(made, feeds))


def _seconds(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _engines(compiled: CompiledModel) -> list[str]:
    """Return the engines that run the regions, without repetitions; empty if its executor does not tell."""
    return sorted({runner.engine for runner in compiled.regions})


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix not in _REPORTS)


_REPORTS = (".yaml", ".json")  # what nobody needs to run the result


def _peak() -> int:
    """Return the peak of resident memory of this process, in bytes; 0 where the system does not tell."""
    try:
        # `getrusage` starts from the memory of the process that started this one.
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        if resource is None:
            return 0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak << 10


def begin(blocked: Sequence[str]) -> Jobs:
    """Load the plugins, without those that are named, and return what does the jobs."""
    from dovetail.plugin import load_plugins

    begun = time.monotonic()
    plugins = load_plugins(block=blocked)
    return Jobs(plugins, time.monotonic() - begun)


def do(jobs: Jobs, job: Job) -> dict[str, Any]:
    """Do a job."""
    does: dict[str, Callable[[Job], dict[str, Any]]] = {
        "prepare": jobs.prepare, "judge": jobs.judge, "load": jobs.load, "segment": jobs.segment, "time": jobs.time,
    }  # fmt: skip
    return does[job["job"]](job)
