"""The `place` pass: assign every node to a backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.ir import FlatGraph, is_onnx
from dovetail.passes import Pass
from dovetail.planning import Placement, from_source, key_of, operator_name, set_placement
from dovetail.plugin import EngineError
from dovetail.text import near_misses
from dovetail_transforms.decompositions import WriteOutNode

from dovetail_placement.claiming import Claiming
from dovetail_placement.edits import apply_edits
from dovetail_placement.empty_backends import remark_empty_backends
from dovetail_placement.fix_ups import fix_up_claims, remark_declined, remedies_of
from dovetail_placement.legality import Judges
from dovetail_placement.lifting import RULE as SOURCE_SCALES
from dovetail_placement.lifting import lift_conversions
from dovetail_placement.open_extents import remark_open_extents
from dovetail_placement.pins import Pins
from dovetail_placement.preparing import fuse_offered, refuse_unclaimed
from dovetail_placement.reasons import remark_unexplained
from dovetail_placement.region_ends import settle_region_ends
from dovetail_placement.writing_out import refuse_unclaimed_parts, write_out_unclaimed

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Claim, Edit, ObserverChoice, PortRule, Remark

_OPERATORS = 6  # named of those that no engine runs


_CLAIM = "dovetail.claim"


class Place(Pass):
    """Let each backend claim nodes, in the user's order; the host takes the rest.

    Given:  nodes annotated with their kind
    Result: every node has a backend and the claim that placed it; each node that a backend named before its own did
            not get has a remark with the reason, such as the limit that it violates.

    Pins are claimed first, so that strategies see them. A rejected pin of the user is an error; a rejected pin that a
    file requests and that may be declined is a remark. Once all backends have claimed, fix-ups withdraw or narrow
    claims of their own backend, and withdrawn nodes are offered to the following backends. Then limits that depend on
    `region.last` are evaluated. Fusions that a backend asks for (`prepare:`) are made before anything is claimed, and
    are refused where the backend does not claim the result. Operators of ONNX Runtime that no backend claims are
    written out for a backend that takes the nodes in their place.
    """

    name = "place"
    stage = "place"
    after = ("edge-kinds",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Annotate all nodes; the graph changes only where a strategy requests an edit.

        Raises:
            DovetailError: No backend supports a node, or a pin requires something that its backend rejects.
        """
        known = [*ctx.remarks, *ctx.refusals.remarks(backend.name for backend in ctx.backends)]
        ctx.remarks[:] = known
        lifted = lift_conversions(model, ctx)
        fused = fuse_offered(model, ctx, lambda: _pinned(model, ctx)[0])
        known = list(ctx.remarks)
        claiming = _claims(model, ctx)
        if refuse_unclaimed(fused, claiming, ctx):
            return True
        written = write_out_unclaimed(model, ctx, claiming)
        if written:
            lift_conversions(model, ctx)
            told = (WriteOutNode.name, SOURCE_SCALES)
            known += [remark for remark in ctx.remarks[len(known) :] if remark.rule in told]
            ctx.remarks[:] = known  # all backends claim again, on the written out graph
            claiming = _claims(model, ctx)
            if refuse_unclaimed_parts(written, claiming, ctx):
                return True
        edited = _edit(model, claiming.edits, ctx)
        if edited:
            # Keep only the strategies' remarks on the edited graph; anchors of edits are in the unedited one.
            ctx.remarks[:] = [*known, *edited]
            claiming = _claims(model, ctx)
        remark_empty_backends(claiming, ctx)
        remark_declined(claiming.declined, ctx)
        claiming.claim(ctx.host)
        _check_all_placed(claiming, ctx)
        _annotate(claiming.claimed, claiming.flat, ctx)
        remark_unexplained(claiming, ctx)
        remark_open_extents(claiming, ctx)
        if ctx.remedies_for:
            ctx.remedies = remedies_of(claiming, ctx.remedies_for)
        return bool(edited or fused or written or lifted)


def claim_on(node: ir.Node) -> Claim | None:
    """Return the claim that placed `node`; None for nodes that nothing claimed."""
    return node.meta.data.get(_CLAIM)


def replace_observer(model: Model, known: ObserverChoice, by: ObserverChoice) -> None:
    """Let another observer compute the parameters that `known` computes, as if it had been chosen before placement."""
    changed: dict[int, Mapping[str, PortRule]] = {}  # nodes of one rule keep sharing one mapping
    for node in model.nodes():
        claim = claim_on(node)
        if claim is not None and claim.rules:
            key = id(claim.rules)
            if key not in changed:
                changed[key] = {port: _with_observer(rule, known, by) for port, rule in claim.rules.items()}
            node.meta[_CLAIM] = replace(claim, rules=changed[key])


def _with_observer(rule: PortRule, known: ObserverChoice, by: ObserverChoice) -> PortRule:
    parameters = {
        format_: found._replace(observer=by) if found.observer == known else found
        for format_, found in rule.parameters.items()
    }
    return replace(rule, parameters=parameters)


def _claims(model: Model, ctx: Context) -> Claiming:
    """Return the claims of all backends after fix-ups; the host has not claimed yet."""
    claiming, pins = _pinned(model, ctx)
    pins.remark_unfit(ctx)
    for backend in ctx.backends:
        claiming.claim(backend)
    for backend in ctx.backends:
        fix_up_claims(claiming, backend)
    settle_region_ends(claiming)
    return claiming


def _pinned(model: Model, ctx: Context) -> tuple[Claiming, Pins]:
    """Return the claims of pins alone, without nodes that were rejected in earlier rounds."""
    pins = Pins(model, ctx)
    refused = _refused(model, ctx.analysis(FlatGraph, model), ctx)
    return Claiming(model, ctx, ctx.analysis(Judges, model), pins, refused), pins


def _edit(model: Model, edits: Sequence[Edit], ctx: Context) -> list[Remark]:
    """Apply the edits that strategies request; the next round of decisions starts from the unedited graph."""
    known = {(edit.kind, edit.at, edit.side) for edit in ctx.round.edits}
    fresh = list(dict.fromkeys(edit for edit in edits if (edit.kind, edit.at, edit.side) not in known))
    if not fresh:
        return []
    before = len(ctx.round.edits)
    remarks = apply_edits(model, fresh, ctx)
    return remarks if len(ctx.round.edits) > before else []


def _refused(model: Model, flat: FlatGraph, ctx: Context) -> dict[str, dict[int, str]]:
    """Return the reasons of rejections in earlier rounds, by backend and the node's `id`."""
    found: dict[str, dict[int, str]] = {backend.name: {} for backend in ctx.backends}
    wanted = [(name, ctx.refusals.nodes(name)) for name in found if ctx.refusals.nodes(name)]
    for node in model.graph if wanted else ():
        for name, nodes in wanted:
            refused = nodes.get(key_of(node))
            if refused is not None:
                found[name].update({id(part): refused.why for part in (node, *flat.body_nodes(node))})
    return found


def _check_all_placed(claiming: Claiming, ctx: Context) -> None:
    """Check that every node is placed.

    Raises:
        EngineError: Some are not; it names the first one, and the operators of all.
    """
    lost = [node for node in claiming.flat.nodes if id(node) not in claiming.claimed]
    if not lost:
        return
    first = lost[0]
    verdict = claiming.judges.of(ctx.host)(first)
    why = "; ".join(reason.text for reason in verdict.reasons) or "no backend file lists it"
    operator, *others = dict.fromkeys(operator_name(node.domain, node.op_type) for node in lost)
    more = f", nor {', '.join(others[:_OPERATORS])}{', ...' if len(others) > _OPERATORS else ''}" if others else ""
    raise EngineError(
        f"node '{first.name}'{from_source(first)}: no engine here runs {operator} ({why}){more}",
        _suggest_operator(first) or "install a backend that does, or cut the node out of the model",
        nodes=[node.name or "" for node in lost],
    )


def _suggest_operator(node: ir.Node) -> str:
    """Suggest an operator for an unknown name of the default domain; empty for other domains."""
    import onnx

    if not is_onnx(node):
        return ""
    known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    near = near_misses(node.op_type, known, 1)
    return f"ONNX has no such operator; did you mean '{near[0]}'?" if near and node.op_type not in known else ""


def _annotate(claimed: dict[int, tuple[str, Claim]], flat: FlatGraph, ctx: Context) -> None:
    sizes = Counter(name for name, _ in claimed.values())
    placements = {name: Placement(name) for name in sizes}
    for node in flat.nodes:
        backend, claim = claimed[id(node)]
        set_placement(node, placements[backend])
        node.meta[_CLAIM] = claim
    for name, size in sizes.items():
        ctx.count(name, size)
