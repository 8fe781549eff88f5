"""The `outline-regions` pass: move regions into model-local functions, with conversions at their borders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, UsageError
from dovetail.ir import FreshNames, all_nodes, format_of, input_of, name_of
from dovetail.planning import (
    HOST,
    Placement,
    Step,
    get_placement,
    origin_of,
    placed_backends,
    placement_of,
    set_origin,
    set_placement,
)
from dovetail.text import did_you_mean

from dovetail_placement.conversions import ConversionPlacement, ConversionSteps
from dovetail_placement.regions.topological import numbered_or_formed

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Region


def outline_region(model: Model, region: Region, name: str, names: FreshNames) -> ir.Node:
    """Move a region into a function `dovetail.<backend>::<name>`, and return the node that calls it.

    The inputs of the function are those of the region, followed by its weights. The function keeps the working opset.

    Args:
        model: The model.
        region: A region of its main graph.
        name: The name of the function.
        names: Fresh names.
    """
    import onnx_ir as ir

    domain = f"dovetail.{region.backend}"
    view = ir.GraphView(
        (*region.inputs, *region.constants),
        region.outputs,
        nodes=region.nodes,
        opset_imports=model.graph.opset_imports,
        name=name,
    )
    body = view.clone()
    for value in body.inputs:
        value.const_value = None  # an input of the function, even if it is a constant outside
    function = ir.Function(domain, name, graph=body, attributes=())
    model.ir.functions[function.identifier()] = function
    return replace_region(model, region, name, domain, [*region.inputs, *region.constants], {}, 1, names)


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

    Users may precede it until the graph is sorted.

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
    # Bodies may also use values of the region, and would keep them alive.
    for inner in all_nodes(region.nodes):
        for index in range(len(inner.inputs)):
            inner.replace_input_with(index, None)
    graph.remove(region.nodes, safe=True)
    graph.opset_imports.setdefault(domain, version)
    model.touch()
    return node


def set_attributes(node: ir.Node, attributes: Mapping[str, Any]) -> None:
    """Set attributes of `node` by name: numbers, strings, bytes, and lists of numbers and strings."""
    import onnx_ir as ir

    # onnx-ir would treat bytes as a list of numbers.
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


def outline_regions(model: Model, backend: str, ctx: Context) -> bool:
    """Outline the regions of a backend, or of all but the host if it is empty; return whether there are any.

    Raises:
        UsageError: No node is on the backend.
        DovetailError: The model has no placements.
    """
    known = placed_backends(model)
    if not known:
        hint = "run `place` before it, or give a model that was compiled"
        raise DovetailError("outline-regions: the model has no placements", hint)
    if backend and backend not in known:
        raise UsageError(f"no node is on backend '{backend}'{did_you_mean(backend, known)}")
    wanted = {backend} if backend else known - {HOST}
    regions = [region for region in numbered_or_formed(model.graph) if region.backend in wanted]
    names = ctx.analysis(FreshNames, model)
    for region in regions:
        node = outline_region(model, region.part(region.nodes), f"region_{region.index}", names)
        ctx.remark("passed", node, "outlined", f"region {region.index} is a function of {len(region.nodes)} nodes")
    if regions:
        model.graph.sort()
        model.touch()
    return bool(regions)


class BorderConversions:
    """Inserts conversions at the borders of nodes that stand for regions.

    Args:
        model: The model.
        names: Fresh names.
        ctx: The context, with the registered conversions.
    """

    def __init__(self, model: Model, names: FreshNames, ctx: Context):
        self._model, self._names = model, names
        self._steps, self._places = ConversionSteps(model, ctx), ConversionPlacement(model, ctx)
        # A backend with artifacts runs compiled programs, which a separate conversion node could not join.
        self._running = {backend.name for backend in ctx.backends if not backend.artifacts}

    def convert(self, node: ir.Node, into: Sequence[str], out: Sequence[str]) -> None:
        """Apply conversions to every input and output of `node`.

        Each conversion runs on the backend at the other end of the edge if that supports its types, else on the host.

        Args:
            node: A node that stands for a region.
            into: Names of the conversions of each input, in order.
            out: Names of the conversions of each output.

        Raises:
            DovetailError: A conversion is not installed, fails, or does not return a typed value.
        """
        graph = self._model.graph
        for index in range(len(node.inputs)):
            value = input_of(node, index)
            producer = value.producer()
            given_by = [producer] if producer is not None else []
            for name in into:
                value, nodes = self._converted(value, name, given_by)
                graph.insert_before(node, nodes)
            node.replace_input_with(index, value)
        for value in node.outputs if out else ():
            readers, result, behind = list(value.uses()), value, node
            for name in out:
                result, nodes = self._converted(result, name, [reader for reader, _ in readers])
                graph.insert_after(behind, nodes)
                behind = nodes[-1] if nodes else behind
            _hand_over(self._model, value, result, readers, self._names)

    def _converted(self, value: ir.Value, name: str, ends: Sequence[ir.Node]) -> tuple[ir.Value, list[ir.Node]]:
        placed = (get_placement(end) for end in ends)
        backends = dict.fromkeys(place.backend for place in placed if place and place.backend in self._running)

        def place(node: ir.Node) -> str:
            ends = [end for end in (*node.inputs, *node.outputs) if end is not None]
            formats = [format_ for end in ends if (format_ := format_of(end.dtype)) is not None]
            if len(formats) < len(ends):
                return HOST
            return self._places.choose(node, formats[0], formats[-1], backends)

        result, nodes, constants = self._steps.make(value, Step(name), place)
        for constant in constants:
            self._model.graph.register_initializer(constant)
        return result, nodes


def _hand_over(model: Model, value: ir.Value, result: ir.Value, readers: Sequence[tuple], names: FreshNames) -> None:
    """Redirect the uses of `value` to `result`, which takes over its name and shape."""
    if result is value:
        return
    for reader, index in readers:
        reader.replace_input_with(index, result)
    for _, graph in model.graphs():
        for index, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[index] = result
    result.shape = value.shape
    value.shape = None
    name = value.name
    value.name = names.fresh(f"{name}_compiled")
    result.name = name
