"""Backends of a request that got no node: the result would run elsewhere as a whole, and nobody would be told."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning.placement import HOST
from dovetail.plugin import Remedy, remedy
from dovetail.text import pluralize

from dovetail_placement.claim_checks import ask_for_claims
from dovetail_placement.strategy_options import made_strategy

if TYPE_CHECKING:
    from dovetail.passes import Context
    from dovetail.plugin import Backend

    from dovetail_placement.claiming import Claiming


def remark_empty_backends(claiming: Claiming, ctx: Context) -> None:
    """Say of each backend without a node why that is, and which strategy would claim some: all others are tried.

    Called before the host claims what is left, which would show strategies nothing to claim.
    """
    used = {name for name, _ in claiming.claimed.values()}
    for backend in ctx.backends:
        if backend.name in used or not claiming.flat.nodes:
            continue
        why = f"{backend.name} got no node of the model, which runs elsewhere as a whole"
        why += f": {_reason(claiming, backend, ctx)}"
        name, claims = _best_strategy(claiming, backend, ctx)
        suggest: str | Remedy = "`dovetail explain OUT --all` says why of every node"
        if claims:
            suggest = remedy(options={"strategy": name}, backend=backend.name)
            why += f"; {suggest.text} would claim {pluralize(claims, 'node')}"
        ctx.remark("analysis", "", "no-nodes", why, suggest=suggest)


def _reason(claiming: Claiming, backend: Backend, ctx: Context) -> str:
    view = claiming.view_of(backend)
    verdicts = [view.verdict(node) for node in claiming.flat.nodes]
    taken = sum(verdict.ok is not False for verdict in verdicts)
    if taken:
        return (
            f"its file takes {pluralize(taken, 'node')}, and strategy '{ctx.strategy_of(backend)}' keeps none of them"
        )
    reasons = Counter(verdict.reasons[0].text for verdict in verdicts if verdict.reasons)
    return "; ".join(f"{pluralize(number, 'node')} because {text}" for text, number in reasons.most_common(1))


def _best_strategy(claiming: Claiming, backend: Backend, ctx: Context) -> tuple[str, int]:
    """The strategy that claims the most nodes, with their number; the present one is left out."""
    table, present = ctx.registry.strategy, ctx.strategy_of(backend)
    view, known = claiming.view_of(backend), list(ctx.remarks)
    best = ("", 0)
    for name in table:
        if name in (present, HOST):
            continue
        who = f"{table.title(name)}, for {backend.name},"
        try:
            found = ask_for_claims(made_strategy(table[name], backend, name, who), view, backend, who)
        except DovetailError:
            continue  # it is not for this backend
        if len(found.claims) > best[1]:
            best = name, len(found.claims)
    ctx.remarks[:] = known  # of claims that nobody made
    return best
