"""The installed policies: made for one tuning, in order; what one raises or returns wrongly ends that one alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from dovetail.errors import DovetailError
from dovetail.plugin.loading import Table, calling, made, proposals
from dovetail_commands.sent_tasks import LostError

from dovetail_tune.candidates import Candidate
from dovetail_tune.trial import CandidateTrial
from dovetail_tune.tuning_policy import Conclusion, TuningContext, TuningPolicy

T = TypeVar("T")


class InstalledPolicy:
    """A policy with its distribution, for messages.

    Args:
        policy: The policy.
        title: Kind, name and distribution: `tuning policy 'combined' of dovetail-tune`.

    Attributes:
        share: The share of the budget after which it proposes nothing more.
    """

    def __init__(self, policy: TuningPolicy, title: str):
        self.share = policy.share
        self._policy, self._title = policy, title
        self._faults: list[str] = []

    @property
    def notes(self) -> list[str]:
        """What users should know of its proposals, and what was wrong with it, as sentences."""
        told: list[str] = self._asked(lambda: [str(note) for note in self._policy.notes], [])
        return [*told, *self._faults]

    def proposed(
        self, trials: Callable[[], Sequence[CandidateTrial]], known: dict[str, Candidate]
    ) -> Iterator[Candidate]:
        """Yield its proposals, until it has none, repeats itself, or is at fault.

        Args:
            trials: Returns what was tried so far.
            known: All candidates by name, which proposals are added to. What another policy proposed is not yielded.

        Raises:
            LostError: No machine answers.
        """

        def repeated(candidate: Candidate) -> None:
            self._note(f"'{candidate.name}' was proposed twice, and nothing after it was tried")

        for candidate in proposals(lambda: self._asked(lambda: self._proposal(trials()), None), repeated):
            if candidate.name not in known:
                known[candidate.name] = candidate
                yield candidate
            elif known[candidate.name] != candidate:
                self._note(f"'{candidate.name}' names another request, too, and nothing after it was tried")
                return

    def doubt(self, name: str, measured: float) -> str:
        """Return why a candidate must not win; see `TuningPolicy`."""
        return self._asked(lambda: str(self._policy.doubt(name, measured) or ""), "")

    def conclude(self, ratios: Mapping[str, float], winner: float | None) -> Conclusion:
        """Return what is known of all plans; see `TuningPolicy`."""
        return self._asked(lambda: self._conclusion(ratios, winner), Conclusion())

    def _proposal(self, trials: Sequence[CandidateTrial]) -> Candidate | None:
        found: object = self._policy.propose(trials)
        if found is not None and not isinstance(found, Candidate):
            raise DovetailError(f"{type(found).__name__} was proposed, which is no Candidate")
        hash(found)  # which a list where a tuple is expected has not
        return found

    def _conclusion(self, ratios: Mapping[str, float], winner: float | None) -> Conclusion:
        found: object = self._policy.conclude(ratios, winner)
        if not isinstance(found, Conclusion):
            raise DovetailError(f"{type(found).__name__} was concluded, which is no Conclusion")
        return found

    def _asked(self, ask: Callable[[], T], otherwise: T) -> T:
        """Return an answer of the policy, or something else after a note if it is at fault."""
        try:
            with calling(self._title):
                return ask()
        except LostError:
            raise
        except DovetailError as error:
            self._note(error.message)
            return otherwise

    def _note(self, why: str) -> None:
        named = why if why.startswith(self._title) else f"{self._title}: {why}"
        if named not in self._faults:
            self._faults.append(named)


def installed_policies(context: TuningContext) -> list[InstalledPolicy]:
    """Return the installed policies in order; one that does not load is left out with a warning.

    Raises:
        DovetailError: A policy that this program registers does not load.
    """
    table: Table = context.plugins.registry.tuning_policy
    found = table.usable(lambda name: _made(table, name, context))
    ordered = sorted(found, key=lambda name: (found[name].order, name))
    return [InstalledPolicy(found[name], table.title(name)) for name in ordered]


def _made(table: Table, name: str, context: TuningContext) -> TuningPolicy:
    policy = made(table[name], table.title(name), TuningPolicy, context)
    numbers = isinstance(policy.order, (int, float)) and isinstance(policy.share, (int, float))
    if not (numbers and 0 <= policy.share <= 1):
        problem = f"{table.title(name)} has order {policy.order!r} and share {policy.share!r}"
        raise DovetailError(problem, "both are numbers; the share is one of the budget, from 0 to 1")
    return policy
