"""The `emit-artifacts` pass: let backends make files of their regions for their own tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.artifacts import ArtifactFolder
from dovetail.passes import Pass
from dovetail.planning.identity import key_of
from dovetail.planning.placement import get_placement
from dovetail.plugin import EmittedRegion
from dovetail_transforms.lowering import NotLowered, lower
from dovetail_transforms.regions.extraction import extract
from dovetail_transforms.regions.regions import Region, annotated_regions

from dovetail_placement.artifacts.emitting import NotEmitted, emitted, takes_whole_model
from dovetail_placement.artifacts.replacing import replace_emitted
from dovetail_placement.artifacts.source_regions import source_regions

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.planning.holdings import Holding
    from dovetail.plugin import Artifact, Backend


@dataclass(frozen=True)
class EmitArtifacts(Pass):
    """Let the emitters that backends name under `emit: {artifacts: [...]}` make files of regions, or of the model.

    Given:  region 0 of a backend that is compiled ahead of time:  a = Conv(x, w)   y = Relu(a)
    Result: artifacts/acme/region_0/net.blob, and y = com.acme::Blob(x) in the place of the region

    A node that an emitter refuses is placed elsewhere, and everything is decided again.
    """

    name = "emit-artifacts"
    stage = "emit"

    def run(self, model: Model, ctx: Context) -> bool:
        """Emit, and replace the regions for which an emitter gives a node."""
        backends = {backend.name: backend for backend in ctx.backends if backend.artifacts}
        if not backends:
            return False
        regions = [region for region in annotated_regions(model.graph) if region.backend in backends]
        if not regions:
            return False
        ctx.outcome.artifacts = ctx.outcome.artifacts or ArtifactFolder()
        sources = dict(source_regions(ctx.outcome.decided, regions)) if ctx.outcome.decided is not None else {}
        holdings = _Holdings(ctx.outcome.holdings)
        made: list[tuple[Region, Artifact]] = []
        for region in regions:
            backend = backends[region.backend]
            emitters = [name for name in backend.artifacts if not takes_whole_model(name, ctx)]
            if not emitters:
                continue
            # A region of conversions alone stands for nothing of the source model, and in a pipeline that does not
            # decide, the model is its own source.
            source = sources.get(region.index) or extract(model, region)
            try:
                given = _for_emitter(model, region, backend, source, holdings, ctx)
                made.append((region, emitted(given, emitters, ctx)))
                _remark_notes(given.nodes[0], made[-1][1], ctx)
            except NotEmitted as refused:
                _refuse(region.nodes, region.backend, refused, ctx)
        if ctx.files_wanted and not ctx.refusals.fresh:
            _emit_whole_model(model, regions, backends, holdings, ctx)
        if ctx.refusals.fresh:
            return False
        return replace_emitted(model, made, ctx)


def _emit_whole_model(
    model: Model, regions: Iterable[Region], backends: Mapping[str, Backend], holdings: _Holdings, ctx: Context
) -> None:
    """Ask the emitters that want the whole model, for each backend that has nodes in it."""
    for name in dict.fromkeys(region.backend for region in regions):
        emitters = [emitter for emitter in backends[name].artifacts if takes_whole_model(emitter, ctx)]
        if not emitters:
            continue
        source = (ctx.outcome.decided or model).clone()
        own = [node for node in source.graph if (place := get_placement(node)) is not None and place.backend == name]
        names, held = tuple(node.name or "" for node in own), holdings.of(own)
        given = EmittedRegion("model", backends[name], model.clone(), source, names, held, ctx)
        nodes = [node for region in regions if region.backend == name for node in region.nodes]
        try:
            _remark_notes(names[0], emitted(given, emitters, ctx), ctx)
            ctx.count("models emitted")
        except NotEmitted as refused:
            _refuse(nodes, name, refused, ctx)


def _for_emitter(
    model: Model, region: Region, backend: Backend, source: Model, holdings: _Holdings, ctx: Context
) -> EmittedRegion:
    """The region with its source in the opset of the backend.

    Raises:
        NotEmitted: A node has no form in that opset.
    """
    names = tuple(node.name or "" for node in source.graph)
    own = holdings.of(source.graph)
    if source.opset > backend.opset[1]:
        try:
            source = lower(source, backend.opset[1]).model
        except NotLowered as error:
            raise NotEmitted(f"{backend.name} reads opset {backend.opset[1]}: {error.message}", error.node) from error
    return EmittedRegion(f"region_{region.index}", backend, extract(model, region), source, names, own, ctx)


class _Holdings:
    """The holdings of a model by value: a scan of all of them for each region would be quadratic."""

    def __init__(self, holdings: Iterable[Holding]):
        self._by_value: dict[str, list[tuple[int, Holding]]] = {}
        for number, holding in enumerate(holdings):
            self._by_value.setdefault(holding.value, []).append((number, holding))

    def of(self, nodes: Iterable[ir.Node]) -> tuple[Holding, ...]:
        """The holdings of the values that these nodes compute and read, in the order in which they were made."""
        values = {
            value.name for node in nodes for value in (*node.inputs, *node.outputs) if value is not None and value.name
        }
        found = dict(pair for value in values for pair in self._by_value.get(value, ()))
        return tuple(found[number] for number in sorted(found))


def _remark_notes(first: str, artifact: Artifact, ctx: Context) -> None:
    """Say at the first node what emitters found about their files."""
    for note in artifact.notes:
        ctx.remark("missed", first, "artifact", note)


def _refuse(nodes: Sequence[ir.Node], backend: str, refused: NotEmitted, ctx: Context) -> None:
    """Refuse the node that the emitter names, or all that it was asked for."""
    named = [node for node in nodes if refused.node and refused.node in (node.name, key_of(node))]
    for node in named or nodes:
        ctx.refuse(node, backend, refused.why, rule="not-emitted", kind="failed")
