"""Fusions that backends ask for under `prepare:`, made on the nodes that it is offered, and undone if it refuses them.

A fusion is an edit, and part of the plan. One whose operator does not end up on the backend is refused, so that the
next round of decisions begins with the original nodes and does without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.ir import FreshNames
from dovetail.planning import origin_of
from dovetail.plugin import Edit
from dovetail_transforms.fusions.fusion import Fusion, named_fusions, replaced_text

from dovetail_placement.anchors import Anchors

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Backend

    from dovetail_placement.claiming import Claiming


class FusedNode(NamedTuple):
    """An operator that replaced a group of nodes for a backend.

    Attributes:
        node: The operator.
        backend: The backend that asks for the fusion.
        fusion: The fusion.
    """

    node: ir.Node
    backend: Backend
    fusion: Fusion


def fuse_offered(model: Model, ctx: Context, begin: Callable[[], Claiming]) -> list[FusedNode]:
    """Make the fusions that backends ask for, each on nodes that no backend before it claims.

    With a replayed plan nothing is fused here: its fusions are made with its other edits.

    Args:
        model: The model, which is changed.
        ctx: The run.
        begin: Returns the pinned claims on the present graph.

    Raises:
        DovetailError: A backend asks for an unknown fusion.
    """
    found: list[FusedNode] = []
    if ctx.request.plan is not None:
        return found
    present = {node.op_type for node in model.graph}
    for at, backend in enumerate(ctx.backends):
        fusions = tuple(named_fusions(backend.prepare, ctx.registry).values())
        usable = [fusion for fusion in fusions if _is_usable(fusion, backend, model, ctx)]
        usable = [fusion for fusion in usable if fusion.is_possible(present)]
        if not usable or ctx.refusals.given_up(backend.name) is not None:
            continue
        remarks = list(ctx.remarks)
        claiming = begin()
        for earlier in ctx.backends[:at]:
            claiming.claim(earlier)
        ctx.remarks[:] = remarks  # all backends claim again, on the fused graph
        found += _fuse(model, backend, usable, claiming, ctx)
    return found


def _is_usable(fusion: Fusion, backend: Backend, model: Model, ctx: Context) -> bool:
    """Check whether a backend may take the fused operator; remark why not, once for the model."""
    why = ""
    if not backend.takes(fusion.domain, fusion.operator):
        why = f"it makes {fusion.operator}, which {backend.name} does not take"
    elif model.opset < fusion.opset:
        why = f"it makes {fusion.operator} of opset {fusion.opset}, and the model has opset {model.opset}"
    if why:
        source = backend.prepare[fusion.name]
        ctx.remark("analysis", "", fusion.name, f"not applied for {backend.name}: {why}", source=source)
    return not why


def _fuse(
    model: Model, backend: Backend, fusions: Sequence[Fusion], claiming: Claiming, ctx: Context
) -> list[FusedNode]:
    view, refused = claiming.view_of(backend), ctx.refusals.nodes(backend.name)
    stay: list[tuple[ir.Node, Fusion, str]] = []

    def matches(node: ir.Node, fusion: Fusion) -> bool:
        tried = fusion.tried(node)
        if not tried.nodes or fusion.key(node) in refused or any(map(view.hides, tried.nodes)):
            return False
        if tried.why and fusion.general:
            stay.append((node, fusion, tried.why))
        return not tried.why

    # From the end: longer groups end later, and contain shorter ones.
    sites = [(node, one) for node in reversed(model.graph) for one in fusions if matches(node, one)]
    if not sites and not stay:
        return []
    anchors, names, made = Anchors(model), ctx.analysis(FreshNames, model), []
    edits = [anchors.recorded(Edit(fusion.name, node.name or ""), node) for node, fusion in sites]
    for (node, fusion), edit in zip(sites, edits):
        if node.graph is None:
            continue  # part of a longer group
        name, outcome = node.name or "", fusion.fuse(model, node, names)
        if outcome.why:
            continue  # another group took one of its nodes
        operator = fusion.made(outcome)
        ctx.round.edits.append(edit)
        sources = replaced_text(origin_of(operator))
        ctx.remark("passed", name, fusion.name, f"{operator.op_type} replaces {sources}, for {backend.name}")
        ctx.count(fusion.name)
        made.append(FusedNode(operator, backend, fusion))
    for node, fusion, why in stay:
        if node.graph is not None:  # otherwise a longer group contains it
            source = backend.prepare[fusion.name]
            ctx.remark("missed", node, fusion.name, f"not applied for {backend.name}: {why}", source=source)
    if made:
        model.touch()
    return made


def refuse_unclaimed(fused: Sequence[FusedNode], claiming: Claiming, ctx: Context) -> bool:
    """Refuse the operators that their backends did not claim, so that the next round does without these fusions.

    Returns:
        Whether there are any.
    """
    lost = [each for each in fused if claiming.claimed.get(id(each.node), ("",))[0] != each.backend.name]
    for node, backend, fusion in lost:
        verdict = claiming.view_of(backend).verdict(node)
        why = "; ".join(reason.text for reason in verdict.reasons if verdict.ok is False)
        why = why or f"its strategy '{ctx.strategy_of(backend)}' leaves it"
        source = next((reason.source for reason in verdict.reasons if verdict.ok is False), "")
        ctx.refuse(node, backend.name, f"{fusion.name} is undone: {why}", rule=fusion.name, source=source)
    return bool(lost)


def replay_fusions(model: Model, edits: Sequence[Edit], ctx: Context) -> list[Edit]:
    """Make the fusions of a replayed plan, in linear time, and return its other edits.

    Raises:
        DovetailError: A node is gone, or no group of the fusion ends with it.
    """
    classes = {kind: ctx.registry.edit[kind] for kind in dict.fromkeys(edit.kind for edit in edits)}
    fusions = {
        kind: found() for kind, found in classes.items() if isinstance(found, type) and issubclass(found, Fusion)
    }
    wanted = [edit for edit in edits if edit.kind in fusions]
    if not wanted:
        return list(edits)
    anchors, names = Anchors(model), ctx.analysis(FreshNames, model)
    nodes = [anchors.node(edit) for edit in wanted]
    recorded = [anchors.recorded(edit, node) for edit, node in zip(wanted, nodes)]
    for edit, node in zip(recorded, nodes):
        fusion = fusions[edit.kind]
        why = "an edit before it replaced the node" if node.graph is None else fusion.fuse(model, node, names).why
        if why:
            raise DovetailError(f"edit '{edit}' of the plan: {why}", "remove it from the plan")
        ctx.round.edits.append(edit)
    model.touch()
    return [edit for edit in edits if edit.kind not in fusions]
