"""The `impossible-branches` pass: branches that fixed extents have made impossible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir import FreshNames, bodies, is_onnx, named_bodies
from dovetail.passes import Pass
from dovetail.text import pluralize

from dovetail_transforms.canonicalize.clean_up import detach_bodies
from dovetail_transforms.canonicalize.fix_shapes import OPTION
from dovetail_transforms.rewriting.node_inference import inferred_types, type_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context

_SEQUENCES = 11  # the opset since which there are sequences
_SHOWN = 160  # characters of onnx's reason


@dataclass(frozen=True)
class ImpossibleBranches(Pass):
    """Replace branches that cannot run with the extents that the request fixes by an error when they are taken.

    Nets with a part for each of several sample rates take one length of input with each. If a length is fixed, shapes
    in the other parts contradict their operators, and ONNX Runtime refuses the model as a whole.

    Given:  --fix-shape x:1x64, and an If with a branch in which onnx's inference finds a contradiction, and one without
    Result: the branch takes an element of an empty sequence, which is an error, as running it was.

    Options:
        everywhere: Look at branches even if the request fixes no extents.
    """

    name = "impossible-branches"
    stage = "normalize"
    after = ("fold-constants",)
    before = ("dead-code",)

    everywhere: bool = False

    def run(self, model: Model, ctx: Context) -> bool:
        """Look at the branches of every If once; nodes that are only there for replaced ones are removed with them."""
        if not (self.everywhere or ctx.request.options.get(OPTION)) or model.opset < _SEQUENCES:
            return False
        changed = False
        for _, graph in model.graphs():
            for node in graph:
                if node.op_type == "If" and is_onnx(node):
                    changed |= _replace_one(model, node, ctx)
        return changed


def _replace_one(model: Model, node: ir.Node, ctx: Context) -> bool:
    """Replace the branch of an If that cannot run, if the other one can."""
    opsets = model.ir.opset_imports
    found = {name: _contradiction(body, opsets) for name, body in named_bodies(node)}
    impossible = [name for name, at in found.items() if at is not None]
    if len(impossible) != 1:
        return False
    (name,) = impossible
    at, why = found[name] or (node, "")
    branch = node.attributes[name].as_graph()
    typed = [value.dtype if value.dtype is not None else result.dtype for value, result in
             zip(branch.outputs, node.outputs, strict=True)]  # fmt: skip
    if None in typed:
        return False
    dead = pluralize(len(list(branch)), "node")
    ctx.remark(
        "passed", node, "impossible-branch",
        f"with the fixed extents, {name} cannot run ('{at.name}' ({at.op_type}): {why}): taking it is an error, and it "
        f"is dropped ({dead})",
    )  # fmt: skip
    (other,) = (body for key, body in named_bodies(node) if key != name)
    for value, result in zip(node.outputs, other.outputs, strict=True):  # the only ones that come out of the node now
        value.shape = result.shape if result.shape is not None and result.shape.is_static() else value.shape
    _fail(branch, node, [kind for kind in typed if kind is not None], ctx.analysis(FreshNames, model))
    return True


def _contradiction(body: ir.Graph, opsets: Mapping[str, int]) -> tuple[ir.Node, str] | None:
    """Return the first node of a body whose inputs contradict its operator, and why; None if there is none.

    Types are inferred anew from those outside of the body: what is declared inside was true for other extents.
    """
    import onnx

    types: dict[int, onnx.TypeProto] = {}

    def known(value: ir.Value) -> onnx.TypeProto | None:
        producer = value.producer()
        if producer is None or producer.graph is not body:
            return type_of(value)
        return types.get(id(value))

    for node in body:
        if bodies(node) or not is_onnx(node):
            continue
        try:
            types.update((id(value), kind) for value, kind in inferred_types(node, opsets.get("", 1), known))
        except onnx.shape_inference.InferenceError as error:
            return node, str(error).strip()[:_SHOWN]
    return None


def _fail(branch: ir.Graph, node: ir.Node, types: list[ir.DataType], names: FreshNames) -> None:
    """Let a branch give elements of empty sequences, which is an error when it is taken, in place of its results."""
    import numpy as np
    import onnx_ir as ir

    old = list(branch)
    first = ir.Value(
        name=names.fresh("first"), type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]),
        const_value=ir.tensor(np.array(0, np.int64)),
    )  # fmt: skip
    branch.register_initializer(first)
    for index, (value, kind) in enumerate(zip(list(branch.outputs), types, strict=True)):
        nothing = ir.Node("", "SequenceEmpty", [], [ir.AttrInt64("dtype", kind.value)], num_outputs=1)
        taken = ir.Node("", "SequenceAt", [nothing.outputs[0], first], num_outputs=1)
        for made in (nothing, taken):
            made.name = names.fresh(f"{node.name}_impossible")
            made.outputs[0].name = names.fresh(f"{value.name}_impossible")
        nothing.outputs[0].type = ir.SequenceType(ir.TensorType(kind))
        taken.outputs[0].type, taken.outputs[0].shape = ir.TensorType(kind), node.outputs[index].shape
        branch.extend([nothing, taken])
        branch.outputs[index] = taken.outputs[0]
    for dead in reversed(old):
        detach_bodies(dead)
        branch.remove(dead, safe=True)
