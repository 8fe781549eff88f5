"""Observers as calibration uses them: made with their options, and named by every failure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.planning.holdings import Parameters
from dovetail.planning.observers import ObserverChoice
from dovetail.plugin import Observer
from dovetail.plugin.contracts import derived, overrides
from dovetail.plugin.isolation import described, foreign_output
from dovetail_schemas.observers import resolve_observer

from dovetail_quantize.slices import number_of_scales

if TYPE_CHECKING:
    from dovetail.plugin.registry import Table
    from dovetail_precision.held import Held


_DEFAULT = ObserverChoice("minmax")


def chosen_observer(held: Held) -> ObserverChoice:
    """The observer that the rule of a value names, or the default one."""
    return held.rule.observer if held.rule.observer.name else _DEFAULT


class NamedObserver:
    """An observer of one value, whose failures name it, its distribution and the value.

    Args:
        held: The value, and the observer that its rule names.
        table: The registered observers.
        choice: Another observer than the rule's.

    Attributes:
        format: The format that parameters are wanted for.
        extrema: Takes the extrema of a batch, or None if the observer needs all numbers.
        choice: Name and options of the observer.
        observer: The observer itself.
        follows_maxima: Whether it wants to see the maxima of a value where nothing else of it is read.

    Raises:
        DovetailError: There is no such observer, it has no such option, or it cannot be made for this value.
    """

    def __init__(self, held: Held, table: Table, choice: ObserverChoice | None = None):
        self.format, self.choice = held.format, choice or chosen_observer(held)
        self._held, self._who = held, table.title(self.choice.name) if self.choice.name in table else ""
        made = resolve_observer(self.choice, table)
        self.observer = self._called("cannot be made for", lambda: made(held.format, **dict(self.choice.options)))
        derived(self.observer, self._who, Observer)
        self.extrema = self._extrema if overrides(self.observer, Observer, "extrema") else None
        self.follows_maxima = self.observer.follows_maxima

    def update(self, array: Any) -> None:
        """Show it some numbers."""
        self._called("fails on", lambda: self.observer.update(array))

    def parameters(self) -> Parameters:
        """What it makes of everything that it saw."""
        found = self._called("finds no scale for", self.observer.parameters)
        held = self._held
        sizes = {len(part) for part in found} if isinstance(found, Parameters) else set()
        wanted = self._called("finds no scale for", lambda: number_of_scales(held.format, held.value.shape))
        if sizes != {wanted} or not all(scale > 0 for scale in found.scale):
            raise DovetailError(
                f"{self._who} gives {found!r} for '{held.value.name}' in {held.format}",
                "`parameters` returns one positive scale and one zero point, or one per index along the format's axis",
            )
        return found

    def _extrema(self, low: Any, high: Any) -> None:
        self._called("fails on", lambda: self.observer.extrema(low, high))

    def _called(self, what: str, call: Any) -> Any:
        try:
            with foreign_output(self._who):
                return call()
        except (DovetailError, KeyboardInterrupt):
            raise
        except BaseException as error:
            text = str(error) if isinstance(error, ValueError) else described(error)
            node = self._held.uses[0].node.name
            where = f"{self.choice.source}: " if self.choice.options and self.choice.source else ""
            raise DovetailError(
                f"{where}{self._who} {what} '{self._held.value.name}' in {self._held.format}: {text}",
                f"look at the data, compute '{node}' in floats (--high {shlex.quote(str(node))}), or choose another "
                "observer",
            ) from error
