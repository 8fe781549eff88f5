"""Regions as models of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.bodies import all_nodes, bodies

from dovetail_transforms.regions.regions import Region, used_values

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model


def extract(model: Model, region: Region) -> Model:
    """A model that computes one region: same node and value names, same functions and opset imports.

    Weights are shared, not copied; values from outside become inputs.

    Raises:
        DovetailError: A value at the region's border has no type.
    """
    constants = dict.fromkeys(value for node in region.nodes for value in used_values(node) if value.is_initializer())
    return _model(model, region, constants, f"{model.graph.name or 'graph'}.region{region.index}")


def _model(model: Model, region: Region, constants: Iterable[ir.Value], name: str) -> Model:
    import onnx_ir as ir
    from dovetail.ir.model import Model

    for value in region.inputs:
        if value.type is None:
            raise DovetailError(
                f"value '{value.name}' enters region {region.index} ({region.backend}) without a type",
                "infer the model's types first, or state the type in its value_info",
            )
    view = ir.GraphView(
        region.inputs,
        region.outputs,
        nodes=region.nodes,
        initializers=tuple(constants),
        opset_imports=model.graph.opset_imports,
        name=name,
    )
    source = model.ir
    part = ir.Model(
        view.clone(),
        ir_version=source.ir_version,
        producer_name=source.producer_name,
        functions=_called(region.nodes, source.functions),
    )
    return Model(part, dialect=model.dialect)


def extract_body(model: Model, body: ir.Graph) -> Model:
    """A model that computes the body of a control-flow node once; what it captures becomes inputs and constants.

    Raises:
        DovetailError: A captured value has no type.
    """
    nodes = tuple(body)
    inside = {id(value) for value in (*body.inputs, *body.initializers.values())}
    captured: dict[ir.Value, None] = {}
    for node in all_nodes(body):
        inside.update(id(value) for value in node.outputs)
        for inner in bodies(node):
            inside.update(id(value) for value in (*inner.inputs, *inner.initializers.values()))
    for node in all_nodes(body):
        captured.update({value: None for value in node.inputs if value is not None and id(value) not in inside})
    constants = {value: None for value in (*body.initializers.values(), *captured) if value.is_initializer()}
    inputs = tuple(value for value in (*body.inputs, *captured) if value not in constants)
    region = Region(0, "", nodes, inputs, tuple(dict.fromkeys(body.outputs)))
    return _model(model, region, constants, body.name or "body")


def _called(nodes: Iterable[ir.Node], functions: Mapping[tuple, ir.Function]) -> list[ir.Function]:
    """The model-local functions that the nodes call, and those that these call."""
    found: dict[tuple, ir.Function] = {}
    waiting = list(nodes) if functions else []
    while waiting:
        node = waiting.pop()
        for body in bodies(node):
            waiting.extend(body)
        key = node.op_identifier()
        if key in functions and key not in found:
            found[key] = functions[key]
            waiting.extend(functions[key])
    return list(found.values())
