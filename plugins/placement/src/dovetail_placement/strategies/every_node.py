"""The strategies `autocast` and `host`: claim every node that the backend supports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.planning import Claim, Claims, claim_of
from dovetail.plugin import Strategy

from dovetail_placement.reasons import refused_part, remark_refusal

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin import Backend, View


class Autocast(Strategy):
    """Claims every node that the backend's file accepts.

    A control-flow node is claimed with all of its bodies or not at all: one engine runs it whole. Each rejected node
    gets a remark with the limit that it violates.
    """

    def claim(self, view: View, backend: Backend) -> Claims:
        """Claim nodes of `view` for `backend`."""
        claims = Claims()
        for node in view.nodes():
            refused = refused_part(view, node)
            if refused is None:
                claims.claims.extend(claim_of(part, view.verdict(part)) for part in view.whole(node))
            else:
                remark_refusal(view, node, refused)
        return claims


class Host(Strategy):
    """Claims every remaining node, with its bodies."""

    def claim(self, view: View, backend: Backend) -> Claims:
        """Claim all nodes of `view` that the host's engines run."""
        claims = Claims()
        for node in view.nodes():
            for part in view.whole(node):
                verdict = view.verdict(part)
                if verdict.ok is not False:
                    claims.claims.append(claim_of(part, verdict))
                elif _is_opaque(part) and backend.takes(part.domain, part.op_type):
                    why = "a value has no known type, so limits cannot be checked; left to the engine"
                    view.remark("analysis", part, "opaque", why)
                    claims.claims.append(Claim(part))
        return claims


def _is_opaque(node: ir.Node) -> bool:
    """Check whether an input or output of `node` has no type, so that limits cannot be checked."""
    return any(value is not None and value.name and value.type is None for value in (*node.inputs, *node.outputs))
