"""Put the nodes of regions that are functions of the model back into its graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.artifacts import FUNCTIONS
from dovetail.ir.required import input_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model


def calls(model: Model) -> list[ir.Node]:
    """The nodes of the main graph that call functions which hold regions."""
    functions = model.ir.functions
    if not functions:
        return []
    return [node for node in model.graph if node.domain.startswith(FUNCTIONS) and node.op_identifier() in functions]


def inline_regions(model: Model) -> None:
    """Replace every call of a function that holds a region by the nodes of that region.

    Nodes and values have the names again that they had before the region was outlined. Operators of an engine's own,
    whose weights are in artifacts, stay.
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
        # Names of values are unique in a graph, so the call gives its own away first.
        new.name, old.name = old.name, None
    graph.remove(call, safe=True)
