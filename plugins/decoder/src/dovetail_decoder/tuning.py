"""Tuning of a language model: results compete by the time per token, within goals on the next token."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.errors import DovetailError, UsageError
from dovetail.passes import BackendChoice
from dovetail.planning import HOST
from dovetail.plugin import TemporaryFolder, Tool, ToolEndedError
from dovetail.plugin.loading import load_chosen
from dovetail.text import pluralize
from dovetail_runtime.machine import fingerprint
from dovetail_tune.data_folders import save_arrays
from dovetail_tune.journal import Journal
from dovetail_tune.statistics_of_pairs import MARGIN, ratio_of
from dovetail_verify.accuracy.goals import Goals

from dovetail_decoder.comparison import compared
from dovetail_decoder.manifest import MANIFEST
from dovetail_decoder.measure import measured
from dovetail_decoder.reading import read_folder
from dovetail_decoder.runtime_option import KEYWORD
from dovetail_decoder.saving import left_out
from dovetail_decoder.timing import Times, timed
from dovetail_decoder.tokens import read_prompts
from dovetail_decoder.tuned_generator import Trial, TunedGenerator

if TYPE_CHECKING:
    from dovetail.plugin import PluginSet
    from dovetail_tune.deadline import Deadline

    from dovetail_decoder.folder import GeneratorFolder
    from dovetail_decoder.measure import Measurement
    from dovetail_decoder.tokens import Prompt

DEFAULTS = (
    "cpu-int8:weights=int4,kernel=nbits,accuracy_level=4",
    "cpu-int8:weights=int4,kernel=nbits,accuracy_level=4,embedding=as-weights",
    "cpu-int8:weights=int4,kernel=nbits,accuracy_level=4,scheme=asymmetric",
    "cpu-int8:weights=int4,kernel=nbits,accuracy_level=4,scheme=asymmetric,block=128",
    "cpu-int8:weights=int4,kernel=nbits,accuracy_level=4,scheme=asymmetric,block=128,embedding=as-weights",
    "cpu-int8:weights=int8-blocks,kernel=nbits,accuracy_level=4",
    "cpu-int8:weights=int4,kernel=nbits,accuracy_level=1",
    "cpu-int8:weights=int4,kernel=qdq",
    "cpu-int8:weights=int4,scheme=asymmetric --runtime openvino-genai",
    "cpu-bf16",
    "gpu-fp16",
    "gpu-fp16:attention=fused",
)
"""What is tried of a backend that is named without options: formats, the accuracy of products, and attention as the
operator that the source has (`nbits`) or written out in ONNX (`qdq`, and backends that do not take it). What has a
runtime runs in OpenVINO, its caches as states."""
_RUNTIME = " --runtime "

STREAMS = 8
"""Texts of a batch for `throughput`."""

_GOALS = ("max_kl", "min_top1", "max_perplexity_rise")
_FEWEST, _MOST = 3, 6  # rounds of the race
_TURN = 60.0  # seconds that a turn of it may take, whatever is left of the budget
_TRYING = 0.7  # share of the budget after which no candidate is compiled
_SHARE, _LIKE_FIRST = 0.5, 3.0  # of the time that is left, and times what the first took: what a candidate may take


class GeneratorTuner:
    """Compiles, judges and times candidates for one folder.

    Args:
        source: The folder.
        prompts: Half of them are used for calibration, the others to check goals; the first one is timed.
        goals: Goals over the next token.
        streams: Texts that are made at the same time.
        place: Folder for results and the journal.
        journal: The results of earlier runs.
        deadline: When to stop.
        progress: Called with (what, done, total).
    """

    def __init__(
        self,
        source: GeneratorFolder,
        prompts: Sequence[Prompt],
        goals: Goals,
        streams: int,
        place: Path,
        journal: Journal,
        deadline: Deadline,
        progress: Callable[[str, int, int], None] | None,
    ):
        self._source, self._goals, self._streams = source, goals, streams
        self._calibrate = list(prompts[::2])
        self._judge = list(prompts[1::2]) or self._calibrate
        self._place, self._journal, self._deadline = place, journal, deadline
        self._trying = deadline.until(_TRYING)
        self._compile_seconds = 0.0  # of the first candidate
        self._progress = progress or (lambda what, done, total: None)
        self.notes = [
            f"accuracy is that of {len(self._judge)} of {pluralize(len(prompts), 'prompt')}; the others calibrate"
            if len(prompts) > 1
            else "the prompt that accuracy is measured on also calibrates, since there is one"
        ]

    def run(self, specs: Sequence[str], threads: Sequence[int]) -> list[Trial]:
        """Compile and judge all candidates, and race those that meet the goals.

        Args:
            specs: Backends with their options; the first one is the baseline.
            threads: Thread counts to try; 0 for ONNX Runtime's own choice.

        Raises:
            DovetailError: The source does not run.
        """
        before = measured(self._source, self._judge)
        trials = []
        for number, spec in enumerate(specs):
            self._progress(f"compiling {spec}", number, len(specs))
            found = self._tried(spec, before)
            trials += [found.with_threads(count) for count in threads]
        self._race([trial for trial in trials if trial.meets])
        return trials

    def _tried(self, spec: str, before: Measurement) -> Trial:
        """Compile a candidate, if no earlier run did, and judge it."""
        folder = self._place / "results" / re.sub(r"[^A-Za-z0-9=-]+", "_", spec)
        known = self._journal.find("folder", spec)
        if known is None or (known["status"] == "prepared" and not (folder / MANIFEST).is_file()):
            if self._trying.is_over:
                return Trial(spec, folder, why="not tried: the time is up", is_tried=False)
            try:
                known = self._journal.record("folder", spec, **self._prepared(spec, folder, before))
            except ToolEndedError:  # of which no journal speaks
                return Trial(spec, folder, why="not tried to the end: the time is up", is_tried=False)
        trial = Trial(spec, folder, why=known["why"])
        if known["status"] == "prepared":
            trial.kl, trial.top1, trial.agreement = known["kl"], known["top1"], known["agreement"]
            trial.bytes, trial.memory, trial.rise = known["bytes"], known["memory"], known["rise"]
            trial.why = self._missed(trial)
            trial.meets = not trial.why
        return trial

    def _prepared(self, spec: str, folder: Path, before: Measurement) -> dict[str, object]:
        nothing = {"kl": 0.0, "top1": 0.0, "agreement": 0.0, "bytes": 0, "memory": None, "rise": None}
        begun = self._trying.elapsed
        try:
            self._compile(spec, folder)
            self._compile_seconds = self._compile_seconds or self._trying.elapsed - begun
            comparison = compared(self._source, read_folder(folder), self._judge, before, True)
        except DovetailError as error:
            if isinstance(error, ToolEndedError) and error.is_late:
                raise
            return {"status": "failed", "why": error.message, **nothing}
        return {
            "status": "prepared", "why": "", "kl": comparison.kl, "top1": comparison.top1,
            "agreement": comparison.agreement, "bytes": comparison.sizes[1], "memory": comparison.result.memory,
            "rise": comparison.rise,
        }  # fmt: skip

    def _compile(self, spec: str, folder: Path) -> None:
        """Compile in a separate process, whose crash affects only this candidate.

        Raises:
            ToolEndedError: The process ends, or takes longer than it may.
            DovetailError: It fails.
        """
        folder.parent.mkdir(parents=True, exist_ok=True)
        share = max(_SHARE * self._trying.remaining, _LIKE_FIRST * self._compile_seconds)
        with Tool.start("dovetail_decoder.tuning", title="its process") as tool:
            tool.ask(
                "compile_candidate", self._trying.within(share).remaining, folder=str(self._source.path), spec=spec,
                data=str(self._data()), output=str(folder),
            )  # fmt: skip

    def _data(self) -> Path:
        """Return a file with the prompts that calibrate, one per row."""
        path = self._place / "calibrate.npz"
        if not path.is_file():
            self._place.mkdir(parents=True, exist_ok=True)
            save_arrays(path, _stacked(self._calibrate))
        return path

    def _missed(self, trial: Trial) -> str:
        if self._goals.max_kl is not None and trial.kl is not None and trial.kl > self._goals.max_kl:
            return f"misses --max-kl {self._goals.max_kl:g}"
        if self._goals.min_top1 is not None and trial.top1 is not None and trial.top1 < self._goals.min_top1:
            return f"misses --min-top1 {self._goals.min_top1:g}: {trial.top1:.3f}"
        most = self._goals.max_perplexity_rise
        if most is not None and trial.rise is None:
            return "its perplexity is not known: it gives no scores of the prompt's own tokens"
        if most is not None and trial.rise is not None and trial.rise > most:
            return f"misses --max-perplexity-rise {100 * most:g}%: {100 * trial.rise:.3g} %"
        return ""

    def _race(self, trials: Sequence[Trial]) -> None:
        """Time candidates in alternating turns, each in a fresh process; those that are clearly slower drop out."""
        active = list(trials)
        for number in range(_MOST):
            if (number and self._deadline.is_over) or not active:
                break
            self._progress("timing", number, _MOST)
            for trial in active if number % 2 == 0 else reversed(active):
                if number and self._deadline.is_over:
                    break
                try:
                    trial.turns.append(self._turn(trial))
                except DovetailError as error:
                    trial.why, trial.meets = error.message, False
            active = [trial for trial in active if trial.meets]
            if number + 1 >= _FEWEST and active:
                leader = min(active, key=lambda trial: trial.token)
                ratios = {id(trial): ratio_of(trial.tokens, leader.tokens) for trial in active}
                active = [trial for trial in active if trial is leader or ratios[id(trial)].low <= 1 + MARGIN]
                if len(active) == 1:
                    break

    def _turn(self, trial: Trial) -> Times:
        limit = max(self._deadline.remaining, _TURN)
        return timed(read_folder(trial.folder), self._judge[0], trial.threads, self._streams, limit)


def tune_folder(
    source: GeneratorFolder,
    plugins: PluginSet,
    *,
    backends: str | Sequence[str] = (),
    data: object = None,
    measure: str = "latency",
    threads: Sequence[int] = (),
    budget: float | str | None = None,
    journal: str | Path | None = None,
    cluster: str | None = None,
    plot: object = None,
    progress: Callable[[str, int, int], None] | None = None,
    **goals: float | str | None,
) -> TunedGenerator:
    """Find the fastest result of a folder within goals over the next token; see `dovetail.tune` for the keywords.

    Raises:
        UsageError: There is no goal, no data, or a keyword that makes no sense for a folder.
        DovetailError: The folder or the data is at fault, or the source does not run.
    """
    from dovetail_tune.deadline import Deadline

    if cluster or plot:
        raise UsageError(f"--{'cluster' if cluster else 'plot'} is for single models", "leave it out")
    asked = {name: value for name, value in goals.items() if value is not None}
    if extra := next((name for name in asked if name not in _GOALS), None):
        option = f"--{extra.replace('_', '-')}"
        raise UsageError(
            f"{option} is no goal over the next token", "name --max-kl, --min-top1 or --max-perplexity-rise"
        )
    found = Goals(**{name: asked.get(name) for name in _GOALS})  # type: ignore[arg-type]  # texts are converted
    if not found:
        raise UsageError(
            "no goal says how accurate the result must be",
            "add --max-kl 0.05, --min-top1 90%, or --max-perplexity-rise 5%",
        )
    if data is None:
        raise UsageError("there are no prompts to tune on", "add --data prompts.txt")
    if any(count < 0 for count in threads):
        raise UsageError(f"--threads {','.join(map(str, threads))}: numbers from 0 are expected")
    deadline = Deadline(budget)
    specs = specs_of((backends,) if isinstance(backends, str) else backends, plugins)
    prompts = read_prompts(data, source)
    streams = STREAMS if measure == "throughput" else 1
    with ExitStack() as stack:
        place = Path(journal) if journal is not None else stack.enter_context(TemporaryFolder("tune"))
        owned = [record.distribution for record in plugins.plugins if record.status == "ok" and record.distribution]
        key = {
            "model": _digest(_files(source)), "data": _digest(_words(prompts)), "goals": "next token, perplexity",
            "mode": "generator", **fingerprint(owned),
        }  # fmt: skip
        book = Journal(place / "journal.jsonl" if journal is not None else None, key)
        if not len(book):  # of another model or other prompts
            (place / "calibrate.npz").unlink(missing_ok=True)
        tuner = GeneratorTuner(source, prompts, found, streams, place, book, deadline, progress)
        tuner.notes += left_out(source)
        trials = tuner.run(specs, tuple(threads) or (0,))
        return TunedGenerator(source, trials, tuner.notes, streams, stack.pop_all())


def specs_of(backends: Sequence[str], plugins: PluginSet) -> list[str]:
    """Return the candidates as backends with options, the host first.

    Raises:
        UsageError: There is no backend or option of a name.
    """
    known = set(plugins.registry.backend)
    found = [HOST]
    for given in backends or sorted({spec.partition(":")[0] for spec in DEFAULTS} & known):
        choice = BackendChoice.parse(given)
        if choice.name != HOST:
            load_chosen(plugins.registry, choice)
        several = [spec for spec in DEFAULTS if spec.partition(":")[0] == given and _is_here(spec)]
        found += several or [given]
    return list(dict.fromkeys(found))


def _is_here(spec: str) -> bool:
    """Check whether what a candidate's runtime needs is installed."""
    return _RUNTIME not in spec or find_spec("openvino_tokenizers") is not None


def _stacked(prompts: Sequence[Prompt]) -> dict[str, np.ndarray]:
    """Return prompts as rows, with a mask where they are not equally long."""
    longest = max(len(prompt.ids) for prompt in prompts)
    ids, mask = (np.zeros((len(prompts), longest), np.int64) for _ in range(2))
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt.ids)], mask[row, : len(prompt.ids)] = prompt.ids, 1
    others = {name: np.concatenate([prompt.others[name] for prompt in prompts]) for name in prompts[0].others}
    return {"input_ids": ids, "attention_mask": mask, **others}


def _files(source: GeneratorFolder) -> Iterator[bytes]:
    for file in sorted(source.path.rglob("*")):
        if file.is_file():
            state = file.stat()
            yield f"{file.relative_to(source.path)} {state.st_size} {state.st_mtime_ns}".encode()
    yield json.dumps(source.document, sort_keys=True).encode()


def _words(prompts: Sequence[Prompt]) -> Iterator[bytes]:
    for prompt in prompts:
        arrays: Mapping[str, np.ndarray] = {"ids": prompt.ids, **prompt.others}
        for name in sorted(arrays):
            yield name.encode() + np.ascontiguousarray(arrays[name]).tobytes()


def _digest(parts: Iterator[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(f"{len(part)}:".encode() + part)
    return found.hexdigest()


def compile_candidate(folder: str, spec: str, data: str, output: str) -> None:
    """Compile one candidate in this process, as the function of a worker; its accuracy is measured later."""
    import dovetail

    backend, _, runtime = spec.partition(_RUNTIME)
    request: dict[str, Any] = {KEYWORD: runtime} if runtime else {}
    dovetail.compile(folder, backend, data=Path(data), verify=False, **request).save(output)
