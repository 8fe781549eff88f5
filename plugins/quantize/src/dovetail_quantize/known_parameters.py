"""Parameters that were found on data, kept for later decisions about the same model and the same data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dovetail.ir.required import name_of
from dovetail.planning.observers import ObserverChoice

from dovetail_quantize.named_observer import NamedObserver
from dovetail_quantize.observers.counting import CountingObserver
from dovetail_quantize.observing import Amount
from dovetail_quantize.refining.steps import SCALING, steps_of

if TYPE_CHECKING:
    from dovetail.passes import Context
    from dovetail.planning.holdings import Parameters
    from dovetail_precision.held import Held


_MEASURED = "calibrate"
_Key = tuple[tuple[tuple[str, str], ...], str, ObserverChoice]


class KnownParameters:
    """What observers found on data, by sharing group.

    Args:
        compared: Observers of which a search tries one after the other: where one of them is asked for, all of them see
            the data, so that it is read once.

    Attributes:
        amount: The data that was seen.
    """

    def __init__(self, compared: Sequence[ObserverChoice] = ()):
        self.amount = Amount(0, 0)
        self._compared = tuple(compared)
        self._found: dict[_Key, Parameters] = {}

    def get(self, group: list[Held], choice: ObserverChoice) -> Parameters | None:
        """What an observer found of a group; None if it has not seen it."""
        return self._found.get(_key(group, choice))

    def found(self, group: list[Held], choice: ObserverChoice) -> Parameters:
        """What an observer found of a group that it has seen."""
        return self._found[_key(group, choice)]

    def keep(self, group: list[Held], choice: ObserverChoice, parameters: Parameters) -> None:
        """Remember what an observer found."""
        self._found[_key(group, choice)] = parameters

    def wanted(self, choice: ObserverChoice) -> tuple[ObserverChoice, ...]:
        """The observers that see a group for which `choice` is asked for; that one first."""
        others = self._compared if choice in self._compared else ()
        return tuple(dict.fromkeys((choice, *others)))


class ObserversTogether:
    """Several observers that see the same numbers; those that count them share one histogram.

    Args:
        observers: At least one, all for one format.

    Attributes:
        format: The format that parameters are wanted for.
        extrema: Takes the extrema of a batch; None if an observer needs all numbers.
    """

    def __init__(self, observers: Sequence[NamedObserver]):
        self.format = observers[0].format
        self._observers = observers
        counting = [one.observer for one in observers if isinstance(one.observer, CountingObserver)]
        for other in counting[1:]:
            other.share(counting[0])
        self._fed = [one for one in observers if one.observer not in counting[1:]]
        alone = all(one.extrema is not None for one in observers)
        self.extrema = self._extrema if alone else None

    def update(self, array: Any) -> None:
        """Show all of them some numbers."""
        for one in self._fed:
            one.update(array)

    def _extrema(self, low: Any, high: Any) -> None:
        for one in self._fed:
            if one.extrema is not None:
                one.extrema(low, high)


def known_parameters(ctx: Context) -> KnownParameters:
    """What is known of the model of a request; nothing where refinements scale its layers."""
    if any(step in SCALING for steps in steps_of(ctx).values() for step in steps):
        return KnownParameters()
    return ctx.measured.setdefault(_MEASURED, KnownParameters())


def compare_observers(ctx: Context, compared: Sequence[ObserverChoice]) -> None:
    """Let calibration show the data to all of `compared` at once: results with the others will be asked for."""
    ctx.measured[_MEASURED] = KnownParameters(compared)


def _key(group: list[Held], choice: ObserverChoice) -> _Key:
    leaders = group[0].leaders
    made = tuple((name_of(one.value), _operator(one)) for one in leaders)
    return made, str(leaders[0].format), choice


def _operator(held: Held) -> str:
    node = held.value.producer()
    return "" if node is None else f"{node.domain}.{node.op_type}:{node.name}"
