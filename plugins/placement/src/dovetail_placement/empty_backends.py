"""Backends that got no node of a model: why, and what would give them some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning import HOST
from dovetail.plugin import Remedy, remedy
from dovetail.plugin.loading import NO_NODES, NOTHING_LEFT
from dovetail.text import pluralize

from dovetail_placement.claim_checks import ask_for_claims
from dovetail_placement.claiming import Claiming
from dovetail_placement.node_requests import ASKED, NodeRequests
from dovetail_placement.view import made_strategy

if TYPE_CHECKING:
    from dovetail.passes import Context
    from dovetail.plugin import Backend


def remark_empty_backends(claiming: Claiming, ctx: Context) -> None:
    """Remark why each backend without a node has none, and which strategy would claim some, by trying all others.

    Runs before the host claims the remaining nodes, which would leave strategies nothing to claim.
    """
    used = {name for name, _ in claiming.claimed.values()}
    for backend in ctx.backends:
        if backend.name in used or not claiming.flat.nodes:
            continue
        refused, facts = ctx.refusals.nodes(backend.name), {"backend": backend.name}
        asked = [one for one in refused.values() if any(remark.rule == ASKED for remark in one.remarks)]
        suggest: str | Remedy
        if refused:
            (reason, number), *_ = Counter(one.why for one in refused.values()).most_common(1)
            if len(asked) == len(refused):
                why = f"{_none_of(backend)}: {pluralize(number, 'node')} because {reason}"
                suggest = "lower the goal, or ask for fewer nodes in floats"
                ctx.remark("analysis", "", NO_NODES, why, suggest=suggest, facts={**facts, "how": ""})
                continue
            why = f"nothing of the model runs on {backend.name}: what it took was refused, {pluralize(number, 'node')}"
            ctx.remark("failed", "", NOTHING_LEFT, f"{why} because {reason}", facts={**facts, "how": " (all refused)"})
            continue
        why = _none_of(backend)
        suggest = "`dovetail explain OUT --all` says why of every node"
        if others := _given_to_others(claiming, backend):
            taken = pluralize(sum(others.values()), "node")
            names = ", ".join(name for name, _ in others.most_common(_NAMED))
            suggest = f"name {backend.name} first, or pin nodes to it"
            why += f": {taken} that its file takes went to {names}, named before it"
            ctx.remark("analysis", "", NO_NODES, why, suggest=suggest, facts={**facts, "behind": [*others]})
            continue
        moved = _moved_by_request(claiming, backend, ctx)
        why += f": {_reason(claiming, backend, moved, ctx)}"
        name, claims = _best_strategy(claiming, backend, ctx) if not moved else ("", 0)
        if claims:
            suggest = remedy(options={"strategy": name}, backend=backend.name)
            why += f"; {suggest.text} would claim {pluralize(claims, 'node')}"
        ctx.remark("analysis", "", NO_NODES, why, suggest=suggest, facts={**facts, "how": ""})


_NAMED = 3


def _none_of(backend: Backend) -> str:
    return f"{backend.name} got no node of the model, which runs elsewhere as a whole"


def _moved_by_request(claiming: Claiming, backend: Backend, ctx: Context) -> dict[str, set[int]]:
    """Return the `id` of nodes that a request moved elsewhere, by a clause that says so: pins and accuracy goals."""
    view, moved = claiming.view_of(backend), dict[str, set[int]]()
    for node in claiming.flat.nodes:
        owner = claiming.claimed.get(id(node))
        if owner is not None and owner[1].pinned and view.verdict(node).ok is not False:
            moved.setdefault("pinned elsewhere", set()).add(id(node))
    if backend.has_integers:
        requests = ctx.analysis(NodeRequests, claiming.model)
        for request in requests.in_floats():
            moved.setdefault(f"computed in floats, as {request} asks", set()).update(
                map(id, requests.nodes_of(request))
            )
    return moved


def _given_to_others(claiming: Claiming, backend: Backend) -> Counter[str]:
    """Return the backends that have the nodes that this one's file takes; none if no backend has one of these.

    Pinned nodes do not count: another order of the backends would change nothing.
    """
    view, owners = claiming.view_of(backend), Counter[str]()
    for node in claiming.flat.nodes:
        owner = claiming.claimed.get(id(node))
        if owner is not None and owner[1].pinned:
            continue
        if owner is None and view.verdict(node).ok is not False:
            return Counter()
        if owner is not None and view.verdict(node).ok is not False:
            owners[owner[0]] += 1
    return owners


def _reason(claiming: Claiming, backend: Backend, moved: Mapping[str, Collection[int]], ctx: Context) -> str:
    view = claiming.view_of(backend)
    elsewhere = {node for nodes in moved.values() for node in nodes}
    verdicts = [view.verdict(node) for node in claiming.flat.nodes if id(node) not in elsewhere]
    taken = sum(verdict.ok is not False for verdict in verdicts)
    clauses = [
        f"{pluralize(len(nodes), 'node')} {'is' if len(nodes) == 1 else 'are'} {how}" for how, nodes in moved.items()
    ]
    if taken:
        clauses.append(
            f"its file takes {pluralize(taken, 'node')}, and strategy '{ctx.strategy_of(backend)}' keeps none of them"
        )
    if clauses:
        return "; ".join(clauses)
    reasons = Counter(verdict.reasons[0].text for verdict in verdicts if verdict.reasons)
    return "; ".join(f"{pluralize(number, 'node')} because {text}" for text, number in reasons.most_common(1))


def _best_strategy(claiming: Claiming, backend: Backend, ctx: Context) -> tuple[str, int]:
    """Return the other strategy that claims the most nodes, and their number."""
    table, present = ctx.registry.strategy, ctx.strategy_of(backend)
    view, known = claiming.view_of(backend), list(ctx.remarks)
    best = ("", 0)
    for name in table:
        if name in (present, HOST):
            continue
        title = f"{table.title(name)}, for {backend.name},"
        try:
            found = ask_for_claims(made_strategy(table[name], backend, name, title), view, backend, title)
        except DovetailError:
            continue  # not applicable to this backend
        if len(found.claims) > best[1]:
            best = name, len(found.claims)
    ctx.remarks[:] = known  # discard remarks of trial claims
    return best
