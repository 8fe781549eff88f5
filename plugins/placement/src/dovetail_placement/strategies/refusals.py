"""The remark on a node that a backend's file does not accept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.planning.verdict import facts_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin.strategy import View


def remark_refusal(view: View, node: ir.Node, refused: ir.Node) -> None:
    """Say which limits `refused`, which is `node` or a node in its bodies, violates."""
    reasons = view.verdict(refused).reasons
    why = "; ".join(reason.text for reason in reasons) or f"{refused.op_type} is not in its file"
    because: tuple[ir.Node, ...] = ()
    if refused is not node:
        why, because = f"'{refused.name}' in its body cannot go there: {why}", (refused,)
    view.remark(
        "missed", node, "not-supported", why, because=because, source=reasons[0].source if reasons else "",
        backend=view.backend.name, facts=facts_of(reasons),
    )  # fmt: skip
