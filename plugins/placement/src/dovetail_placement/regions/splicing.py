"""Extraction of regions as models, and splicing of the changed models back into the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import FreshNames, all_nodes, bodies, dtype_name, format_of, name_of
from dovetail.planning import Placement, Region, extract, get_placement, set_placement

from dovetail_placement.regions.topological import numbered_or_formed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import onnx_ir as ir
    from dovetail.ir import Model


_COMPARED = 1 << 16  # bytes; larger weights are compared by identity only


def regions(model: Model, backend: str) -> ModelRegions:
    """Return the regions of a backend, to be extracted and spliced back: `dovetail.regions`.

    Args:
        model: A placed model.
        backend: The name of the backend.
    """
    return ModelRegions(model, [region for region in numbered_or_formed(model.graph) if region.backend == backend])


class ModelRegions:
    """The regions of one model, which are extracted and spliced back in any order, each at most once.

    Args:
        model: The model. `finish` must be called after the last region was put back.
        regions: The regions.
    """

    def __init__(self, model: Model, regions: Sequence[Region]):
        self._model, self._regions = model, tuple(regions)
        self._names = FreshNames.of(model.graph)
        nodes = list(all_nodes(model.graph))
        self._node_names = {node.name for node in nodes}
        self._value_names = {*_values_of(nodes), *_values_held(model.graph)}
        self._replaced: dict[ir.Value, ir.Value] = {}

    def __iter__(self) -> Iterator[Region]:
        return iter(self._regions)

    def __len__(self) -> int:
        return len(self._regions)

    def take(self, region: Region) -> Model:
        """Copy a region into a model: its inputs are the values that enter the region, and weights are shared."""
        inputs = tuple(self._replaced.get(value, value) for value in region.inputs)
        part = extract(self._model, Region(region.index, region.backend, region.nodes, inputs, region.outputs))
        part.names = self._names
        return part

    def put_back(self, region: Region, part: Model) -> None:
        """Replace the nodes of a region by those of the model that `take` returned for it.

        New nodes belong to the region; names that clash with the rest of the model are changed.

        Raises:
            DovetailError: The type of a value at the region's border changed, a node was moved to another backend, or
                the part imports another version of a domain.
        """
        graph, inner = self._model.graph, part.graph
        _check_border(region, inner)
        self._import(part)
        nodes, outputs = list(inner), {value.name: value for value in inner.outputs}
        weights = list(inner.initializers.values())
        _place(nodes, region)
        entering = {value.name: self._replaced.get(value, value) for value in region.inputs}
        for value in inner.inputs:
            value.replace_all_uses_with(entering[value.name])
        inner.outputs.clear()
        inner.initializers.clear()
        inner.remove(nodes)
        new_weights = self._reuse(weights)
        graph.insert_before(region.nodes[0], nodes)
        for old in region.outputs:
            old.replace_all_uses_with(outputs[old.name], replace_graph_outputs=True)
            self._replaced[old] = outputs[old.name]
        self._remove(region)
        self._rename(nodes, new_weights)
        for value in new_weights:
            graph.initializers.add(value)

    def finish(self) -> None:
        """Sort the nodes, and mark the model as changed."""
        self._model.graph.sort()
        self._model.touch()

    def _import(self, part: Model) -> None:
        known = self._model.ir.opset_imports
        for domain, version in part.ir.opset_imports.items():
            if known.setdefault(domain, version) != version:
                raise DovetailError(
                    f"the region imports version {version} of domain '{domain}', and the model version {known[domain]}"
                )
        for key, function in part.ir.functions.items():
            self._model.ir.functions.setdefault(key, function)

    def _reuse(self, weights: Iterable[ir.Value]) -> list[ir.Value]:
        """Redirect the part to the model's own weights; return weights that the model does not have."""
        new = []
        for value in weights:
            known = self._model.graph.initializers.get(name_of(value))
            if known is not None and _equal(known.const_value, value.const_value):
                value.replace_all_uses_with(known)
            else:
                new.append(value)
        return new

    def _remove(self, region: Region) -> None:
        """Remove the old nodes of a region, and weights that only they used."""
        graph, old, constants = self._model.graph, list(all_nodes(region.nodes)), region.constants
        self._node_names -= {node.name for node in old}
        self._value_names -= {*_values_of(old)}
        for node in old:
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
        graph.remove(region.nodes)
        for value in constants:
            if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
                self._value_names.discard(value.name)
                del graph.initializers[name_of(value)]

    def _rename(self, nodes: Sequence[ir.Node], weights: Iterable[ir.Value]) -> None:
        """Rename nodes and values whose names are taken outside of the region."""
        for node in all_nodes(nodes):
            if node.name in self._node_names:
                node.name = self._names.fresh(node.name or "")
            if node.name:
                self._node_names.add(node.name)
                self._names.reserve(node.name)
            for value in (*node.outputs, *(held for body in bodies(node) for held in _held(body))):
                self._claim(value)
        for value in weights:
            self._claim(value)

    def _claim(self, value: ir.Value) -> None:
        if value.name in self._value_names:
            value.name = self._names.fresh(value.name)
        if value.name:
            self._value_names.add(value.name)
            self._names.reserve(value.name)


def _values_of(nodes: Iterable[ir.Node]) -> Iterable[str]:
    """Yield the names of values defined by nodes and in their bodies."""
    for node in nodes:
        yield from (value.name for value in node.outputs if value.name)
        for body in bodies(node):
            yield from _values_held(body)


def _values_held(graph: ir.Graph) -> Iterable[str]:
    return map(name_of, _held(graph))


def _held(graph: ir.Graph) -> Iterable[ir.Value]:
    """Return the inputs and weights of a graph."""
    return [*graph.inputs, *(value for value in graph.initializers.values() if not value.is_graph_input())]


def _equal(one: ir.TensorProtocol | None, other: ir.TensorProtocol | None) -> bool:
    """Check whether two tensors are the same object, or small and bitwise equal."""
    if one is other:
        return True
    if one is None or other is None or one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.name == "STRING":
        return one.numpy().tolist() == other.numpy().tolist()
    return one.nbytes <= _COMPARED and one.tobytes() == other.tobytes()


def _check_border(region: Region, inner: ir.Graph) -> None:
    before = {value.name: value for value in (*region.inputs, *region.outputs)}
    for value in (*inner.inputs, *inner.outputs):
        known = before[value.name]
        if value.dtype != known.dtype:
            was, now = (dtype_name(kind) if kind is not None else "no type" for kind in (known.dtype, value.dtype))
            raise DovetailError(f"the type of '{value.name}' at the border of the region was {was}, and is {now}")


def _place(nodes: Sequence[ir.Node], region: Region) -> None:
    """Give every node a placement in the region; a lost placement is restored.

    Raises:
        DovetailError: A node is on another backend now.
    """
    before = {(node.name, node.op_type): get_placement(node) for node in all_nodes(region.nodes)}
    number = next((placement.region for placement in before.values() if placement is not None), None)
    for node in all_nodes(nodes):
        placement = get_placement(node) or before.get((node.name, node.op_type))
        if placement is None:
            kind = node.outputs[0].dtype if node.outputs else None
            placement = Placement(region.backend, format_of(kind), region=number)
        if (placement.backend, placement.region) != (region.backend, number):
            raise DovetailError(f"node '{node.name}' of {region.backend} was placed on {placement.backend}")
        set_placement(node, placement)
