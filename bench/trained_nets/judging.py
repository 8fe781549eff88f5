"""How far candidates are from ONNX Runtime in float32, and how fast they are, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from dovetail_verify.metrics import DifferenceSums

from trained_nets.candidates import Feeds, Run
from trained_nets.net import Stream

Clock = Callable[[], float]


@dataclass
class Quality:
    """What one output is worth, over all inputs.

    Attributes:
        difference: Sums of signal and noise.
        answers, same: Rows of scores, and those whose best class is the same.
    """

    difference: DifferenceSums = field(default_factory=DifferenceSums)
    answers: int = 0
    same: int = 0

    def add(self, expected: np.ndarray, found: np.ndarray) -> None:
        """One pair of arrays."""
        self.difference.add(expected, found)
        if expected.ndim and expected.shape[-1] > 1 and expected.shape == found.shape:
            same = expected.argmax(-1) == found.argmax(-1)
            self.answers += same.size
            self.same += int(same.sum())


def computed(run: Run, streams: Sequence[Stream], carried: Mapping[str, str]) -> list[dict[str, np.ndarray]]:
    """All outputs of all feeds; what is carried is fed back within each stream, by whom it was computed."""
    found = []
    for stream in streams:
        state: Feeds = {}
        for feeds in stream:
            results = run({**state, **feeds})
            state = {given: np.asarray(results[taken], np.float32) for taken, given in carried.items()}
            found.append(results)
    return found


def complete(streams: Sequence[Stream], results: Sequence[dict], carried: Mapping[str, str]) -> list[Feeds]:
    """All feeds one by one, with the state that `results` (of the same streams) carried to them."""
    found, at = [], 0
    for stream in streams:
        state: Feeds = {}
        for feeds in stream:
            found.append({**state, **feeds})
            state = {given: results[at][taken] for taken, given in carried.items()}
            at += 1
    return found


def qualities(expected: Sequence[dict], found: Sequence[dict]) -> dict[str, Quality]:
    """The quality of every float output."""
    judged = {name: Quality() for name, array in expected[0].items() if np.asarray(array).dtype.kind == "f"}
    for right, given in zip(expected, found, strict=True):
        for name, quality in judged.items():
            quality.add(np.asarray(right[name]), np.asarray(given[name]))
    return judged


def agreement(expected: Sequence[dict], found: Sequence[dict]) -> dict[str, float]:
    """The share of equal elements of every output of integers."""
    judged = {}
    for name in (name for name, array in expected[0].items() if np.asarray(array).dtype.kind in "iub"):
        pairs = [(np.asarray(right[name]), np.asarray(given[name])) for right, given in zip(expected, found)]
        equal = sum(int((a == b).sum()) if a.shape == b.shape else 0 for a, b in pairs)
        judged[name] = equal / max(1, sum(a.size for a, _ in pairs))
    return judged


def paired(first: Run, second: Run, feeds: Feeds, rounds: int, clock: Clock, at_least: float = 0.004) -> tuple:
    """Seconds of both per run, and the ratio of the first to the second, from alternating runs.

    Each round runs one and then the other, in the next round the other way round, for `at_least` seconds each and after
    a run that does not count, because threads of the other one may still spin. Seconds are the least of all rounds; the
    ratio is the median over pairs, which what else a shared machine does meets alike.
    """
    repeat = []
    for run in (first, second):
        run(feeds)
        start = clock()
        run(feeds)
        repeat.append(max(1, int(at_least / max(clock() - start, 1e-6))))
    count = max(1, min(repeat))
    times: list[list[float]] = [[], []]
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            run = (first, second)[which]
            run(feeds)
            start = clock()
            for _ in range(count):
                run(feeds)
            times[which].append((clock() - start) / count)
    ratio = statistics.median(a / max(b, 1e-9) for a, b in zip(*times, strict=True))
    return min(times[0]), min(times[1]), ratio
