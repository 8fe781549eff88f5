"""The `guard-captured-values` pass: bodies with which ONNX Runtime loads a saved model, optimizers and all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir
from dovetail.ir.bodies import bodies
from dovetail.ir.editing import insert_after_value
from dovetail.ir.fresh_names import FreshNames
from dovetail.ir.required import graph_of, producer_of
from dovetail.passes import Pass
from dovetail.planning.placement import get_placement, origin_of, set_origin, set_placement

from dovetail_host.implicit_zero_points import PROPAGATED

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context


@dataclass(frozen=True)
class GuardCapturedValues(Pass):
    """Put a Max of one operand between a dequantised value that was moved and the bodies that read it.

    Given:  %f = DequantizeLinear(%integers)   %t = Transpose(%f)   y = If(%c) { Relu(%t) }
    Result: %f = DequantizeLinear(%integers)   %t = Transpose(%f)   %g = Max(%t)   y = If(%c) { Relu(%g) }

    ONNX Runtime's optimizer QDQPropagationTransformer puts conversions between an operator that moves data and the
    readers of its result. It looks for the value among the inputs of the If, where values that a body captures are not,
    and ends the process. Max of one operand gives it back, and unlike an Identity no earlier optimizer removes it.
    """

    name = "guard-captured-values"
    stage = "outline"
    before = ("form-regions",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Insert one Max for each such value."""
        found = [(value, readers) for value in _moved(model) if (readers := _in_bodies(value))]
        if not found:
            return False
        names = ctx.analysis(FreshNames, model)
        for value, readers in found:
            producer = producer_of(value)
            guard = ir.node("Max", [value], name=names.fresh(f"guard_{value.name}"))
            result = guard.outputs[0]
            result.name, result.shape, result.type = names.fresh(f"{value.name}_captured"), value.shape, value.type
            set_placement(guard, get_placement(producer))
            set_origin(guard, origin_of(producer))
            insert_after_value(graph_of(producer), value, guard)
            for node, index in readers:
                node.replace_input_with(index, result)
            ctx.remark(
                "passed", guard, "captured", f"ONNX Runtime cannot convert '{value.name}' for bodies that read it"
            )
        return True


def _moved(model: Model) -> Iterator[ir.Value]:
    """Values that operators which move data make of the results of DequantizeLinear.

    They may do so in the branch of an If, which ONNX Runtime inlines first where the condition is known.
    """
    holders = {body: node for node in model.nodes() for body in bodies(node) if node.op_type == "If"}
    waiting = [(node.outputs[0], False) for node in model.nodes() if node.op_type == "DequantizeLinear"]
    seen = set()
    while waiting:
        value, moved = waiting.pop()
        if (value, moved) in seen:
            continue
        seen.add((value, moved))
        if moved:
            yield value
        for node, _ in value.uses():
            if node.domain in ("", "ai.onnx") and node.op_type in (*PROPAGATED, "Identity"):
                waiting.append((node.outputs[0], moved or node.op_type != "Identity"))
        graph = graph_of(producer_of(value))
        holder = holders.get(graph)
        if holder is not None and value.is_graph_output():
            waiting += [(holder.outputs[at], moved) for at, output in enumerate(graph.outputs) if output is value]


def _in_bodies(value: ir.Value) -> list[tuple[ir.Node, int]]:
    """The uses of a value in bodies of other nodes than those of its own graph."""
    home = producer_of(value).graph
    return [(node, index) for node, index in value.uses() if node.graph is not home]
