"""The `emit-artifacts` pass: run the emitters of backends on their regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.ir import FreshNames, used_values
from dovetail.planning import Region, Rejection, Remark, decided_key, extract, get_placement, key_of
from dovetail.plugin import Artifact, Call, EmittedRegion, Emitter, JointEmitter, StandIn
from dovetail.plugin.loading import PROGRAM, TRIAL, ArtifactFolder, artifact_of
from dovetail.text import pluralize
from dovetail_transforms.lowering import NotLowered, lower

from dovetail_placement.artifacts.emitters import Made, NotEmitted, emitted, emitter_class, refusal_alone
from dovetail_placement.artifacts.joint import emitted_jointly
from dovetail_placement.artifacts.outline_regions import (
    BorderConversions,
    outline_region,
    set_attributes,
)
from dovetail_placement.artifacts.refused_parts import Search
from dovetail_placement.artifacts.source_regions import source_regions
from dovetail_placement.regions.borders import Borders
from dovetail_placement.regions.form_regions import number_regions
from dovetail_placement.regions.topological import numbered_or_formed

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import QuantizedValue
    from dovetail.plugin import Backend


def replace_emitted(model: Model, made: Sequence[tuple[Region, Artifact]], ctx: Context) -> bool:
    """Replace each region for which an emitter returned an operator or a call, and renumber all regions.

    Returns:
        Whether anything was replaced.
    """
    ctx.count("regions emitted", len(made))
    # Where files are discarded, consumers examine the nodes.
    made = [one for one in made if one[1].node and (ctx.files_wanted or not isinstance(one[1].node, Call))]
    if not made:
        return False
    ctx.outcome.with_nodes = model.clone()
    names = ctx.analysis(FreshNames, model)
    border = BorderConversions(model, names, ctx)
    for region, artifact in made:
        assert artifact.node is not None, "others were left out"
        name, region = f"region_{region.index}", region.part(region.nodes)
        # With a compiled program, the function only documents the replaced nodes, so its weights are dropped.
        node = outline_region(model, region, name, names)
        if isinstance(artifact.node, Call):
            set_attributes(node, artifact.node.attributes)
            what = f"a call of {node.domain}::{name}"
        else:
            _stand_in(model, region, node, artifact.node)
            border.convert(node, artifact.node.into, artifact.node.out)
            what = "it"
        if artifact.files or not isinstance(artifact.node, Call):
            artifact_of(node, f"{region.backend}/{name}")
        rule = "outlined" if not artifact.files and isinstance(artifact.node, Call) else "compiled"
        compiled = f", compiled into {_files(artifact)}" if rule == "compiled" else ""
        why = f"{what} stands for the {pluralize(len(region.nodes), 'node')} of region {region.index}{compiled}"
        ctx.remark("passed", node, rule, why)
    _remove_unread_weights(model)
    model.graph.sort()
    model.touch()
    number_regions(model, ctx)
    return True


def _stand_in(model: Model, region: Region, call: ir.Node, stand_in: StandIn) -> None:
    """Make the call of an outlined region a node without weight inputs that names the program."""
    call.op_type, call.domain = PROGRAM
    call.resize_inputs(len(region.inputs))
    set_attributes(call, stand_in.attributes)
    model.graph.opset_imports.setdefault(call.domain, 1)


def _files(artifact: Artifact) -> str:
    own = f"the file {artifact.files[0]}" if len(artifact.files) == 1 else f"{len(artifact.files)} files"
    return f"{own} and {pluralize(len(artifact.shared), 'shared file')}" if artifact.shared else own


def _remove_unread_weights(model: Model) -> None:
    """Remove weights used only by compiled regions: the artifacts contain them."""
    kept = set(model.graph.outputs)
    for _, graph in model.graphs():
        kept.update(graph.outputs)
    for name, value in list(model.graph.initializers.items()):
        if not value.uses() and value not in kept and not value.is_graph_input():
            del model.graph.initializers[name]


def emit_artifacts(model: Model, backends: Mapping[str, Backend], ctx: Context) -> bool:
    """Emit the regions of these backends, by name, and replace those for which an emitter returns a node.

    Returns:
        Whether anything was replaced.
    """
    regions = [region for region in numbered_or_formed(model.graph) if region.backend in backends]
    if not regions:
        return False
    ctx.outcome.artifacts = ctx.outcome.artifacts or ArtifactFolder()
    sources = dict(source_regions(ctx.outcome.decided, regions)) if ctx.outcome.decided is not None else {}
    quantized_values = _QuantizedValues(ctx.outcome.quantized_values)
    borders = Borders(ctx.outcome.decided, ctx.outcome.quantized_values)
    made: list[tuple[Region, Artifact]] = []

    def given_of(region: Region) -> EmittedRegion:
        # A region of conversions alone has no source nodes. In a pipeline that does not decide, the model is its
        # own source.
        source = sources.get(region.index) or extract(model, region)
        return _for_emitter(model, region, backends[region.backend], source, quantized_values, borders, ctx)

    jointly = _jointly(regions, backends, given_of, ctx)
    for number, region in enumerate(regions):
        if ctx.progress:
            ctx.progress(f"emit region_{region.index} of {region.backend}", number, len(regions))
        backend = backends[region.backend]
        emitters = [name for name in backend.artifacts if _emits_regions(emitter_class(name, ctx))]
        if not emitters:
            continue
        try:
            given = given_of(region)
            made.append((region, _without_defaults(region, emitted(given, emitters, ctx, jointly))))
            _remark_notes(given.nodes[0], made[-1][1], ctx)
        except NotEmitted as refused:
            if refused.nodes or not any(map(decided_key, region.nodes)):
                _refuse(region.nodes, region.backend, refused, ctx)
            else:
                _refuse_parts(model, regions, region, backend, emitters, refused, quantized_values, borders, ctx)
    if ctx.files_wanted and not TRIAL.get() and not ctx.refusals.fresh:
        _emit_whole_model(model, regions, backends, quantized_values, borders, ctx)
    if ctx.refusals.fresh:
        return False
    return replace_emitted(model, made, ctx)


def _jointly(
    regions: Sequence[Region],
    backends: Mapping[str, Backend],
    given_of: Callable[[Region], EmittedRegion],
    ctx: Context,
) -> dict[tuple[str, str], Made | NotEmitted]:
    """Run the emitters that take all regions of their backend at once; return what they made of each region."""
    found: dict[tuple[str, str], Made | NotEmitted] = {}
    for name in dict.fromkeys(region.backend for region in regions):
        classes = [(emitter, emitter_class(emitter, ctx)) for emitter in backends[name].artifacts]
        joint = [emitter for emitter, each in classes if issubclass(each, JointEmitter) and _emits_regions(each)]
        given = []
        for region in regions if joint else ():
            with suppress(NotEmitted):  # which is reported where the region's turn comes
                given += [given_of(region)] if region.backend == name else []
        for emitter in joint if given else ():
            if ctx.progress:
                ctx.progress(f"emit {pluralize(len(given), 'region')} of {name} together", 0, 0)
            found |= emitted_jointly(emitter, given, ctx)
    return found


def _emits_regions(emitter: type[Emitter]) -> bool:
    """Check whether an emitter runs on regions: not on the whole model, nor for a trial that its programs match."""
    return not emitter.whole and not (emitter.matches_plan and TRIAL.get())


def _without_defaults(region: Region, artifact: Artifact) -> Artifact:
    """Return the artifact of a region, if it does not hold what callers may replace.

    Raises:
        NotEmitted: It is a program, and a weight in it is the default of an input.
    """
    if isinstance(artifact.node, StandIn) or artifact.node is not None and artifact.files:
        for node in region.nodes:
            for value in used_values(node):
                if value.is_initializer() and value.is_graph_input():
                    why = f"'{value.name}' is an input with a default, which a program would hold as a constant"
                    raise NotEmitted(f"{why} (--freeze-inputs makes it one)", node.name or "")
    return artifact


def _emit_whole_model(
    model: Model,
    regions: Iterable[Region],
    backends: Mapping[str, Backend],
    quantized_values: _QuantizedValues,
    borders: Borders,
    ctx: Context,
) -> None:
    """Run the whole-model emitters of each backend that has nodes in the model."""
    for name in dict.fromkeys(region.backend for region in regions):
        emitters = [emitter for emitter in backends[name].artifacts if emitter_class(emitter, ctx).whole]
        if not emitters:
            continue
        source = (ctx.outcome.decided or model).clone()
        own = [node for node in source.graph if (place := get_placement(node)) is not None and place.backend == name]
        names, held = tuple(node.name or "" for node in own), quantized_values.of(own)
        ends = borders.of(model.graph.inputs), borders.of(model.graph.outputs)
        given = EmittedRegion("model", backends[name], model.clone(), source, names, held, *ends, ctx)
        nodes = [node for region in regions if region.backend == name for node in region.nodes]
        try:
            _remark_notes(names[0], emitted(given, emitters, ctx), ctx)
            ctx.count("models emitted")
        except NotEmitted as refused:
            _refuse(nodes, name, refused, ctx)


def _for_emitter(
    model: Model,
    region: Region,
    backend: Backend,
    source: Model,
    quantized_values: _QuantizedValues,
    borders: Borders,
    ctx: Context,
) -> EmittedRegion:
    """Return the emitter's input for a region, with its source in the opset of the backend.

    Raises:
        NotEmitted: A node cannot be converted to that opset.
    """
    names = tuple(node.name or "" for node in source.graph)
    own = quantized_values.of(source.graph)
    if source.opset > backend.opset[1]:
        try:
            source = lower(source, backend.opset[1]).model
        except NotLowered as error:
            raise NotEmitted(f"{backend.name} reads opset {backend.opset[1]}: {error.message}", error.node) from error
    ends = borders.of(region.inputs), borders.of(region.outputs)
    return EmittedRegion(f"region_{region.index}", backend, extract(model, region), source, names, own, *ends, ctx)


def _refuse_parts(
    model: Model,
    regions: Sequence[Region],
    region: Region,
    backend: Backend,
    emitters: Sequence[str],
    refused: NotEmitted,
    quantized_values: _QuantizedValues,
    borders: Borders,
    ctx: Context,
) -> None:
    """Reject the nodes that emitters refuse alone, where they name none of the region."""
    account: list[Remark] = []

    def compiled(part: Region) -> NotEmitted | None:
        if ctx.progress:
            ctx.progress(f"emit {len(part.nodes)} nodes of region_{region.index} of {backend.name} alone", 0, 0)
        inside = set(part.nodes)
        rest = region.part([node for node in region.nodes if node not in inside])
        others = [other for other in regions if other is not region]
        divided = [*others, part, replace(rest, index=-1)]
        sources = dict(source_regions(ctx.outcome.decided, divided)) if ctx.outcome.decided is not None else {}
        try:
            source = sources.get(part.index) or extract(model, part)
            given = _for_emitter(model, part, backend, source, quantized_values, borders, ctx)
        except NotEmitted as error:
            return error
        return refusal_alone(given, emitters, ctx)

    goes_along = backend.border is not None and backend.border.into == "inside"

    def say(first: ir.Node, text: str) -> None:
        account.append(Remark("analysis", first.name or "", ctx.current_pass, "part-tried", text))

    faults = ctx.measured.of(Search).faults(region, refused, goes_along, compiled, say)
    for node, why in ((node, why) for nodes, why in faults for node in nodes):
        if account:  # remarks of this round are dropped, those of a rejection are kept
            remark = Remark("failed", node.name or "", ctx.current_pass, "not-emitted", why, backend=backend.name)
            ctx.refusals.add(backend.name, key_of(node), Rejection(why, (*account, remark)))
            account = []
        else:
            ctx.refuse(node, backend.name, why, rule="not-emitted", kind="failed")


class _QuantizedValues:
    """An index of quantized values by value: scanning all of them per region would be quadratic."""

    def __init__(self, quantized_values: Iterable[QuantizedValue]):
        self._by_value: dict[str, list[tuple[int, QuantizedValue]]] = {}
        for number, quantized in enumerate(quantized_values):
            self._by_value.setdefault(quantized.value, []).append((number, quantized))

    def of(self, nodes: Iterable[ir.Node]) -> tuple[QuantizedValue, ...]:
        """Return the quantized values that these nodes compute and read, in the order of their creation."""
        values = {
            value.name for node in nodes for value in (*node.inputs, *node.outputs) if value is not None and value.name
        }
        found = dict(pair for value in values for pair in self._by_value.get(value, ()))
        return tuple(found[number] for number in sorted(found))


def _remark_notes(first: str, artifact: Artifact, ctx: Context) -> None:
    """Remark the emitters' notes and facts at the first node."""
    for note in artifact.notes:
        ctx.remark("missed", first, "artifact", note)
    if artifact.facts:
        told = ", ".join(f"{name} {value}" for name, value in artifact.facts.items())
        why = f"the tool reports of its program: {told}"
        ctx.remark("analysis", first, "artifact-facts", why, facts=artifact.facts)


def _refuse(nodes: Sequence[ir.Node], backend: str, refused: NotEmitted, ctx: Context) -> None:
    """Reject the node that the emitter names, or all nodes of its input if it names none, or a conversion.

    Conversions are not placed, but follow from nodes that are: of a region of conversions alone, the readers are
    rejected.
    """
    if not any(map(decided_key, nodes)):
        nodes = [user for node in nodes for output in node.outputs for user, _ in output.uses()] or nodes
    named = [node for node in nodes if refused.nodes & {node.name, key_of(node)}]
    if any(map(decided_key, nodes)) and not any(map(decided_key, named)):
        named = []
    for node in named or nodes:
        ctx.refuse(node, backend, refused.why, rule="not-emitted", kind="failed")
