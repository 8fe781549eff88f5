"""Prices of a cost model, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError

from dovetail_precision.choices import plain
from dovetail_precision.costs import conversion_cost

if TYPE_CHECKING:
    from dovetail.ir.formats import Format

    from dovetail_precision.choices import Choice, SharedFormat
    from dovetail_precision.costs import CostModel
    from dovetail_precision.def_use import DefUseChain
    from dovetail_precision.variable import Variable


class Prices:
    """The prices that optimising solvers add up.

    Every method raises a DovetailError if the cost model returns anything but a non-negative integer.
    """

    def __init__(self, costs: CostModel):
        self._costs = costs

    def compute(self, variable: Variable, choice: Choice) -> int:
        """Return the price of a choice."""
        return _checked(self._costs.compute(variable, choice))

    def gain(self, variable: Variable, low: Choice, high: Choice) -> int:
        """Return the time that computing with the low choice saves."""
        return self.compute(variable, high) - self.compute(variable, low)

    def join(self, chain: DefUseChain, held: Format | SharedFormat, wanted: Format | SharedFormat) -> int:
        """Return the price of a conversion; 0 if there is none."""
        return _checked(conversion_cost(self._costs, chain.value, held, wanted)) if held is not wanted else 0

    def version(self, chain: DefUseChain, format_: Format | SharedFormat) -> int:
        """Return the price of one version of a weight."""
        return _checked(self._costs.version(chain.value, plain(format_)))


def _checked(cost: int) -> int:
    if not isinstance(cost, int) or cost < 0:
        raise DovetailError(f"the cost model returned {cost!r}", "costs must be non-negative integers")
    return cost
