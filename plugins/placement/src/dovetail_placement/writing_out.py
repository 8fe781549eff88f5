"""Operators that no chosen backend takes, written in simpler standard ones for a backend that takes these.

These are ONNX Runtime's own operators, and those on integers with scales: between DequantizeLinear and QuantizeLinear,
these become operators on floats, which backends quantize.

Like a fusion, this is an edit and part of the plan. If the backend does not claim all nodes that compute floats, the
edit is refused for it, so that the next round of decisions begins with the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import FreshNames
from dovetail.planning import Refusal
from dovetail.plugin import Edit
from dovetail_transforms.decompositions import ON_REQUEST, WriteOutNode, is_known, operators_needed
from dovetail_transforms.decompositions.formula import operator_of, result_of

from dovetail_placement.anchors import Anchors
from dovetail_placement.lifting import lifts

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Backend

    from dovetail_placement.claiming import Claiming


_QUANTIZE = "QuantizeLinear"
_CONVERSIONS = {_QUANTIZE, "DequantizeLinear"}


class WrittenOut(NamedTuple):
    """An operator that was written out for a backend.

    Attributes:
        nodes: The nodes in its place.
        core: The one that has the name of the operator's node.
        operator: The operator.
        backend: The backend.
    """

    nodes: Sequence[ir.Node]
    core: ir.Node
    operator: str
    backend: Backend


def write_out_unclaimed(model: Model, ctx: Context, claiming: Claiming) -> list[WrittenOut]:
    """Write out the operators that no backend claims, each for the first backend that takes the nodes in its place.

    With a replayed plan nothing is written out here: it is made with the plan's other edits.

    Args:
        model: The model, which is changed.
        ctx: The run.
        claiming: The claims of all backends; the host has not claimed yet.
    """
    if ctx.request.plan is not None:
        return []
    sites = [
        (node, backend)
        for node in model.graph
        if id(node) not in claiming.claimed and is_known(node)
        if (backend := _taker(node, model, ctx)) is not None
    ]
    if not sites:
        return []
    editor, names, anchors = WriteOutNode(), ctx.analysis(FreshNames, model), Anchors(model)
    edits = [anchors.recorded(Edit(editor.name, node.name or ""), node) for node, _ in sites]
    written = []
    for (node, backend), edit in zip(sites, edits):
        operator, name = operator_of(node), node.name or ""
        outcome = editor.write(model, node, names)
        made = editor.made(outcome, name)
        if made is None:
            continue
        ctx.round.edits.append(edit)
        parts = ", ".join(dict.fromkeys(new.op_type for new in outcome.nodes))
        why = f"no chosen backend takes {operator}; it is written out for {backend.name}: {parts}"
        ctx.remark("passed", name, editor.name, why)
        ctx.count(editor.name)
        written.append(WrittenOut(outcome.nodes, made, operator, backend))
    model.touch()
    return written


def _taker(node: ir.Node, model: Model, ctx: Context) -> Backend | None:
    """Return the first backend that takes every operator in the place of a node, and did not decline it before."""
    result = result_of(node)
    if operator_of(node) in ON_REQUEST or result is None or result.dtype is None:
        return None
    needed = operators_needed(node, model.ir.opset_imports)
    if isinstance(needed, Refusal):
        ctx.remark("missed", node, WriteOutNode.name, f"not written out: {needed.text}", source=needed.source)
        return None
    if not result.dtype.is_floating_point() and _QUANTIZE not in needed:
        return None  # arithmetic on integers without a scale stays where a kernel does it
    key = WriteOutNode().key(node)
    for backend in ctx.backends:
        declined = ctx.refusals.given_up(backend.name) is not None or key in ctx.refusals.nodes(backend.name)
        wanted = needed - _CONVERSIONS if lifts(backend) else needed
        if not declined and all(backend.takes("", operator) for operator in wanted):
            return backend
    return None


def refuse_unclaimed_parts(written: Sequence[WrittenOut], claiming: Claiming, ctx: Context) -> bool:
    """Refuse operators written out for a backend that does not take a part that computes floats, so that they are
    undone.

    Returns:
        Whether there is any.
    """
    found = False
    for each in written:
        own = lifts(each.backend)  # conversions are its own, or the host's
        kept = [node for node in each.nodes if node.graph is not None]  # others were lifted or folded
        parts = [node for node in kept if not (own and node.op_type in _CONVERSIONS)]
        lost = next((node for node in parts if _computes_floats(node) and not _is_claimed(node, each, claiming)), None)
        if lost is None:
            continue
        verdict = claiming.view_of(each.backend).verdict(lost)
        why = "; ".join(reason.text for reason in verdict.reasons if verdict.ok is False)
        why = why or f"its strategy '{ctx.strategy_of(each.backend)}' leaves it"
        text = f"{each.operator} is not written out: {each.backend.name} leaves its {lost.op_type}: {why}"
        ctx.refuse(each.core, each.backend.name, text, rule=WriteOutNode.name)
        found = True
    return found


def _computes_floats(node: ir.Node) -> bool:
    return any(value.dtype is not None and value.dtype.is_floating_point() for value in node.outputs)


def _is_claimed(node: ir.Node, each: WrittenOut, claiming: Claiming) -> bool:
    return claiming.claimed.get(id(node), ("",))[0] == each.backend.name
