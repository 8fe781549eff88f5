"""Parameters that a replayed plan has for the values of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.ir.required import name_of
from dovetail.planning.holdings import Parameters, parse_holdings

if TYPE_CHECKING:
    from dovetail.planning.plan import Plan
    from dovetail_precision.held import Held


def replayed_parameters(plan: Plan | None, held: Iterable[Held]) -> dict[int, Parameters]:
    """Find the parameters of values in a plan, by `id` of the held value.

    A holding is recognised by value, format and sharing group. Where plan and model both hold a value in a format only
    once, the group may have another name: it names the observer, and a replay observes nothing.

    Raises:
        DovetailError: A holding of the plan is malformed.
    """
    known = [one for one in parse_holdings(plan.values) if one.parameters is not None] if plan is not None else []
    by_group = {(one.value, one.format, one.group): one.parameters for one in known}
    held = list(held)
    forms = [(name_of(one.value), one.format) for one in held]
    times = [Counter((one.value, one.format) for one in known), Counter(forms)]
    alone = {(one.value, one.format): one.parameters for one in known}
    found = {}
    for one, form in zip(held, forms):
        parameters = by_group.get((*form, one.name))
        if parameters is None and all(number[form] == 1 for number in times):
            parameters = alone[form]
        if parameters is not None:
            found[id(one)] = parameters
    return found
