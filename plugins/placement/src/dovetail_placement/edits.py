"""Application of edits: lookup of their anchor nodes, and checks of the added nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import FreshNames
from dovetail.passes import Pass
from dovetail.planning import Remark
from dovetail.plugin import Edit, Editor
from dovetail.plugin.loading import calling, made

from dovetail_placement.anchors import Anchors
from dovetail_placement.preparing import replay_fusions

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Registry


def apply_edits(model: Model, edits: Sequence[Edit], ctx: Context) -> list[Remark]:
    """Apply `edits` to the graph, and append them to `ctx.round.edits`; edits already made are skipped.

    All anchor nodes are looked up before the first change, so no edit is made next to nodes added by another.

    Args:
        model: The normalized model.
        edits: The edits in the order in which they are applied.
        ctx: The run; its registry has the editors.

    Returns:
        Remarks on the applied edits, for `ctx.remarks`.

    Raises:
        DovetailError: A node is gone, a kind is unknown, or an edit is requested twice, rejects its node, fails, or
            leaves an invalid model.
    """
    if not edits:
        return []
    anchors = Anchors(model)
    found: dict[tuple[str, int, str], tuple[Edit, ir.Node]] = {}
    editors = {kind: _editor(kind, ctx.registry) for kind in dict.fromkeys(edit.kind for edit in edits)}
    applied = {(edit.kind, edit.at, edit.side) for edit in ctx.round.edits}
    for edit in edits:
        node = anchors.node(edit)
        _check_side(edit, *editors[edit.kind])
        if (edit.kind, id(node), edit.side) in found:
            raise DovetailError(f"edit '{edit}' is asked for twice", "leave one of them out")
        recorded = anchors.recorded(edit, node)
        if (edit.kind, recorded.at, edit.side) not in applied:
            found[edit.kind, id(node), edit.side] = (recorded, node)
    remarks = []
    for edit, node in found.values():
        remarks += _apply(model, edit, node, *editors[edit.kind], ctx)
        ctx.round.edits.append(edit)
    if found:
        model.touch()
        _verify(model, [editors[kind][0] for kind in dict.fromkeys(edit.kind for edit, _ in found.values())])
    return remarks


def _editor(kind: str, registry: Registry) -> tuple[str, Editor]:
    """Return the registered editor, with its title for messages."""
    title = registry.edit.title(kind)
    return title, made(registry.edit[kind], title, Editor)


def _check_side(edit: Edit, title: str, editor: Editor) -> None:
    if edit.side not in editor.sides:
        raise DovetailError(
            f"edit '{edit}': {title} cannot be made {edit.side} a node", f"it can {' or '.join(editor.sides)} one"
        )


def _apply(model: Model, edit: Edit, node: ir.Node, title: str, editor: Editor, ctx: Context) -> list[Remark]:
    """Apply one edit, and check the added nodes."""
    if node.graph is None:
        raise DovetailError(f"edit '{edit}': an edit before it removed '{node.name}'", "leave one of them out")
    interface = model.interface()
    with calling(f"{title} at '{node.name}'"):
        added = list(editor.apply(model, node, edit.side, ctx))
    model.touch()
    if model.interface() != interface:
        raise DovetailError(f"{title} at '{node.name}' changes the inputs or outputs of the model", _CONTRACT)
    for new in added:
        if getattr(new, "graph", None) is None:
            raise DovetailError(f"{title} at '{node.name}' returns what is no node of the model", _CONTRACT)
        if untyped := [value.name for value in new.outputs if value.type is None]:
            raise DovetailError(f"{title} at '{node.name}' gives '{untyped[0]}' no type", _CONTRACT)
        if not new.name:
            new.name = ctx.analysis(FreshNames, model).fresh(f"{node.name}_{edit.kind}")
    names = ", ".join(f"'{new.name}'" for new in added) or "no node"
    here = Remark("passed", node.name or edit.at, ctx.current_pass, "edit", f"{edit.kind} added {names} {edit.side} it")
    why = f"{edit.kind} added it {edit.side} '{node.name}'"
    return [
        here,
        *(Remark("passed", new.name or "", ctx.current_pass, "edit", why, (node.name or "",)) for new in added),
    ]


def _verify(model: Model, makers: Iterable[str]) -> None:
    from dovetail.ir import verify_model

    try:
        verify_model(model)
    except DovetailError as error:
        raise DovetailError(f"{' or '.join(makers)} left an invalid model: {error.message}", error.hint) from error


_CONTRACT = "an edit returns the nodes that it added, each in the graph and with a type for every output"


class ApplyEdits(Pass):
    """Apply the edits of the request, after those of a replayed plan.

    Given:  a normalized model, `--edit unit-conv=concat_12:after`
    Result: the model with the nodes that the edit `unit-conv` adds after the node `concat_12`
    """

    name = "apply-edits"
    stage = "analyze"
    before = ("edge-kinds", "measure-ranges")

    def run(self, model: Model, ctx: Context) -> bool:
        """Apply the edits; nothing else changes."""
        known = len(ctx.round.edits)
        # Later edits of a plan may stand beside what its fusions made.
        replayed = ctx.request.plan.edits if ctx.request.plan is not None else ()
        planned = replay_fusions(model, [Edit.from_dict(entry) for entry in replayed], ctx)
        for edits in (planned, [Edit.parse(text) for text in ctx.request.edits]):
            ctx.round.remarks += apply_edits(model, edits, ctx)
        ctx.count("edits", len(ctx.round.edits) - known)
        return len(ctx.round.edits) > known
