"""Graphs inside of nodes: functions that hold regions, put in place of their calls, and bodies as models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import all_nodes, bodies, input_of
from dovetail.planning import Region, model_of
from dovetail.plugin.loading import FUNCTIONS

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import CompiledModel


def calls(model: Model) -> list[ir.Node]:
    """Return the main-graph nodes that call functions holding regions."""
    functions = model.ir.functions
    if not functions:
        return []
    return [node for node in model.graph if node.domain.startswith(FUNCTIONS) and node.op_identifier() in functions]


def inline_regions(model: Model) -> None:
    """Inline every call of a function that holds a region.

    Nodes and values regain the names that they had before the region was outlined. An engine's own operators, whose
    weights are in artifacts, stay.
    """
    found, functions = calls(model), model.ir.functions
    for call in found:
        _inline(model.graph, call, functions[call.op_identifier()])
    for call in found:
        functions.pop(call.op_identifier(), None)
        model.graph.opset_imports.pop(call.domain, None)
    if found:
        model.touch()


def _inline(graph: ir.Graph, call: ir.Node, function: ir.Function) -> None:
    body = function.graph.clone()
    nodes, outputs = list(body), list(body.outputs)
    for index, value in enumerate(body.inputs):
        value.replace_all_uses_with(input_of(call, index))
    body.outputs.clear()
    body.remove(nodes)
    graph.insert_before(call, nodes)
    for old, new in zip(call.outputs, outputs, strict=True):
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        new.type, new.shape = old.type, old.shape
        # Value names are unique in a graph, so the call gives up its name first.
        new.name, old.name = old.name, None
    graph.remove(call, safe=True)


def with_nodes(compiled: CompiledModel) -> Model:
    """Return the model of a result with the nodes of its regions.

    Programs of a result that was loaded from a folder stay: their weights are in the artifacts alone.
    """
    if not compiled.model.ir.functions:
        return compiled.model
    if compiled.with_nodes is not None and not compiled.edited:
        return compiled.with_nodes
    model = compiled.model.clone()
    inline_regions(model)
    return model


def extract_body(model: Model, body: ir.Graph) -> Model:
    """Return a model that computes a control-flow body once; captured values become inputs and constants.

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
    return model_of(model, region, constants, body.name or "body")
