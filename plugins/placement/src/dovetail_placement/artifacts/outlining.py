"""Turn a region into a model-local function, and replace it by a call or by another node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.ir.bodies import all_nodes
from dovetail.ir.required import name_of
from dovetail.planning.placement import Placement, origin_of, placement_of, set_origin, set_placement
from dovetail_transforms.regions.regions import used_values

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.fresh_names import FreshNames
    from dovetail.ir.model import Model
    from dovetail_transforms.regions.regions import Region


def current_region(region: Region) -> Region:
    """The region with the inputs that its nodes read now: regions that were replaced before it gave new values."""
    own = set(region.nodes)
    read = (value for node in region.nodes for value in used_values(node) if not value.is_initializer())
    inputs = dict.fromkeys(value for value in read if value.producer() not in own)
    return replace(region, inputs=tuple(inputs))


def outline_region(model: Model, region: Region, name: str, names: FreshNames) -> ir.Node:
    """Move a region into a function `dovetail.<backend>::<name>`, and return the node that calls it.

    The inputs of the function are those of the region, then its weights. The function keeps the working opset.

    Args:
        model: The model.
        region: A region of its main graph.
        name: The name of the function.
        names: Fresh names.
    """
    import onnx_ir as ir

    domain = f"dovetail.{region.backend}"
    weights = dict.fromkeys(value for node in region.nodes for value in used_values(node) if value.is_initializer())
    view = ir.GraphView(
        (*region.inputs, *weights),
        region.outputs,
        nodes=region.nodes,
        opset_imports=model.graph.opset_imports,
        name=name,
    )
    body = view.clone()
    for value in body.inputs:
        value.const_value = None  # an input of the function, whatever it is outside
    function = ir.Function(domain, name, graph=body, attributes=())
    model.ir.functions[function.identifier()] = function
    return replace_region(model, region, name, domain, [*region.inputs, *weights], {}, 1, names)


def replace_region(
    model: Model,
    region: Region,
    op_type: str,
    domain: str,
    inputs: list[ir.Value],
    attributes: Mapping[str, object],
    version: int,
    names: FreshNames,
) -> ir.Node:
    """Replace the nodes of a region by one node that computes its outputs, and return that node.

    Readers may stand before it afterwards, until the graph is sorted.

    Args:
        model: The model; it imports `domain` afterwards.
        region: A region of its main graph.
        op_type: The operator of the new node.
        domain: Its domain.
        inputs: Its inputs.
        attributes: Its attributes.
        version: The version of the domain.
        names: Fresh names.
    """
    import onnx_ir as ir

    graph = model.graph
    node = ir.Node(domain, op_type, inputs, num_outputs=len(region.outputs), name=names.fresh(op_type))
    set_attributes(node, attributes)
    origin = dict.fromkeys(name for old in region.nodes for name in origin_of(old))
    set_placement(node, Placement(region.backend, region=placement_of(region.nodes[0]).region))
    set_origin(node, tuple(origin))
    for old, new in zip(region.outputs, node.outputs, strict=True):
        new.type, new.shape = old.type, old.shape
        new.metadata_props.update(old.metadata_props)
    graph.insert_after(region.nodes[-1], node)
    for old, new in zip(region.outputs, node.outputs, strict=True):
        name = name_of(old)
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        old.name = names.fresh(name)
        new.name = name
    _replace_body_outputs(model, dict(zip(region.outputs, node.outputs, strict=True)))
    # Bodies read values of the region, too, and would hold on to them.
    for inner in all_nodes(region.nodes):
        for index in range(len(inner.inputs)):
            inner.replace_input_with(index, None)
    graph.remove(region.nodes, safe=True)
    graph.opset_imports.setdefault(domain, version)
    model.touch()
    return node


def set_attributes(node: ir.Node, attributes: Mapping[str, Any]) -> None:
    """Set attributes of `node`, by name: numbers, texts, bytes, and lists of numbers and texts."""
    import onnx_ir as ir

    # onnx-ir would take bytes for a list of numbers.
    for name, value in attributes.items():
        if isinstance(value, bytes):
            node.attributes[name] = ir.Attr(name, ir.AttributeType.STRING, value)
    attributes = {name: value for name, value in attributes.items() if not isinstance(value, bytes)}
    for attribute in ir.convenience.convert_attributes(attributes):
        node.attributes[attribute.name] = attribute


def _replace_body_outputs(model: Model, replaced: Mapping[ir.Value, ir.Value]) -> None:
    """Replace values that a body returns although the main graph computes them."""
    for _, graph in model.graphs():
        if graph is not model.graph:
            for index, value in enumerate(graph.outputs):
                if value in replaced:
                    graph.outputs[index] = replaced[value]
