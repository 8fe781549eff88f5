"""Which nodes share a scale in a plan and in a log, whatever its value, and which values are requantised."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from dovetail.planning.holdings import parse_holdings

if TYPE_CHECKING:
    from dovetail.planning.plan import Plan


CUT = "..."  # in front of names that the tool has cut
_MOST, _SHOWN = 20, 3
_JOINING = "Concat"  # the one operator that the tool requantises for


@dataclass(frozen=True)
class ScaleDiff:
    """The scales of a plan beside those of a log.

    Attributes:
        nodes: How many nodes have a scale in both.
        alike: How many of these share it with the same nodes in both.
        scales: How many scales these nodes have here, and in the log.
        others: The first that share theirs with others than in the log: one of them, some with whom it shares only
            here, and some with whom only there.
        requantised: How many values are requantised for a Concat here, and in the log.
        requantised_alike: How many of these are the same.
    """

    nodes: int
    alike: int
    scales: tuple[int, int]
    others: Sequence[tuple[str, Sequence[str], Sequence[str]]]
    requantised: tuple[int, int]
    requantised_alike: int


def scale_diff(
    here: Mapping[str, Hashable], there: Mapping[str, Hashable], made: Sequence[str], logged: Sequence[str]
) -> ScaleDiff:
    """Compare who shares scales with whom.

    Args:
        here: What tells the scale of a node's first input apart, in the plan.
        there: The same in the log.
        made: The values that are requantised in the plan.
        logged: Those in the log; a name may lack its beginning.
    """
    names = [name for name in here if name in there]
    mine, theirs = _classes(names, here), _classes(names, there)
    both: dict[tuple[Hashable, Hashable], list[str]] = {}
    for name in names:
        both.setdefault((here[name], there[name]), []).append(name)
    alike = 0
    others: list[tuple[str, Sequence[str], Sequence[str]]] = []
    for (scale, logged_scale), shared in both.items():
        one, other = mine[scale], theirs[logged_scale]
        if len(one) == len(other) == len(shared):
            alike += len(shared)
        elif len(others) < _MOST:
            others.append((shared[0], _some(one, other), _some(other, one)))
    whole, ends = (
        {name for name in logged if not name.startswith(CUT)},
        [name for name in logged if name.startswith(CUT)],
    )
    same = sum(value in whole or any(value.endswith(end.removeprefix(CUT)) for end in ends) for value in made)
    return ScaleDiff(
        nodes=len(names),
        alike=alike,
        scales=(len(mine), len(theirs)),
        others=others,
        requantised=(len(made), len(logged)),
        requantised_alike=same,
    )


def requantised_in(plan: Plan) -> list[str]:
    """The values that a Concat reads at one scale and gives at another."""
    joining = {node.name: node.output for node in plan.nodes if node.op_type == _JOINING}
    given: dict[str, str] = {}
    read: list[tuple[str, str, str]] = []
    for holding in parse_holdings(plan.values):
        given.setdefault(holding.value, holding.group)
        names = dict.fromkeys(reader.rpartition(":")[0] for reader in holding.readers)
        read += [(holding.value, holding.group, joining[name]) for name in names if name in joining]
    return list(dict.fromkeys(value for value, group, result in read if given.get(result, group) != group))


def _some(these: Iterable[str], without: Container[str]) -> list[str]:
    return list(islice((name for name in these if name not in without), _SHOWN))


def _classes(names: Iterable[str], scales: Mapping[str, Hashable]) -> dict[Hashable, dict[str, None]]:
    found: dict[Hashable, dict[str, None]] = {}
    for name in names:
        found.setdefault(scales[name], {})[name] = None
    return found
