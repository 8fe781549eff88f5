"""Backends that got no node of a model: why, and what would give them some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning import HOST, key_of
from dovetail.plugin import Remedy, remedy
from dovetail.plugin.loading import NO_NODES, NOTHING_LEFT
from dovetail.text import pluralize

from dovetail_placement.claim_checks import ask_for_claims
from dovetail_placement.claiming import Claiming
from dovetail_placement.node_requests import ASKED, NodeRequests
from dovetail_placement.reasons import refused_part, why_refused
from dovetail_placement.view import made_strategy

if TYPE_CHECKING:
    from dovetail.passes import Context
    from dovetail.planning import Rejection
    from dovetail.plugin import Backend


def remark_empty_backends(claiming: Claiming, ctx: Context) -> None:
    """Remark why each backend without a node has none, and which strategy would claim some, by trying all others.

    Runs before the host claims the remaining nodes, which would leave strategies nothing to claim.
    """
    used = {name for name, _ in claiming.claimed.values()}
    for backend in ctx.backends if claiming.flat.nodes else ():
        if backend.name in used:
            continue
        facts = {"backend": backend.name}
        if left_out := claiming.left_out(backend):
            why, suggest = f"{_none_of(backend)}: {left_out}", claiming.way_in(backend)
            ctx.remark("analysis", "", NO_NODES, why, suggest=suggest, facts={**facts, "how": ""})
        elif refused := _refused(claiming, backend, ctx):
            _remark_refused(refused, backend, ctx)
        elif others := _given_before(claiming, backend, ctx):
            taken = pluralize(sum(others.values()), "node")
            names = ", ".join(name for name, _ in others.most_common(_NAMED))
            why = f"{_none_of(backend)}: {taken} that its file takes went to {names}, named before it"
            suggest = f"name {backend.name} first, or pin nodes to it"
            ctx.remark("analysis", "", NO_NODES, why, suggest=suggest, facts={**facts, "behind": [*others]})
        else:
            _remark_declined(claiming, backend, ctx)


_NAMED = 3


def _none_of(backend: Backend) -> str:
    return f"{backend.name} got no node of the model, which runs elsewhere as a whole"


def _refused(claiming: Claiming, backend: Backend, ctx: Context) -> list[tuple[Rejection, int]]:
    """Return the rejections of nodes of this round's graph, each with the number of nodes that it is about."""
    rejections, view = ctx.refusals.nodes(backend.name), claiming.view_of(backend)
    pairs = [(rejections.get(key_of(node)), node) for node in (claiming.model.graph if rejections else ())]
    return [(found, len(view.whole(node))) for found, node in pairs if found is not None]


def _remark_refused(refused: Sequence[tuple[Rejection, int]], backend: Backend, ctx: Context) -> None:
    reasons = Counter[str]()
    for rejection, number in refused:
        reasons[rejection.why] += number
    (reason, most), *_ = reasons.most_common(1)
    facts = {"backend": backend.name}
    if all(any(remark.rule == ASKED for remark in rejection.remarks) for rejection, _ in refused):
        why = f"{_none_of(backend)}: {pluralize(most, 'node')} because {reason}"
        suggest = "lower the goal, or ask for fewer nodes in floats"
        ctx.remark("analysis", "", NO_NODES, why, suggest=suggest, facts={**facts, "how": ""})
        return
    why = f"nothing of the model runs on {backend.name}: what it took was refused, {pluralize(most, 'node')}"
    ctx.remark("failed", "", NOTHING_LEFT, f"{why} because {reason}", facts={**facts, "how": " (all refused)"})


def _remark_declined(claiming: Claiming, backend: Backend, ctx: Context) -> None:
    """Remark why neither the file nor the strategy of a backend takes a node that was left for it."""
    moved = _moved_by_request(claiming, backend, ctx)
    why = f"{_none_of(backend)}: {_reason(claiming, backend, moved, ctx)}"
    suggest: str | Remedy = "`dovetail explain OUT --all` says why of every node"
    name, claims = _best_strategy(claiming, backend, ctx) if not moved else ("", 0)
    if claims:
        suggest = remedy(options={"strategy": name}, backend=backend.name)
        why += f"; {suggest.text} would claim {pluralize(claims, 'node')}"
    ctx.remark("analysis", "", NO_NODES, why, suggest=suggest, facts={"backend": backend.name, "how": ""})


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


def _given_before(claiming: Claiming, backend: Backend, ctx: Context) -> Counter[str]:
    """Return the backends, named before this one, that have all nodes that its file takes; none if it was left some.

    Pinned nodes do not count: another order of the backends would change nothing.
    """
    before = _named_before(backend, ctx)
    view, owners = claiming.view_of(backend), Counter[str]()
    for node in claiming.model.graph:
        owner, claim = claiming.claimed.get(id(node), ("", None))
        if claim is not None and claim.pinned or refused_part(view, node) is not None:
            continue
        if owner not in before:
            return Counter()
        owners[owner] += len(view.whole(node))
    return owners


def _named_before(backend: Backend, ctx: Context) -> set[str]:
    names = [one.name for one in ctx.backends]
    return set(names[: names.index(backend.name)])


def _reason(claiming: Claiming, backend: Backend, moved: Mapping[str, Collection[int]], ctx: Context) -> str:
    """Return why a backend has none of the nodes that were left for it, in clauses with the numbers of nodes."""
    view, before = claiming.view_of(backend), _named_before(backend, ctx)
    elsewhere = {node for nodes in moved.values() for node in nodes}
    reasons = Counter[str]()
    taken = 0
    for node in claiming.model.graph:
        whole = view.whole(node)
        if id(node) in elsewhere or claiming.claimed.get(id(node), ("", None))[0] in before:
            continue
        refused = refused_part(view, node)
        if refused is None:
            taken += len(whole)
        else:
            reasons[why_refused(view, refused)] += len(whole)
    clauses = [
        f"{pluralize(len(nodes), 'node')} {'is' if len(nodes) == 1 else 'are'} {how}" for how, nodes in moved.items()
    ]
    if taken:
        clauses.append(
            f"its file takes {pluralize(taken, 'node')}, and strategy '{ctx.strategy_of(backend)}' keeps none of them"
        )
    if clauses:
        return "; ".join(clauses)
    return "; ".join(f"{pluralize(number, 'node')} because {text}" for text, number in reasons.most_common(1))


def _best_strategy(claiming: Claiming, backend: Backend, ctx: Context) -> tuple[str, int]:
    """Return the other strategy that would claim the most nodes of those left for the backend, and their number."""
    table, present = ctx.registry.strategy, ctx.strategy_of(backend)
    view, known = claiming.view_before(backend), list(ctx.remarks)
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
