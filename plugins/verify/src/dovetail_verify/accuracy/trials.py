"""Trials: a request compiled with some nodes raised, run on the data, and compared with the original."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from dovetail_runtime.data.sources import data_digest

from dovetail_verify.compare import verify

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model
    from dovetail.planning import Plan
    from dovetail.plugin import CompiledModel

    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.compare import OutputVerification


Noise = dict[tuple[str, str], float]
"""Noise energy relative to the signal, by output and kind: of the `whole` output, and in a `typical` row.

If answers change, the affected rows cause nearly all noise of the whole, which then does not add up. The noise of a
typical row does add up, but changed answers show only in the whole.
"""

LOW_FLOATS = ("bfloat16", "float16")
BROKEN = 1e30
"""Noise of an output that is not an approximation of the original."""

_KEPT = 1 << 29  # bytes of the original's outputs kept between trials
Feeds = Mapping[str, "np.ndarray"]
Outputs = dict[str, "np.ndarray"]


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
    """Runs trials of one request, and counts them.

    Args:
        original: The model.
        compile: Compiles the request, given the names of nodes to raise and of nodes to keep low, and whether the
            result is only a trial; see `dovetail.plugin.Emitter.matches_plan`.
        reference: Runs the original.
        runner: Creates a function that runs a result on the original's data.
        data: See `dovetail_runtime.data.sources.read_data`.
        progress: Called with (what, done, total).
        others: Rate a result by what so many other batches are likely to reach together, as a multiple of those of the
            data; 0 for what those of the data reach.
        searching: The results are trials of a search, of which none is proposed before it is judged.
        compare_elsewhere: Compares a result on data in other processes, given for how many others it is rated; returns
            None where there are none, or they cannot.

    Attributes:
        runs: Number of trials run; repeated trials are cached.
    """

    def __init__(
        self,
        original: Model,
        compile: Callable[[Collection[str], Collection[str], bool], CompiledModel],
        reference: Callable[[Feeds], Outputs],
        runner: Callable[[CompiledModel], Callable[[Feeds], Outputs]],
        data: object,
        progress: Callable[[str, int, int], None] | None = None,
        others: float = 0.0,
        searching: bool = False,
        compare_elsewhere: Callable[[CompiledModel, object, float], OutputVerification | None] = lambda *_: None,
    ):
        self.runs = 0
        self.original = original
        self.data = data
        self.progress = progress
        self.others, self.searching = others, searching
        self._compile = compile
        self.reference = reference if isinstance(reference, CachedOriginal) else CachedOriginal(reference)
        self._runner = runner
        self._compare_elsewhere = compare_elsewhere
        self._known: dict[tuple[frozenset[str], frozenset[str]], OutputVerification] = {}
        self._low: dict[tuple[frozenset[str], frozenset[str]], int] = {}
        self._latest: AccuracyTrial | None = None

    def run(self, raised: Collection[str], lowered: Collection[str] = ()) -> AccuracyTrial:
        """Compile with nodes raised and others kept low, run, and compare.

        Raises:
            DovetailError: The request cannot be compiled, or the result cannot be run on the data.
        """
        wanted = frozenset(raised), frozenset(lowered)
        if self._latest is not None and (self._latest.raised, self._latest.lowered) == wanted:
            return self._latest
        # Release the previous result first: two results of a large model need twice the memory.
        self._latest = None
        compiled = self._compile(*wanted, self.searching)
        self._low[wanted] = len(low_nodes(compiled.plan))
        verification = self._known.get(wanted)
        if verification is None:
            self._known[wanted] = verification = self._compared(compiled)
        compiled.verification = verification
        self._latest = AccuracyTrial(*wanted, compiled, verification)
        return self._latest

    def _compared(self, compiled: CompiledModel) -> OutputVerification:
        self.runs += 1
        if self.progress:
            self.progress(f"accuracy, run {self.runs}", 0, 0)
        verification = self._compare_elsewhere(compiled, self.data, self.others)
        if verification is None:
            run, made = self._runner(compiled), compiled.model
            whole = compiled.artifacts is None  # programs may run in a simulator
            verification = verify(
                self.original, self.reference, run, self.data, made=made, others=self.others, whole=whole
            )
        return replace(verification, outputs=verification.cautious) if self.others else verification

    def judged(self, trial: AccuracyTrial) -> AccuracyTrial:
        """Compare the result of another trial on this data, without compiling it once more."""
        verification = self._compared(trial.result)
        self._known[trial.raised, trial.lowered] = trial.result.verification = verification
        self._latest = AccuracyTrial(trial.raised, trial.lowered, trial.result, verification)
        return self._latest

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

    def over(self, data: object, others: float = 0.0, searching: bool = False) -> AccuracyTrials:
        """Return trials of the same request on other data; they share the cached outputs of the original."""
        return AccuracyTrials(
            self.original, self._compile, self.reference, self._runner, data, self.progress, others, searching,
            self._compare_elsewhere,
        )  # fmt: skip

    def measure(self, raised: Collection[str], lowered: Collection[str] = ()) -> AccuracyTrial:
        """Run a trial like `run`, or return its cached comparison without a result."""
        wanted = frozenset(raised), frozenset(lowered)
        known = self._known.get(wanted)
        return self.run(*wanted) if known is None else AccuracyTrial(*wanted, None, known)


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


class CachedOriginal:
    """Runs the original, and caches its outputs by input within a memory limit."""

    def __init__(self, run: Callable[[Feeds], Outputs]):
        self._run = run
        self._known: dict[str, Outputs] = {}
        self._size = 0

    def __call__(self, feeds: Feeds) -> Outputs:
        """Return the outputs of the original for given inputs."""
        # Key the cache by content: batches may come in any order, and a function may return different ones each time.
        if not all(hasattr(array, "dtype") for array in feeds.values()):
            return self._run(feeds)  # sequences have no digest
        key = data_digest(dict(feeds))
        if key in self._known:
            return self._known[key]
        outputs = self._run(feeds)
        size = sum(getattr(array, "nbytes", _KEPT) for array in outputs.values())
        if self._size + size <= _KEPT:
            self._size += size
            self._known[key] = outputs
        return outputs
