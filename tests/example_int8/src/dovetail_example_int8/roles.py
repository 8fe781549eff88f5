"""The strategy: active nodes wherever the file takes them, passive ones only between nodes of this backend."""

from dovetail.plugin import Claims, Strategy, claim_of, remedy


class Roles(Strategy):
    """Claims by role: `active` computes in integers, `passive` moves integers that others computed."""

    def claim(self, view, backend):
        """Claim everything that the file takes; `fix_up` gives back what stands alone."""
        claims = Claims()
        for node in view.nodes():
            verdict = view.verdict(node)
            if verdict.ok is not False and verdict.role and len(view.whole(node)) == 1:
                claims.claims.append(claim_of(node, verdict))
            else:
                why = "; ".join(reason.text for reason in verdict.reasons) or "it has no role"
                source = verdict.reasons[0].source if verdict.reasons else ""
                view.remark("missed", node, "not-supported", why, source=source, backend=backend.name)
        return claims

    def fix_up(self, view, claims):
        """Withdraw passive nodes that have a neighbor elsewhere; asked again, it finds those beside them."""
        kept = []
        for claim in claims.claims:
            missing = self._missing(view, claim.node) if claim.role == "passive" else ""
            if missing:
                why = f"it is passive, and {missing}"
                view.remark("missed", claim.node, "passive", why, backend=view.backend.name)
            else:
                kept.append(claim)
        return Claims(kept)

    def remedies(self, view, node):
        """An identity convolution beside a passive node is an active neighbor."""
        verdict = view.verdict(node)
        if verdict.ok is not False and verdict.role == "passive":
            for side in ("after", "before"):
                yield remedy(edits=(f"acme-unit-conv={node.name}:{side}",))

    def _missing(self, view, node):
        name = view.backend.name
        producers, readers = list(view.producers(node)), list(view.readers(node))
        for found, what in ((producers, "reads"), (readers, "gives")):
            if not found:
                return f"nothing here {'computes what it reads' if what == 'reads' else 'reads what it gives'}"
            for other in found:
                claimed = view.claimed(other.node)
                if claimed is None or claimed[0] != name:
                    return f"'{other.node.name}' at its {other.port} is not there"
        return ""
