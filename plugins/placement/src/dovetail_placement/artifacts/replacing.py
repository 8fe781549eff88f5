"""Put what emitters made of regions in their places."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.artifacts import artifact_of
from dovetail.ir.fresh_names import FreshNames
from dovetail.plugin import Call, StandIn
from dovetail.text import pluralize
from dovetail_transforms.regions.regions import Region

from dovetail_placement.artifacts.border import Border
from dovetail_placement.artifacts.outlining import current_region, outline_region, replace_region, set_attributes
from dovetail_placement.form_regions import number_regions

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.plugin import Artifact


def replace_emitted(model: Model, made: Iterable[tuple[Region, Artifact]], ctx: Context) -> bool:
    """Replace each region for which an emitter gave an operator or a call, and number all regions again.

    Returns:
        Whether anything was replaced.
    """
    names, replaced = ctx.analysis(FreshNames, model), False
    border = Border(model, names, ctx)
    for region, artifact in made:
        ctx.count("regions emitted")
        # Nobody keeps the files of a trial, and whoever looks at its result wants to see the nodes.
        if artifact.node is None or isinstance(artifact.node, Call) and not ctx.files_wanted:
            continue
        name, region = f"region_{region.index}", current_region(region)
        # Behind an operator of the engine's own, the function only tells what that stands for: its weights go.
        node = outline_region(model, region, name, names)
        if isinstance(artifact.node, Call):
            set_attributes(node, artifact.node.attributes)
            what = f"a call of {node.domain}::{name}"
        else:
            node = _stand_in(model, region, node, artifact.node, names)
            border.convert(node, artifact.node.into, artifact.node.out)
            what = "it"
        if artifact.files or not isinstance(artifact.node, Call):
            artifact_of(node, f"{region.backend}/{name}")
        rule = "outlined" if not artifact.files and isinstance(artifact.node, Call) else "compiled"
        compiled = f", compiled into {_files(artifact)}" if rule == "compiled" else ""
        why = f"{what} stands for the {pluralize(len(region.nodes), 'node')} of region {region.index}{compiled}"
        ctx.remark("passed", node, rule, why)
        replaced = True
    if replaced:
        _remove_unread_weights(model)
        model.graph.sort()
        model.touch()
        number_regions(model, ctx)
    return replaced


def _stand_in(model: Model, region: Region, call: ir.Node, stand_in: StandIn, names: FreshNames) -> ir.Node:
    """Replace the call of an outlined region by an operator that reads no weights."""
    whole = Region(region.index, region.backend, (call,), region.inputs, tuple(call.outputs))
    inputs, attributes = list(region.inputs), stand_in.attributes
    return replace_region(model, whole, stand_in.op_type, stand_in.domain, inputs, attributes, stand_in.version, names)


def _files(artifact: Artifact) -> str:
    return f"the file {artifact.files[0]}" if len(artifact.files) == 1 else f"{len(artifact.files)} files"


def _remove_unread_weights(model: Model) -> None:
    """Remove the weights that only compiled regions read: the artifacts hold them."""
    kept = set(model.graph.outputs)
    for _, graph in model.graphs():
        kept.update(graph.outputs)
    for name, value in list(model.graph.initializers.items()):
        if not value.uses() and value not in kept and not value.is_graph_input():
            del model.graph.initializers[name]
