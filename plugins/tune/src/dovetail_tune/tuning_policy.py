"""The contract of policies: what a tuning tries next, by what it has measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dovetail.plugin import Proposer

from dovetail_tune.candidates import Candidate, CandidateSet
from dovetail_tune.trial import CandidateTrial

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.plugin import PluginSet

    from dovetail_tune.trial_runner import TrialRunner


@dataclass(frozen=True)
class TuningContext:
    """The tuning that a policy proposes candidates for.

    Attributes:
        model: The source model, which is not to be changed.
        plugins: The plugins, with their registry.
        candidates: What competes without any policy's doing: the host, backends, and their options.
        runner: Compiles, compares and times candidates; its `deadline` is that of the policy.
        is_mixed: Whether plans that mix candidates are wanted.
        step: Shows what is being done.
    """

    model: Model
    plugins: PluginSet
    candidates: CandidateSet
    runner: TrialRunner
    is_mixed: bool
    step: Callable[[str], None]


@dataclass(frozen=True)
class Conclusion:
    """What a policy knows of all plans once the winner is known.

    Attributes:
        certificate: How far the winner may be from the best plan, as a sentence; empty without one.
        front: Predicted plans that are the fastest for their noise, as (share of the host's time, SNR in dB).
    """

    certificate: str = ""
    front: Sequence[tuple[float, float]] = ()


class TuningPolicy(Proposer[Candidate, CandidateTrial]):
    """Proposes candidates of one tuning; several of them may be tried at the same time, so that trials come later.

    `registry.tuning_policy` registers a class, which is called with the tuning's context.

    Args:
        context: The tuning.

    Attributes:
        order: Policies propose one after the other, the lowest number first. Those of `dovetail-tune` have 10
            (defaults), 20 (defaults raised), 30 (options), 40 (options raised), 50 (options together) and 60 (mixed).
        share: The share of the budget, from 0 to 1, after which it proposes nothing more.
        notes: What users should know of its proposals, as sentences.
    """

    order: ClassVar[float]
    share: ClassVar[float]

    def __init__(self, context: TuningContext):
        self.context = context
        self.notes: list[str] = []

    def doubt(self, name: str, measured: float) -> str:
        """Return why a candidate of this policy must not win, as a clause for its row; empty if it may.

        Args:
            name: A candidate of any policy.
            measured: Its time, relative to the baseline's.
        """
        return ""

    def conclude(self, ratios: Mapping[str, float], winner: float | None) -> Conclusion:
        """Return what is known of all plans after the last race.

        Args:
            ratios: The times of candidates in that race, relative to the baseline's.
            winner: That of the winner; None if there is no winner.
        """
        return Conclusion()
