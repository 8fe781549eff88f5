"""The choices of a node's variables: what its schema and its claim both allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dovetail_precision.choices import Choices, float_choices
from dovetail_precision.format_combinations import combinations
from dovetail_precision.port_groups import PortGroup, merged

if TYPE_CHECKING:
    from dovetail.planning.claim import Claim


class NodeChoices:
    """Finds the choices of one model's nodes; cached, as claims on equal nodes share their ports and rules.

    A type parameter is one variable. Parameters with a port that may be quantised are one variable together, because
    scales relate their ports.
    """

    def __init__(self) -> None:
        # The claim's parts are kept alive beside the answer: otherwise other objects could reuse their ids.
        self._known: dict[tuple[int, int], tuple[object, object, tuple[tuple[PortGroup, Choices], ...]]] = {}

    def of(self, groups: Sequence[PortGroup], claim: Claim | None) -> Sequence[tuple[PortGroup, Choices]]:
        """Return the variables of a node as ports and choices; choices are empty if nothing fits.

        Args:
            groups: The float ports by type parameter; equal nodes share the same object.
            claim: The claim on the node.
        """
        ports = claim.ports if claim is not None else None
        key = (id(groups), id(ports))
        known = self._known.get(key)
        if known is None or known[0] is not groups or known[1] is not ports:
            known = self._known[key] = (groups, ports, tuple(_choices_of(groups, claim)))
        return known[2]

    def obstacle(self, group: PortGroup, claim: Claim | None) -> str:
        """Return why a group has no choice."""
        names = ", ".join(sorted(group.names))
        if claim is not None and _may_be_quantised(group, claim):
            return f"no combination of formats fits its ports {names}"
        return f"no type fits its ports {names}"


def _choices_of(groups: Sequence[PortGroup], claim: Claim | None) -> Iterator[tuple[PortGroup, Choices]]:
    if claim is None or not claim.ports:
        yield from ((group, float_choices(group.allowed)) for group in groups)
        return
    together = [group for group in groups if _may_be_quantised(group, claim)]
    for group in groups:
        if group not in together:
            allowed = group.allowed
            for name in group.names & claim.ports.keys():
                allowed &= frozenset(claim.ports[name])
            yield group, float_choices(allowed)
        elif group is together[0]:
            yield merged(together), Choices(combinations(together, claim.ports, claim.rules))


def _may_be_quantised(group: PortGroup, claim: Claim) -> bool:
    listed = (format_ for name in group.names for format_ in claim.ports.get(name, ()))
    return not claim.keep >= group.names and any(format_.quantised for format_ in listed)
