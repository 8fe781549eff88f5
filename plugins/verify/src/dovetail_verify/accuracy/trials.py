"""Trials: a request compiled with some nodes raised, run on the data, and compared with the original."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from dovetail.plugin import Proposal
from dovetail.text import pluralize

if TYPE_CHECKING:
    from dovetail.passes import Request
    from dovetail.planning import Plan
    from dovetail.plugin import CompiledModel, Measure, Steps

    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.compare import OutputVerification
    from dovetail_verify.measures import Compared


Noise = dict[tuple[str, str], float]
"""Noise energy relative to the signal, by output and kind: of the `whole` output, and in a `typical` row.

If answers change, the affected rows cause nearly all noise of the whole, which then does not add up. The noise of a
typical row does add up, but changed answers show only in the whole.
"""

LOW_FLOATS = ("bfloat16", "float16")
BROKEN = 1e30
"""Noise of an output that is not an approximation of the original."""


@dataclass(frozen=True)
class AccuracyTrial:
    """One trial: a compilation and its comparison.

    Attributes:
        raised: Names of the nodes that were raised.
        lowered: Names of the nodes that were kept low although nodes around them were raised.
        compiled: The result; None if it was released.
        verification: Its comparison with the original on the data.
    """

    raised: frozenset[str]
    lowered: frozenset[str]
    compiled: CompiledModel | None = field(repr=False)
    verification: OutputVerification

    @property
    def result(self) -> CompiledModel:
        """The result; requires that it was not released."""
        return cast("CompiledModel", self.compiled)

    @property
    def worst_snr_db(self) -> float:
        """The SNR of the worst float output; requires that there is one."""
        return cast("float", self.verification.worst_snr_db)

    @property
    def noise(self) -> Noise:
        """Noise of each output as a whole, and of floats in a typical row."""
        return {
            (output.name, kind): noise_of(snr_db)
            for output in self.verification.outputs
            for kind, snr_db in (("whole", output.rated_db), ("typical", output.typical_snr_db))
            if snr_db is not None
        }


class AccuracyTrials:
    """Trials of one request with nodes raised, and how many there were.

    Args:
        measure: Compares the results.
        level: What raised nodes are computed in: `high`, or `floats` of backends without integers.
        asks: The goal to name in remarks.
        request: The request; None for that of the compilation.

    Attributes:
        runs: Number of trials that were measured; repeated trials are cached.
    """

    def __init__(self, measure: Compared, level: str, asks: str, request: Request | None = None):
        self.runs = 0
        self.measured_by = measure
        self._level, self._asks, self._request = level, asks, request
        self._known: dict[tuple[frozenset[str], frozenset[str]], OutputVerification] = {}
        self._low: dict[tuple[frozenset[str], frozenset[str]], int] = {}
        self._latest: AccuracyTrial | None = None

    def run(self, raised: Collection[str], lowered: Collection[str] = (), why: str = "") -> Steps[AccuracyTrial]:
        """Compile with nodes raised and others kept low, run, and compare.

        Raises:
            DovetailError: The request cannot be compiled, or the result cannot be run on the data.
        """
        wanted = frozenset(raised), frozenset(lowered)
        if self._latest is not None and (self._latest.raised, self._latest.lowered) == wanted:
            return self._latest
        # Release the previous result first: two results of a large model need twice the memory.
        self._latest = None
        verification = self._known.get(wanted)
        why = why or (f"{pluralize(len(raised), 'node')} raised" if raised else "nothing raised")
        measure = None if verification is not None else self.measured_by
        if measure is not None:
            self.runs += 1
            measure.begins(self.runs)
        trial = yield self._proposal(*wanted, why, measure)
        if verification is None:
            self._known[wanted] = verification = cast("OutputVerification", trial.figure)
        self._low[wanted] = len(low_nodes(trial.result.plan))
        trial.result.verification = verification
        self._latest = AccuracyTrial(*wanted, trial.result, verification)
        return self._latest

    def proposed(self, trial: AccuracyTrial, why: str, measure: Measure) -> Proposal:
        """Return the proposal to measure the result of a trial in another way."""
        return self._proposal(trial.raised, trial.lowered, why, measure)

    def _proposal(self, raised: frozenset[str], lowered: frozenset[str], why: str, measure: Measure | None) -> Proposal:
        asked = dict.fromkeys(raised, (self._level, self._asks)) | dict.fromkeys(lowered, ("low", self._asks))
        return Proposal(why, asked, self._request, measure)

    def with_low_nodes(self, raised: frozenset[str], goals: Goals) -> tuple[frozenset[str], frozenset[str]]:
        """Return nodes to raise and nodes to keep low: another measured trial where raising takes all others along.

        A backend that begins regions at some operators only has nothing left once these are raised, while another
        selection that meets the goals as well leaves it some.

        Args:
            raised: The nodes that a search raises.
            goals: The goals that it meets.
        """
        if self._low.get((raised, frozenset()), 1):
            return raised, frozenset()
        meeting = [key for key, found in self._known.items() if self._low.get(key) and not goals.missed(found)]
        return max(meeting, key=lambda key: self._low[key], default=(raised, frozenset()))

    def knows(self, raised: Collection[str], lowered: Collection[str] = ()) -> bool:
        """Check whether a trial was measured."""
        return (frozenset(raised), frozenset(lowered)) in self._known

    def over(self, data: object, others: float = 0.0, is_search: bool = False) -> AccuracyTrials:
        """Return trials of the same request on other data; they share the cached outputs of the original."""
        measure = replace(self.measured_by, data=data, others=others, is_search=is_search)
        return AccuracyTrials(measure, self._level, self._asks, self._request)

    def measure(self, raised: Collection[str], lowered: Collection[str] = (), why: str = "") -> Steps[AccuracyTrial]:
        """Run a trial like `run`, or return its cached comparison without a result."""
        wanted = frozenset(raised), frozenset(lowered)
        if (known := self._known.get(wanted)) is not None:
            return AccuracyTrial(*wanted, None, known)
        return (yield from self.run(*wanted, why))


def low_nodes(plan: Plan) -> dict[str, str]:
    """Return the nodes of a plan that compute in integers or 16-bit floats, with their formats."""
    found: dict[str, str] = {}
    for node in plan.nodes:
        for format_ in (node.precision, *node.ports.values()):
            if format_ is not None and (format_.quantized or format_.element in LOW_FLOATS):
                found.setdefault(node.name, str(format_))
    return found


def integer_nodes(plan: Plan) -> list[str]:
    """Return the nodes of a plan that compute in integers, or have a port in them."""
    return [
        node.name
        for node in plan.nodes
        if any(format_ is not None and format_.quantized for format_ in (node.precision, *node.ports.values()))
    ]


def noise_of(snr_db: float) -> float:
    """Convert an SNR in decibels to noise energy relative to the signal."""
    return 0.0 if snr_db == math.inf else BROKEN if snr_db == -math.inf else min(10 ** (-snr_db / 10), BROKEN)


def decibels(noise: float) -> float:
    """Convert relative noise energy to an SNR in decibels: the inverse of `noise_of`."""
    return math.inf if noise <= 0 else -math.inf if noise >= BROKEN else -10 * math.log10(noise)
