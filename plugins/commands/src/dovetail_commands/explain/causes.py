"""Why a node is not on a backend, in one clause: the last word on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dovetail.planning.plan import Plan
    from dovetail.planning.plan_entries import PlannedNode
    from dovetail.planning.remark import Remark


_UNCLAIMED = "nothing says why"


class Cause(NamedTuple):
    """Why a node is not on a backend.

    Attributes:
        rule: A short stable name: `not-supported`, `passive`, `tail`, `manual`, `pinned`, ...
        why: One clause.
        because: Names of the nodes that forced it.
        source: File and line of the rule, or empty.
    """

    rule: str
    why: str
    because: tuple[str, ...] = ()
    source: str = ""


def cause_of(plan: Plan, node: PlannedNode, backend: str) -> Cause:
    """Why `node` is not on `backend`, as the remarks of the plan say."""
    return cause_among([remark for remark in plan.remarks if remark.node == node.name], node, backend)


def cause_among(remarks: Iterable[Remark], node: PlannedNode, backend: str) -> Cause:
    """The same, among the remarks on the node.

    A pin elsewhere counts first, then what refused it, then what its strategy said; of these, what names the backend.
    """
    said = [remark for remark in remarks if remark.kind in ("failed", "missed")]
    pinned = next((remark for remark in remarks if remark.rule == "pinned" and node.backend != backend), None)
    own = [remark for remark in said if remark.backend == backend]
    found = pinned or next((r for r in said if r.kind == "failed"), None) or next(iter(own or said), None)
    if found is None:
        return Cause("unclaimed", _UNCLAIMED)
    why = found.reason if found.backend == backend and not found.format else found.why
    return Cause(found.rule, why, found.because, found.source)
