"""The `dead-code` and `remove-identity` passes: remove unused nodes and no-ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import body_nodes, input_of, is_onnx
from dovetail.passes import Pass

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


class DeadCode(Pass):
    """Remove nodes and initializers that no graph output depends on.

    Given:  %b = Relu(%a), and nothing reads %b
    Result: the node is removed, and so are nodes and initializers that only it read. Graph inputs stay.
    """

    name = "dead-code"
    stage = "normalize"
    after = ("normalize", "fold-constants", "remove-identity", "fold-batchnorm", "fold-affine")

    def run(self, model: Model, ctx: Context) -> bool:
        """Remove nodes in one backward walk; bodies first, as they capture outer values."""
        changed = False
        graphs = [graph for _, graph in model.graphs()]
        for graph in reversed(graphs):
            for node in reversed(graph):
                if not any(value.uses() or value.is_graph_output() for value in node.outputs):
                    detach_bodies(node)
                    graph.remove(node, safe=True)
                    ctx.count("nodes")
                    changed = True
        for graph in reversed(graphs):
            inputs = {id(value) for value in graph.inputs}
            outputs = {id(value) for value in graph.outputs}
            for name, value in list(graph.initializers.items()):
                if not value.uses() and id(value) not in inputs and id(value) not in outputs:
                    del graph.initializers[name]
                    ctx.count("initializers")
                    changed = True
        return changed


def detach_bodies(node) -> None:
    """Detach the bodies of a removed node from the values they capture."""
    for inner in list(body_nodes(node)):
        for index in range(len(inner.inputs)):
            inner.replace_input_with(index, None)


class RemoveIdentity(Pass):
    """Remove nodes that return their input unchanged; their users read the input.

    Given:  %b = Identity(%a)   %c = Dropout(%b) outside training   %d = Cast(%c) to the type it has
            %e = Concat(%d, %z) with no elements in %z
    Result: readers of %e read %a; graph outputs keep their names.
    """

    name = "remove-identity"
    stage = "normalize"
    after = ("normalize", "fold-constants")

    def run(self, model: Model, ctx: Context) -> bool:
        """Remove no-ops in graph order, so that chains collapse in one walk."""
        changed = False
        for _, graph in model.graphs():
            for node in graph:
                changed |= _drop_empty_parts(node)
                if _is_noop(node) and _remove(graph, node):
                    ctx.count("removed")
                    changed = True
        return changed


def _drop_empty_parts(node: ir.Node) -> bool:
    """Drop the inputs of a Concat that are known to add nothing, such as the part of a head that does not rotate."""
    if node.op_type != "Concat" or not is_onnx(node) or len(node.inputs) < 2:
        return False
    axis = node.attributes.get_int("axis", 0) or 0
    kept = [value for value in node.inputs if value is None or not _is_empty(value, axis)]
    if not kept or len(kept) == len(node.inputs):
        return False
    for index, value in enumerate(kept):
        node.replace_input_with(index, value)
    for index in range(len(kept), len(node.inputs)):
        node.replace_input_with(index, None)
    node.resize_inputs(len(kept))
    return True


def _is_empty(value: ir.Value, axis: int) -> bool:
    shape = value.shape
    return shape is not None and -len(shape) <= axis < len(shape) and shape[axis] == 0


def _is_noop(node: ir.Node) -> bool:
    if not is_onnx(node) or not node.inputs or node.inputs[0] is None:
        return False
    if node.op_type == "Identity" or node.op_type == "Concat" and len(node.inputs) == 1:
        return True
    if node.op_type == "Cast":
        wanted = node.attributes.get_int("to", 0)
        return node.inputs[0].dtype is not None and node.inputs[0].dtype.value == wanted
    if node.op_type == "Dropout":
        # From opset 12 on, training mode is an input and is off if the input is absent.
        return len(node.inputs) < 3 and not any(value.uses() for value in node.outputs[1:])
    return False


def _remove(graph: ir.Graph, node: ir.Node) -> bool:
    source, result = input_of(node, 0), node.outputs[0]
    if any(value.is_graph_output() for value in node.outputs[1:]):
        return False
    if result.is_graph_output():
        # A graph output must keep its name, so the source value takes it, unless it is an output with its own name.
        producer = source.producer()
        if producer is None or producer.graph is not graph or source.is_graph_output():
            return False
        for index, output in enumerate(graph.outputs):
            if output is result:
                graph.outputs[index] = source
        name = result.name
        result.replace_all_uses_with(source)
        graph.remove(node, safe=True)
        result.name = None  # its node is removed, which frees the name
        # The declaration of an output may be more precise than inference.
        source.type, source.shape = source.type or result.type, source.shape or result.shape
        source.name = name
        return True
    result.replace_all_uses_with(source)
    graph.remove(node, safe=True)
    return True
