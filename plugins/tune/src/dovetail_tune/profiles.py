"""Profiles: the time of every distinct segment under every candidate, kept per machine and version."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail_runtime.machine import profile_folder

from dovetail_tune.candidates import Candidate
from dovetail_tune.exact_values import ExactValues
from dovetail_tune.journal import Journal
from dovetail_tune.pairwise_noise import Pairs, as_plain, from_plain
from dovetail_tune.race import RaceResult
from dovetail_tune.worker_pool import Pending, RaceMeasurement

if TYPE_CHECKING:
    from dovetail_tune.answers import Answer
    from dovetail_tune.segments import Segment
    from dovetail_tune.trial_runner import TrialRunner

_ROUNDS = 12
_LEAST = 0.5  # seconds
_FILE = "profiles.jsonl"
_OUTPUTS = "noise: expected a number for every output of the model"


def profile_cache(key: Mapping[str, str]) -> Journal:
    """Return the segments that were measured before; the costs of engines and borders are files beside these.

    Args:
        key: The fingerprint of the machine and its versions; profiles of others stay in the file and are not used.
    """
    return Journal(profile_folder() / _FILE, key)


class Profiles:
    """Compiles and times segments; a crash costs one candidate for one segment.

    Args:
        runner: Runs trials, on the pool that measures segments, too.
        candidates: The candidates, the baseline first.
        values: Inputs of the segments.
        folder: Where files of segments are written.
        cache: Profiles of earlier runs on this machine.
        step: Called with what is profiled.
    """

    def __init__(
        self,
        runner: TrialRunner,
        candidates: Sequence[Candidate],
        values: ExactValues,
        folder: Path,
        cache: Journal,
        step: Callable[[str], None],
    ):
        self._runner, self._candidates, self._values = runner, candidates, values
        self._folder, self._cache, self._step = folder, cache, step
        self.seconds: dict[tuple[int, int], float] = {}
        self.noise: dict[tuple[int, int], list[float]] = {}
        self.failed: dict[tuple[int, int], str] = {}
        self.was_cached = 0

    def measure(self, segments: Sequence[Segment]) -> None:
        """Fill `seconds` and `noise` by segment and candidate, and `failed` for those that have neither.

        Stops when the time is up, with some segments missing.

        Raises:
            LostError: No machine answers; the cache has everything up to then.
        """
        pool = self._runner.pool
        timed: set[str] = set()
        try:
            for begin in range(0, len(segments), pool.at_once):
                group = segments[begin : begin + pool.at_once]
                submitted = [(s, self._submitted(s, timed)) for s in group if not self._begun(s, len(segments))]
                for segment, pending in submitted:
                    if pending is not None:
                        self._take(segment, pending())
        except TimeoutError:
            return
        finally:
            pool.release(list(map(str, range(len(self._candidates)))))

    def pairs(self) -> Pairs:
        """Return the noise of pairs of choices, or what the journal says about it if no noise was measured anew."""
        found, known = self._values.errors.pairs(), self._runner.journal.find("pairs", "")
        if known is not None and len(known["pairs"]) >= len(found):
            if any(len(noise) != len(self._values.names) for *_, noise in known["pairs"]):
                raise self._runner.journal.invalid("pairs", "", _OUTPUTS)
            pairs = from_plain(known)
            if other := next((choice for pair in pairs for choice in pair if choice not in self.noise), None):
                raise self._runner.journal.invalid("pairs", "", f"pairs: there is no segment {list(other)}")
            return pairs
        self._runner.journal.record("pairs", "", pairs=as_plain(found))
        return found

    def elements_before(self, segment: Segment, inputs: Collection[str]) -> int:
        """Return how many numbers a segment reads from those in front of it, in the first batch.

        Args:
            segment: The segment.
            inputs: Names of the model's inputs, which cross no border.
        """
        return sum(math.prod(shape) for name, shape in self._shapes(segment).items() if name not in inputs)

    def _submitted(self, segment: Segment, timed: set[str]) -> Pending | None:
        """Submit a measurement that compiles and times the candidates of a segment; None if no time is left.

        Args:
            segment: The segment.
            timed: The structures that are timed by measurements; others like them are compiled only.
        """
        if self._runner.deadline.is_over:
            return None
        jobs = {str(n): self._job(segment, n) for n in range(len(self._candidates))}
        names = self._keys(segment)
        is_known = names[0] in timed or all(self._cache.find("segment", name) for name in names)
        timed.add(names[0])
        # None drops out: a slow segment of one plan is a number that the others are compared with.
        measurement = RaceMeasurement(jobs, 0 if is_known else _ROUNDS, math.inf, least=_LEAST)
        return self._runner.pool.measure(measurement, self._runner.deadline)

    def _take(self, segment: Segment, answer: Answer) -> None:
        """Take the answer of a measurement; times may be those of a segment of the same structure."""
        self.failed |= {(segment.index, int(name)): why for name, why in answer.failed.items()}
        for name in answer.found:
            self._measure_noise(segment, int(name))
        if answer.race.turns:
            self._keep(segment, answer.race)
        elif self._recall_times(segment, [int(name) for name in answer.found]):
            self.was_cached += 1

    def _begun(self, segment: Segment, total: int) -> bool:
        """Write the file of a segment; return whether everything about it is known."""
        self._step(f"segment {segment.index + 1} of {total}")
        segment.model.clone().save(self._file(segment), external=True)
        if self._recall(segment):
            self.was_cached += 1
            return True
        return False

    def _measure_noise(self, segment: Segment, number: int) -> None:
        """Measure what the outputs of a compiled segment do to the model's outputs."""
        candidate, outputs = self._candidates[number], self._outputs(segment, number)
        noise = [] if candidate.is_baseline else self._values.noise_of(segment, outputs, number)
        self.noise[segment.index, number] = noise = noise or [0.0] * len(self._values.names)
        self._runner.journal.record("noise", self._named(segment, candidate), noise=noise)

    def _recall(self, segment: Segment) -> bool:
        """Take times and noise of every candidate from earlier runs, if all of them are known."""
        names = self._keys(segment)
        times = [self._cache.find("segment", name) for name in names]
        noise = [self._runner.journal.find("noise", self._named(segment, c)) for c in self._candidates]
        if not all(times) or not all(noise):
            return False
        for number, (time, found) in enumerate(zip(times, noise)):
            if time and found:
                if len(found["noise"]) != len(self._values.names):
                    raise self._runner.journal.invalid("noise", found["name"], _OUTPUTS)
                self.seconds[segment.index, number] = time["seconds"]
                self.noise[segment.index, number] = found["noise"]
        return True

    def _recall_times(self, segment: Segment, numbers: Sequence[int]) -> bool:
        """Take the times of candidates from a segment of the same structure; return whether all are known."""
        names = self._keys(segment)
        known = {n: self._cache.find("segment", names[n]) for n in numbers}
        if not all(known.values()):
            return False
        self.seconds |= {(segment.index, n): entry["seconds"] for n, entry in known.items() if entry}
        return True

    def _keep(self, segment: Segment, result: RaceResult) -> None:
        """Take the times of a race, and keep them in the cache."""
        names, base = self._keys(segment), next(iter(result.turns))
        for name in result.turns:
            seconds = result.seconds(base) * result.ratio(name, base).median
            self.seconds[segment.index, int(name)] = seconds
            self._cache.record("segment", names[int(name)], seconds=seconds)

    def _job(self, segment: Segment, number: int) -> dict[str, object]:
        job = self._runner.job("segment", self._candidates[number])
        inputs, outputs = self._values.inputs_of(segment), self._outputs(segment, number)
        return {**job, "model": str(self._file(segment)), "data": str(inputs), "outputs": str(outputs)}

    def _file(self, segment: Segment) -> Path:
        return self._folder / f"segment_{segment.index}" / "segment.onnx"

    def _outputs(self, segment: Segment, number: int) -> Path:
        return self._folder / f"segment_{segment.index}" / f"outputs_{number}"

    def _keys(self, segment: Segment) -> list[str]:
        """Return what the time of a segment depends on, per candidate."""
        shapes = " ".join("x".join(map(str, shape)) for shape in self._shapes(segment).values())
        key = f"{segment.key} {shapes}"
        return [f"{key} {candidate.name} x{self._runner.pool.settings.callers}" for candidate in self._candidates]

    @staticmethod
    def _named(segment: Segment, candidate: Candidate) -> str:
        return f"{segment.index} {candidate.name}"

    def _shapes(self, segment: Segment) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the timed inputs, which an open extent leaves out of the structure, by name."""
        import numpy as np

        first = min(self._values.inputs_of(segment).glob("*.npz"))
        with np.load(first) as file:
            return {name: file[name].shape for name in sorted(file.files)}
