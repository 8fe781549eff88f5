"""Regions: convex sets of nodes of one backend, in an executable order.

A region is convex if no path leaves and re-enters it, so every region can run as one unit. Control-flow nodes are
atomic: values captured by their bodies count as their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dovetail.errors import DovetailError
from dovetail.ir import all_nodes, bodies, input_of
from dovetail.planning import HOST, get_placement
from dovetail.plugin.loading import FUNCTIONS

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


SLICE = 4096
"""Nodes prepared together if one backend runs all: engine preparation is often superlinear."""

Reads: TypeAlias = "Mapping[ir.Node, tuple[ir.Value, ...]]"
"""The values that each node of a graph uses, directly or in its bodies."""

Groups: TypeAlias = "Sequence[Sequence[ir.Node]]"
"""Sets of nodes, each in graph order."""


@dataclass(frozen=True, eq=False)
class Region:
    """One unit of execution.

    Attributes:
        index: Its position in the execution order.
        backend: Name of the backend of all its nodes.
        nodes: In topological order; nodes of bodies belong to their control-flow node.
        inputs: Values from outside, except for constants (initializers).
        outputs: Values that later regions or the model's outputs use.
    """

    index: int
    backend: str
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]


def placed_backend(node: ir.Node) -> str:
    """Return the backend of a node's placement; `host` for an unplaced node."""
    placement = get_placement(node)
    return placement.backend if placement else HOST


def reads_of(graph: ir.Graph) -> Reads:
    """Return the values that each node of `graph` uses, without repetitions."""
    return {node: tuple(dict.fromkeys(used_values(node))) for node in graph}


def regions_from(
    graph: ir.Graph, groups: Groups, backend_of: Callable[[ir.Node], str], reads: Reads | None = None
) -> list[Region]:
    """Return the regions made of `groups`: all nodes of `graph`, in topological order of the groups."""
    reads = reads_of(graph) if reads is None else reads
    home = {output: g for g, group in enumerate(groups) for node in group for output in node.outputs}
    inputs: list[dict[ir.Value, None]] = [{} for _ in groups]
    leaving = {value for value in graph.outputs if value in home}
    for g, group in enumerate(groups):
        for value in (value for node in group for value in reads[node]):
            if home.get(value) != g and not value.is_initializer():
                inputs[g][value] = None
                leaving.add(value)
    regions = []
    for g, group in enumerate(groups):
        outputs = tuple(output for node in group for output in node.outputs if output in leaving)
        regions.append(Region(g, backend_of(group[0]), tuple(group), tuple(inputs[g]), outputs))
    return regions


def annotated_regions(graph: ir.Graph) -> list[Region]:
    """Return the regions recorded in a model's placements, in an executable order.

    If a node has no region, or the numbers contradict the graph, as after an edit, return `ready_regions`.
    """
    groups: dict[tuple[int, str], list[ir.Node]] = {}
    for node in graph:
        placement = get_placement(node)
        if placement is None or placement.region is None:
            return ready_regions(graph)
        groups.setdefault((placement.region, placement.backend), []).append(node)
    ordered, reads = [groups[key] for key in sorted(groups)], reads_of(graph)
    return regions_from(graph, ordered, placed_backend, reads) if in_order(ordered, reads) else ready_regions(graph)


def given_regions(graph: ir.Graph, parts: Groups, backend: str = HOST) -> list[Region]:
    """Return regions of one backend, one per group in `parts`; see `regions_from`."""
    return regions_from(graph, parts, lambda _: backend)


def ready_regions(graph: ir.Graph, backend_of: Callable[[ir.Node], str] = placed_backend) -> list[Region]:
    """Return regions of an unpartitioned graph: all ready nodes of one backend, then all of the next.

    No node of another backend runs during a region, so each region is convex. A partitioner may need fewer regions.
    Linear in nodes and edges.

    Raises:
        DovetailError: The graph has a cycle.
    """
    reads = reads_of(graph)
    position = {node: i for i, node in enumerate(graph)}
    users: dict[ir.Node, list[ir.Node]] = {node: [] for node in graph}
    waiting: dict[ir.Node, int] = {}
    ready: dict[str, list[ir.Node]] = {}
    for node, values in reads.items():
        producers = {producer for value in values if (producer := value.producer()) is not None}
        waiting[node] = len(producers)
        for producer in producers:
            users[producer].append(node)
        if not producers:
            ready.setdefault(backend_of(node), []).append(node)
    groups: list[list[ir.Node]] = []
    while ready:
        backend = next(iter(ready))
        queue, group = ready.pop(backend), []
        while queue:
            group.append(node := queue.pop())
            for user in users[node]:
                waiting[user] -= 1
                if not waiting[user]:
                    other = backend_of(user)
                    (queue if other == backend else ready.setdefault(other, [])).append(user)
        groups.append(sorted(group, key=position.__getitem__))
    if stuck := next((node for node, count in waiting.items() if count), None):
        raise DovetailError(f"node '{stuck.name}' waits for its own result: the graph has a cycle")
    return regions_from(graph, groups, backend_of, reads)


def in_order(units: Groups, reads: Reads) -> bool:
    """Check whether every unit follows the units that it reads from."""
    home: dict[ir.Node | None, int] = {node: i for i, unit in enumerate(units) for node in unit}
    return all(
        home.get(value.producer(), 0) <= i for i, unit in enumerate(units) for node in unit for value in reads[node]
    )


def slices(graph: ir.Graph, size: int = SLICE) -> list[Region]:
    """Return regions of the backend `host` with `size` nodes each, in graph order, or one if a border is untyped."""
    nodes = list(graph)
    found = given_regions(graph, [nodes[start : start + size] for start in range(0, len(nodes), size)])
    typed = all(value.type is not None for region in found for value in region.inputs)
    return found if typed else given_regions(graph, [nodes])


def used_values(node: ir.Node) -> list[ir.Value]:
    """Return the values of a node's own graph that it or its bodies use, with repetitions."""
    used = [value for value in node.inputs if value is not None]
    if not node.attributes.data:  # the wrapped dict: this runs for every node, and the wrapper is slow
        return used
    for body in bodies(node):
        inner = (value for nested in all_nodes(body) for value in nested.inputs if value is not None)
        used += [value for value in (*inner, *_body_outputs(body)) if value.graph is node.graph]
    return used


def _body_outputs(body: ir.Graph) -> Iterator[ir.Value]:
    """Yield outputs of a body and of nested bodies: they may be values of the outer graph."""
    yield from body.outputs
    for nested in body.subgraphs():
        yield from nested.outputs


def extract(model: Model, region: Region) -> Model:
    """Return a model that computes one region: same node and value names, same functions and opset imports.

    Weights are shared, not copied; values from outside become inputs.

    Raises:
        DovetailError: A value at the region's border has no type.
    """
    constants = dict.fromkeys(value for node in region.nodes for value in used_values(node) if value.is_initializer())
    return _model(model, region, constants, f"{model.graph.name or 'graph'}.region{region.index}")


def _model(model: Model, region: Region, constants: Iterable[ir.Value], name: str) -> Model:
    import onnx_ir as ir
    from dovetail.ir import Model

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
    return _model(model, region, constants, body.name or "body")


def _called(nodes: Iterable[ir.Node], functions: Mapping[tuple, ir.Function]) -> list[ir.Function]:
    """Return the model-local functions that the nodes call, directly or indirectly."""
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
