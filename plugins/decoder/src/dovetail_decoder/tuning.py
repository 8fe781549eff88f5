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

from dovetail_decoder.comparison import compared, missed_goals
from dovetail_decoder.manifest import MANIFEST
from dovetail_decoder.measure import measured
from dovetail_decoder.reading import read_folder
from dovetail_decoder.runtime_option import KEYWORD
from dovetail_decoder.saving import left_out
from dovetail_decoder.timing import Times, timed
from dovetail_decoder.tokens import read_prompts
from dovetail_decoder.tuned_generator import Trial, TunedGenerator, winner_of

if TYPE_CHECKING:
    from dovetail.plugin import PluginSet
    from dovetail_tune.deadline import Deadline

    from dovetail_decoder.folder import GeneratorFolder
    from dovetail_decoder.measure import Measurement
    from dovetail_decoder.tokens import Prompt

_NBITS = "cpu-int8:weights=int4,kernel=nbits,accuracy_level=4"
DEFAULTS = {
    _NBITS: "weights of 4 bits in the operators of ONNX Runtime, whose products are in 8 bits",
    f"{_NBITS},embedding=as-weights": "embeddings of 4 bits, too",
    f"{_NBITS},scheme=asymmetric": "weights with zero points",
    f"{_NBITS},scheme=asymmetric,block=128": "zero points and larger blocks",
    f"{_NBITS},scheme=asymmetric,block=128,embedding=as-weights": "zero points, larger blocks, embeddings of 4 bits",
    "cpu-int8:weights=int8-blocks,kernel=nbits,accuracy_level=4": "weights of 8 bits in blocks",
    "cpu-int8:weights=int4,kernel=nbits,accuracy_level=1": "weights of 4 bits, products in float32",
    "cpu-int8:weights=int4,kernel=qdq": "weights of 4 bits in standard ONNX, attention written out",
    "cpu-int8:weights=int4,scheme=asymmetric --runtime openvino-genai": "OpenVINO, with caches as states",
    "cpu-bf16": "16-bit floats",
    "gpu-fp16": "16-bit floats, attention as the source has it",
    "gpu-fp16:attention=fused": "16-bit floats, attention as one operator",
}
"""What is tried of a backend that is named without options, and why it may be the fastest."""
_RUNTIME = " --runtime "

STREAMS = 8
"""Texts of a batch for `throughput`."""

_GOALS = ("max_kl", "min_top1", "max_perplexity_rise")
_FEWEST, _MOST = 3, 6  # rounds of the race
_TURN = 60.0  # seconds that a turn of it may take, whatever is left of the budget
_TRYING = 0.7  # share of the budget after which no candidate is compiled
_JUDGED = 2  # results that the prompts which judge may see
_SHARE, _LIKE_FIRST = 0.5, 3.0  # of the time that is left, and times what the first took: what a candidate may take


class GeneratorTuner:
    """Compiles, compares and times candidates for one folder, and judges the fastest.

    Args:
        source: The folder.
        prompts: Half of them calibrate, a quarter compares candidates, of which the first one is timed, and the others
            judge the winner.
        goals: Goals over the next token.
        streams: Texts that are made at the same time.
        place: Folder for results and the journal.
        journal: The results of earlier runs.
        deadline: When to stop.
        progress: Called with (what, done, total).

    Attributes:
        judged: What the winner has on the prompts that judge, in words; empty if it was not judged.
        notes: What the figures are of, as sentences.
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
        self._compare = list(prompts[1::4]) or self._calibrate
        self._judge = list(prompts[3::4])
        self._place, self._journal, self._deadline = place, journal, deadline
        self._trying = deadline.until(_TRYING)
        self._compile_seconds = 0.0  # of the first candidate
        self._progress = progress or (lambda what, done, total: None)
        self.judged = ""
        self.notes = [_about(len(prompts), len(self._compare), len(self._judge))]

    def run(self, specs: Mapping[str, str], threads: Sequence[int]) -> list[Trial]:
        """Compile and compare all candidates, race those that meet the goals, and judge the fastest.

        Args:
            specs: Backends with their options, each with the reason to try it; the first one is the baseline.
            threads: Thread counts to try; 0 for ONNX Runtime's own choice.

        Raises:
            DovetailError: The source does not run.
        """
        before = measured(self._source, self._compare)
        trials = []
        for number, (spec, reason) in enumerate(specs.items()):
            self._progress(f"compiling {spec}: {reason}", number, len(specs))
            found = self._tried(spec, before)
            found.reason = reason
            trials += [found.with_threads(count) for count in threads]
        self._race([trial for trial in trials if trial.meets])
        self._judge_winner(trials)
        return trials

    def _judge_winner(self, trials: Sequence[Trial]) -> None:
        """Judge the fastest on prompts that no candidate saw, and the next one if it misses; then the baseline wins.

        More results than two are not shown to these prompts, or they would choose the winner.
        """
        before = None
        for tries in range(_JUDGED + 1 if self._judge else 0):
            winner = winner_of(trials)
            if winner is None or winner.spec == HOST:
                return
            missed = ["two others missed the goal on prompts that no candidate saw, which may judge no third one"]
            if tries < _JUDGED:
                known = self._journal.find("folder judged", winner.spec)
                if known is None:
                    before = before or measured(self._source, self._judge)
                    found = compared(self._source, read_folder(winner.folder), self._judge, before, True)
                    figures = {"kl": found.kl, "top1": found.top1, "rise": found.rise}
                    known = self._journal.record("folder judged", winner.spec, **figures)
                figure = f"KL {known['kl']:.3g}, the same next token in {100 * known['top1']:.2f} %"
                missed = missed_goals(self._goals.as_dict(), known["kl"], known["top1"], known["rise"])
                if not missed:
                    self.judged = figure
                    return
                missed = [f"on prompts that no candidate saw: {one}" for one in missed]
            losing = [one for one in trials if one.spec == winner.spec or tries == _JUDGED and one.spec != HOST]
            for trial in losing:  # with any number of threads
                trial.meets, trial.why = False, trial.why or "; ".join(missed)

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
            goals = self._goals.as_dict()
            trial.why = "; ".join(missed_goals(goals, known["kl"], known["top1"], known["rise"]))
            trial.meets = not trial.why
        return trial

    def _prepared(self, spec: str, folder: Path, before: Measurement) -> dict[str, object]:
        nothing = {"kl": 0.0, "top1": 0.0, "agreement": 0.0, "bytes": 0, "memory": None, "rise": None}
        begun = self._trying.elapsed
        try:
            self._compile(spec, folder)
            self._compile_seconds = self._compile_seconds or self._trying.elapsed - begun
            comparison = compared(self._source, read_folder(folder), self._compare, before, True)
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
        return timed(read_folder(trial.folder), self._compare[0], trial.threads, self._streams, limit)


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
    device: str | None = None,
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

    for option, given in (("cluster", cluster), ("device", device), ("plot", plot)):
        if given:
            raise UsageError(f"--{option} is for single models", "leave it out")
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
        return TunedGenerator(source, trials, tuner.notes, streams, stack.pop_all(), tuner.judged)


def _about(prompts: int, comparing: int, judging: int) -> str:
    """Say which prompts the figures are of."""
    if prompts == 1:
        return "the prompt that accuracy is measured on also calibrates, since there is one"
    text = f"accuracy is that of {comparing} of {pluralize(prompts, 'prompt')}"
    if not judging:
        return f"{text}, on which the winner was chosen, too: with four or more, others judge it; the rest calibrate"
    return f"{text}; {judging} others judge the winner, and the rest calibrate"


def specs_of(backends: Sequence[str], plugins: PluginSet) -> dict[str, str]:
    """Return the candidates as backends with options, the host first, each with the reason to try it.

    Raises:
        UsageError: There is no backend or option of a name.
    """
    known = set(plugins.registry.backend)
    found = {HOST: "the source as it is"}
    for given in backends or sorted({spec.partition(":")[0] for spec in DEFAULTS} & known):
        choice = BackendChoice.parse(given)
        if choice.name != HOST:
            load_chosen(plugins.registry, choice)
        several = {spec: why for spec, why in DEFAULTS.items() if spec.partition(":")[0] == given and _is_here(spec)}
        found = found | (several or {given: "as it is named"}) if given != HOST else found
    return found


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
