"""The `autocast` strategy: claim every supported node; precisions are decided later, by policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.planning.claim import Claims, claim_of
from dovetail.plugin.strategy import Strategy

from dovetail_placement.strategies.refusals import remark_refusal

if TYPE_CHECKING:
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.strategy import View


class Autocast(Strategy):
    """Claims every node that the backend's file accepts.

    A control-flow node is claimed with all of its bodies or not at all: one engine runs it whole. Each refused node
    gets a remark with the limit that it violates.
    """

    def claim(self, view: View, backend: Backend) -> Claims:
        """Claim nodes of `view` for `backend`."""
        claims = Claims()
        for node in view.nodes():
            verdicts = [(part, view.verdict(part)) for part in view.whole(node)]
            refused = next((part for part, verdict in verdicts if verdict.ok is False), None)
            if refused is None:
                claims.claims.extend(claim_of(part, verdict) for part, verdict in verdicts)
            else:
                remark_refusal(view, node, refused)
        return claims
