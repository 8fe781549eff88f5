"""The `autocast` strategy: claim every supported node; precisions are decided later, by policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.planning.claim import Claims, claim_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin.backend import Backend

    from dovetail_placement.view import View

__all__ = ["Autocast"]


class Autocast:
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
                _remark(view, backend, node, refused)
        return claims


def _remark(view: View, backend: Backend, node: ir.Node, refused: ir.Node) -> None:
    reasons = view.verdict(refused).reasons
    why = "; ".join(reason.text for reason in reasons) or f"{refused.op_type} is not in its file"
    because: tuple[ir.Node, ...] = ()
    if refused is not node:
        why, because = f"'{refused.name}' in its body cannot go there: {why}", (refused,)
    view.remark(
        "missed", node, "not-supported", f"not on {backend.name}: {why}", because=because,
        source=reasons[0].source if reasons else "",
    )  # fmt: skip
