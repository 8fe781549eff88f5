"""Models without a node for the BPU: the vendor's tool refuses them.

A plan says so in a remark, because `dovetail explain` is there to say why; compiling for the BPU alone is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.compiled import CompiledModel
    from dovetail.passes import Request
    from dovetail.planning.claim import Claim
    from dovetail.planning.remark import Remark
    from dovetail.plugin.strategy import View


BACKEND = "bpu-int8"


def remark_if_unused(view: View, claims: Iterable[Claim], products: tuple[str, ...]) -> None:
    """Say that no product is there, of which every region of the BPU needs one."""
    here = {claim.node.op_type for claim in claims}
    pinned = (view.claimed(node) for node in view.model.graph)
    here |= {found[1].node.op_type for found in pinned if found is not None and found[0] == view.backend.name}
    if products and not here & set(products):
        why = f"no node of the model is on {view.backend.name}: it takes none of the model's {', '.join(products)}"
        view.remark("analysis", "", "no-bpu-operator", why, suggest="`dovetail explain OUT --all` says why")


def check_used(request: Request, compiled: CompiledModel) -> None:
    """Refuse a result without a node on the BPU, where nothing else is asked for.

    Raises:
        DovetailError: There is none.
    """
    if [choice.name for choice in request.backends] != [BACKEND]:
        return
    if compiled.plan.nodes and not any(node.backend == BACKEND for node in compiled.plan.nodes):
        first = next((remark for remark in compiled.plan.remarks if _is_refusal(remark)), None)
        example = f"; '{first.node}' is {first.why}" if first is not None else ""
        fixes = next((remark.suggest for remark in compiled.plan.remarks if remark.rule == "open-extents"), "")
        raise DovetailError(
            f"no node of the model can be on {BACKEND}: a region there needs a Conv, ConvTranspose, Gemm or MatMul "
            f"that the operator list accepts{example}",
            (f"fix the extents that the model leaves open: {fixes}; " if fixes else "")
            + "`dovetail plan` and `dovetail explain PLAN --all` say why of every node, and what would help; for the "
            "CPU, add --backend cpu-bf16",
        )


def _is_refusal(remark: Remark) -> bool:
    return remark.backend == BACKEND and remark.kind in ("missed", "failed")
