"""Differences between the outputs of original and result, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from dovetail.ir import name_of
from dovetail.text import pluralize
from dovetail_runtime.data.batches import batches
from dovetail_runtime.feeds import arrays_of

from dovetail_verify.metrics import DifferenceSums, Findings

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model


# Operators whose indices may be reordered without changing the meaning.
_FINDINGS: Mapping[str, Findings] = {"NonMaxSuppression": "rows", "TopK": "lists"}
RunFunction = Callable[[Mapping[str, "np.ndarray"]], dict[str, "np.ndarray"]]
"""Returns the outputs of a model for its inputs, both by name."""


class Pace:
    """The time that an original and its result take, so that a slow engine, such as a simulator, does not take hours.

    Attributes:
        spent: Seconds of each.
    """

    ORIGINAL, RESULT = 0, 1
    LONGEST = 120.0  # seconds of a slow result
    SLOW = 20.0  # times the seconds of the original

    def __init__(self) -> None:
        self.spent = [0.0, 0.0]

    def timed(self, which: int, run: RunFunction, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one of both."""
        start = time.perf_counter()
        found = run(feeds)
        self.spent[which] += time.perf_counter() - start
        return found

    @property
    def is_spent(self) -> bool:
        """Whether the result is slow and has taken its time."""
        ours, theirs = self.spent
        return theirs > self.LONGEST and theirs > self.SLOW * ours

    @property
    def said(self) -> str:
        """What a note says of it."""
        return f"the engine took {self.spent[self.RESULT]:.0f} s, the original {self.spent[self.ORIGINAL]:.1f} s"


Differences = Mapping[str, DifferenceSums]
"""The sums over one batch, by output."""


def by_batch(
    model: Model,
    original: RunFunction,
    result: RunFunction,
    data: object,
    made: Model | None,
    say: Callable[[str], None],
    whole: bool = False,
) -> Iterator[Differences]:
    """Run original and result on every batch of data, and yield the differences of each; see `compare.verify`.

    Args:
        model, original, result, data, made, whole: As there.
        say: Receives messages about arrays that were split, and about an engine that is too slow for all of the data.
    """
    pace = Pace()
    for count, (feeds, labels) in enumerate(batches(model, data, made, original, say=say), start=1):
        ours = pace.timed(pace.ORIGINAL, original, feeds)
        yield differences_of(model, ours, pace.timed(pace.RESULT, result, feeds), labels)
        if pace.is_spent and not whole:
            say(f"verified on the first {pluralize(count, 'batch')} only: {pace.said}")
            return


def differences_of(
    model: Model, ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray]
) -> Differences:
    """Return the differences of the outputs of one batch, of the original and of the result."""
    sums: dict[str, DifferenceSums] = {}
    findings = {
        name_of(v): _FINDINGS.get(node.op_type, "places") for v in model.graph.outputs if (node := v.producer())
    }
    labeled = labels.keys() & ours.keys()
    for position, (output, value) in enumerate(ours.items()):
        truth = labels.get(output, labels.get("") if position == 0 else None)
        given = arrays_of(output, theirs.get(output))
        for name, array in arrays_of(output, value).items():
            total = sums.setdefault(name, DifferenceSums())
            if name in given:
                scores = not labeled or output in labeled
                total.add(array, given[name], truth, findings.get(output, "places"), scores)
            else:
                total.broken += max(array.size, 1)
    return sums
