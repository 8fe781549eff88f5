"""The contract of a search: policies propose what to compile next, and see what trying it gave."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, cast

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.planning.remark import Remark
    from dovetail.planning.request import Request
    from dovetail.plugin.compiled import CompiledModel

T = TypeVar("T")
Proposed = TypeVar("Proposed")
Tried = TypeVar("Tried")

Phase: TypeAlias = Literal["observe", "raise", "fit"]

Asked: TypeAlias = "Mapping[str, tuple[str, str]]"
"""Overrides by name of a main-graph node, each with the option that asks for it, for remarks: `high` or `low`, which
typing obeys, or an element type such as `int16`, which the strategy of the node's backend may obey."""


class Measure(ABC):
    """What is measured in a trial. Equal measures of equal requests give equal figures: derive a frozen dataclass.

    Attributes:
        compiles: Whether it is measured of a compiled result; a measure that knows a shorter way has the request alone.
        is_search: Whether results are compiled as trials alone, of which none is proposed before it is measured as it
            will run; see `Emitter.matches_plan`.
    """

    compiles: ClassVar[bool] = True
    is_search: bool = False

    @abstractmethod
    def of(self, trial: Trial) -> Any:
        """Return the figure of a trial, which has its result if `compiles`.

        Raises:
            DovetailError: It cannot be measured.
        """

    @abstractmethod
    def text(self, figure: Any) -> str:
        """Return a figure in words: `SNR 31.2 dB`."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """A request to try. Two are equal if they compile and measure the same, whatever the reasons.

    Attributes:
        why: Why it is worth a trial, as a clause.
        asked: Overrides of nodes, obeyed wherever nothing forbids it.
        request: A request in place of the job's, such as one for other scales; None for the job's.
        measure: What to measure of the result; None to compile only.
    """

    why: str
    asked: Asked = field(default_factory=dict)
    request: Request | None = None
    measure: Measure | None = None

    @property
    def compiled_from(self) -> tuple[str, frozenset[tuple[str, tuple[str, str]]], bool]:
        """What its result follows from: results of equal ones are equal."""
        is_search = self.measure is not None and self.measure.is_search
        return _digest(self.request), frozenset(self.asked.items()), is_search

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Proposal) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return self.compiled_from, self.measure


@dataclass(frozen=True)
class Trial:
    """A proposal that was tried.

    Attributes:
        proposal: The proposal.
        compiled: Its result; None if it was let go, because there is memory for one, or if compiling it failed.
        figure: What its measure gives; None without one.
        error: Why it could not be compiled or measured; None if it could.
    """

    proposal: Proposal
    compiled: CompiledModel | None = field(default=None, repr=False)
    figure: Any = None
    error: DovetailError | None = None

    @property
    def result(self) -> CompiledModel:
        """The result; requires that it was not let go."""
        return cast("CompiledModel", self.compiled)


@dataclass(frozen=True)
class Outcome:
    """What a policy found.

    Attributes:
        request: In the phase `observe`, the request to go on with; None to leave it as it is.
        trial: In the phase `raise`, the trial whose result was chosen; None if there is none. A result that was let go
            is compiled once more.
        remarks: The reasons, for the plan of the result.
        failure: Why the result is not what was asked for.
    """

    request: Request | None = None
    trial: Trial | None = None
    remarks: Sequence[Remark] = ()
    failure: DovetailError | None = None


class Proposer(ABC, Generic[Proposed, Tried]):
    """What proposes things to try, one after the other, and sees what they gave.

    Attributes:
        name: What its trials are called.
    """

    name: ClassVar[str]

    @abstractmethod
    def propose(self, trials: Sequence[Tried]) -> Proposed | None:
        """Return what to try next; None to end. What was proposed before ends the search, too.

        Args:
            trials: What was tried so far, and what it gave.

        Raises:
            DovetailError: The search cannot go on.
        """


def proposals(ask: Callable[[], Proposed | None], repeated: Callable[[Proposed], None]) -> Iterator[Proposed]:
    """Yield what `ask` proposes, until that is None or was proposed before.

    Args:
        ask: Proposes; equal proposals have equal hashes.
        repeated: Called with what was proposed before.
    """
    proposed: set[Proposed] = set()
    while (proposal := ask()) is not None:
        if proposal in proposed:
            repeated(proposal)
            return
        proposed.add(proposal)
        yield proposal


class Policy(Proposer[Proposal, Trial]):
    """A search for the result that a request asks for: an option returns one for a job (`Option.policies`).

    Policies of the phase `observe` complete the request by what trials on data show; of those of the phase `raise`,
    one chooses the result; those of the phase `fit` see that result as their first trial, and propose another request
    to choose one for. `trials` are those of the policy itself.

    Attributes:
        phase: `observe`, `raise` or `fit`.
        compares: Whether it compares results on data to choose one of them; some samples are kept apart for that.
        bears_errors: Whether `propose` is shown trials that failed; otherwise such an error ends the compilation.
    """

    phase: ClassVar[Phase]
    compares: ClassVar[bool] = True
    bears_errors: ClassVar[bool] = False

    def outcome(self, trials: Sequence[Trial]) -> Outcome:
        """Return what was found; by default the last trial and its request, if there is one.

        Raises:
            DovetailError: Nothing can be chosen.
        """
        return Outcome(trials[-1].proposal.request, trials[-1]) if trials else Outcome()


Steps: TypeAlias = Generator[Proposal, Trial, T]
"""A search as a generator: it yields proposals, is sent their trials, and returns what it found."""


class Stepwise(Policy):
    """A policy that is written as a generator; an error of a trial is raised where the generator waits for it."""

    bears_errors = True

    def __init__(self) -> None:
        self._steps: Steps[Outcome] | None = None
        self._outcome: Outcome | None = None

    @abstractmethod
    def steps(self) -> Steps[Outcome]:
        """Yield proposals, and return what was found."""

    def propose(self, trials: Sequence[Trial]) -> Proposal | None:
        """Return the next proposal of `steps`."""
        try:
            if self._steps is None:
                self._steps = self.steps()
                return next(self._steps)
            latest = trials[-1]
            return self._steps.send(latest) if latest.error is None else self._steps.throw(latest.error)
        except StopIteration as done:
            self._outcome = done.value
            return None

    def outcome(self, trials: Sequence[Trial]) -> Outcome:
        """Return what `steps` returned, or the last trial if it was ended."""
        return super().outcome(trials) if self._outcome is None else self._outcome


def _digest(request: Request | None) -> str:
    """Return a request as text, with the identity of its data and of the plan that it replays."""
    if request is None:
        return ""
    plain = {**vars(request), "data": id(request.data), "plan": id(request.plan)}
    return json.dumps(plain, sort_keys=True, default=str)
