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
    from dovetail.compiler import CompiledModel
    from dovetail.ir import Model

    from dovetail_verify.compare import Verification


Noise = dict[tuple[str, str], float]
"""The energy of noise as a share of the signal, by output and kind: of the `whole` output, and in a `typical` row.

Where answers change, the rows in which they do make nearly all of the noise of the whole, which then does not add up.
That of a typical row does, but whether an answer changes is seen in the whole alone.
"""

BROKEN = 1e30
"""The noise of an output that is no approximation of the original."""

_KEPT = 1 << 29  # bytes of the original's outputs that are kept between trials
Feeds = Mapping[str, "np.ndarray"]
Outputs = dict[str, "np.ndarray"]


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes:
        raised: Names of the nodes that were raised.
        lowered: Names of the nodes that were kept low, although all around them was raised.
        compiled: The result; None where it was let go.
        verification: How it compares with the original on the data.
    """

    raised: frozenset[str]
    lowered: frozenset[str]
    compiled: CompiledModel | None = field(repr=False)
    verification: Verification

    @property
    def result(self) -> CompiledModel:
        """The result, which was not let go."""
        return cast("CompiledModel", self.compiled)

    @property
    def worst_snr_db(self) -> float:
        """The SNR of the worst float output, of a model that has one."""
        return cast("float", self.verification.worst_snr_db)

    @property
    def noise(self) -> Noise:
        """The noise of each float output as a whole, and in a typical row."""
        return {
            (output.name, kind): noise_of(snr_db)
            for output in self.verification.outputs
            for kind, snr_db in (("whole", output.snr_db), ("typical", output.typical_snr_db))
            if snr_db is not None
        }


class Trials:
    """Runs trials of one request, and counts them.

    Args:
        original: The model.
        compile: Compiles the request with the nodes of these names raised, and of those kept low.
        reference: Runs the original.
        runner: What runs a result on the data of the original.
        data: See `dovetail_runtime.data.sources.read_data`.
        progress: Called with (what, done, total).
        cautious: Rate a result by what a batch like those seen is unlikely to fall below, and not by all of them as
            one.

    Attributes:
        runs: How many trials were run. What was tried before is not run again.
    """

    def __init__(
        self,
        original: Model,
        compile: Callable[[Collection[str], Collection[str]], CompiledModel],
        reference: Callable[[Feeds], Outputs],
        runner: Callable[[CompiledModel], Callable[[Feeds], Outputs]],
        data: object,
        progress: Callable[[str, int, int], None] | None = None,
        cautious: bool = False,
    ):
        self.runs = 0
        self.original = original
        self.data = data
        self.progress = progress
        self.cautious = cautious
        self._compile = compile
        self.reference = reference if isinstance(reference, Remembered) else Remembered(reference)
        self._runner = runner
        self._known: dict[tuple[frozenset[str], frozenset[str]], Verification] = {}
        self._latest: Trial | None = None

    def run(self, raised: Collection[str], lowered: Collection[str] = ()) -> Trial:
        """Compile with these nodes raised and those kept low, run, compare.

        Raises:
            DovetailError: The request cannot be compiled, or the result cannot be run on the data.
        """
        wanted = frozenset(raised), frozenset(lowered)
        if self._latest is not None and (self._latest.raised, self._latest.lowered) == wanted:
            return self._latest
        # The one before is let go first: two results of a large model need twice the memory.
        self._latest = None
        compiled = self._compile(*wanted)
        verification = self._known.get(wanted)
        if verification is None:
            self.runs += 1
            if self.progress:
                self.progress(f"accuracy, run {self.runs}", 0, 0)
            runner = self._runner(compiled)
            verification = verify(self.original, self.reference, runner, self.data, made=compiled.model)
            if self.cautious:
                verification = replace(verification, outputs=verification.cautious)
            self._known[wanted] = verification
        compiled.verification = verification
        self._latest = Trial(*wanted, compiled, verification)
        return self._latest

    def over(self, data: object, cautious: bool = False) -> Trials:
        """Trials of the same request on other data; what the original gave is remembered for both."""
        return Trials(self.original, self._compile, self.reference, self._runner, data, self.progress, cautious)

    def measure(self, raised: Collection[str], lowered: Collection[str] = ()) -> Trial:
        """As `run`; where that was tried before, nothing is compiled, and the trial holds no result."""
        wanted = frozenset(raised), frozenset(lowered)
        known = self._known.get(wanted)
        return self.run(*wanted) if known is None else Trial(*wanted, None, known)


def noise_of(snr_db: float) -> float:
    """The energy of the noise as a share of the signal, from decibels."""
    return 0.0 if snr_db == math.inf else BROKEN if snr_db == -math.inf else min(10 ** (-snr_db / 10), BROKEN)


def decibels(noise: float) -> float:
    """The inverse of `noise_of`."""
    return math.inf if noise <= 0 else -math.inf if noise >= BROKEN else -10 * math.log10(noise)


class Remembered:
    """Runs the original, and remembers what it gave for which inputs as far as memory is spared."""

    def __init__(self, run: Callable[[Feeds], Outputs]):
        self._run = run
        self._known: dict[str, Outputs] = {}
        self._size = 0

    def __call__(self, feeds: Feeds) -> Outputs:
        """The outputs of the original for some inputs."""
        # Batches may come in any order, and a function may give others every time.
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
