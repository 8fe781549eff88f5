"""What stays on the CPU behind the last convolutions of a model, and what users of the vendor's tools do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.passes import Pass
from dovetail.planning import get_placement
from dovetail.text import abbreviated

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context

_BACKEND = "bpu-int8"
_IMAGE = 4  # the rank of what a Transpose to channels last moves


class AdviseOnHeads(Pass):
    """Say where to end a model whose last nodes the BPU does not take.

    Given:  a = Conv(x, w) on the BPU   b = Sigmoid(a)   y = Reshape(b) on the CPU
    Result: a remark at both: end the model at the Conv, or after a Transpose to channels last there

    The vendor's model zoos export detectors that way for X3 and X5, and compute the rest in the program that calls the
    model.
    """

    name = "bpu-heads"
    stage = "place"
    for_backend = "bpu-int8"
    after = ("place",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Add a remark to every node that is refused behind the last ones on the BPU; the graph does not change."""
        inside: set[ir.Node] = set()  # nodes on the BPU, and those in front of them
        ends: dict[ir.Node, list[ir.Value]] = {}  # what each node of a head follows from
        nodes = list(model.graph)
        for node in reversed(nodes):
            placement = get_placement(node)
            behind = (user for output in node.outputs for user, _ in output.uses())
            if placement is not None and placement.backend == _BACKEND or any(user in inside for user in behind):
                inside.add(node)
        for node in nodes:
            if node in inside:
                continue
            found: dict[ir.Value, None] = {}
            for value in node.inputs:
                producer = value.producer() if value is not None else None
                if value is None or producer is None:
                    continue
                placement = get_placement(producer)
                if producer in inside and placement is not None and placement.backend == _BACKEND:
                    found[value] = None
                else:
                    found |= dict.fromkeys(ends.get(producer, ()))
            if found:
                ends[node] = list(found)
        refused = {one.node for one in ctx.remarks if one.backend == _BACKEND and one.rule == "not-supported"}
        for node, values in ends.items():
            if node.name not in refused:  # what the strategy declines has a remedy that can be tried
                continue
            ctx.remark("analysis", node, "head", "it is behind the last nodes on the BPU", suggest=_advice(values))
        return False


def _advice(values: list[ir.Value]) -> str:
    named = abbreviated(", ".join(f"'{value.name}'" for value in values))
    images = all(value.shape is not None and len(value.shape) == _IMAGE for value in values)
    there = ", or after a Transpose to channels last there, which the BPU makes" if images else ""
    return f"end the model at {named}{there}, and compute what follows in the program that calls it"
