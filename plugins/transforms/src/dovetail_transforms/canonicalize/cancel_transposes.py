"""The `cancel-transposes` pass: compute between two transposes in the order of axes before the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir import FreshNames, constant_of, graph_of, input_of, insert_after_value
from dovetail.passes import Pass
from dovetail.text import pluralize

from dovetail_transforms.canonicalize.fold_affine import add_constant
from dovetail_transforms.canonicalize.layouts import (
    ELEMENTWISE,
    Order,
    data_inputs,
    inverse,
    moved_axes,
    moved_constant,
    moved_pads,
    order_of,
)

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


class CancelTransposes(Pass):
    """Compute elementwise operators between transposes in the order of axes before these, where that takes fewer.

    Given:  %a = Transpose<0,2,3,1>(%x)   %b = Relu(%a)   %c = Transpose<0,3,1,2>(%b)
    Result: %c = Relu(%x)

    Models exported from TensorFlow have such pairs around every convolution. The operators between them, with Concat,
    Pad and reductions that keep their axes, form a part of the graph; it is reordered as a whole if this removes more
    transposes at its border than it adds. Results are the same bit for bit; constants, axes and pads are reordered.
    """

    name = "cancel-transposes"
    stage = "normalize"
    after = ("normalize", "fold-constants", "remove-identity")
    before = ("fold-batchnorm", "fold-affine", "dead-code")

    def run(self, model: Model, ctx: Context) -> bool:
        """Reorder every part that has more transposes around it than it would have then."""
        changed = False
        overridable = {id(value) for value in model.graph.inputs}
        for _, graph in model.graphs():
            if not any(order_of(node) for node in graph):
                continue
            for part in _parts(graph, overridable):
                part.read(overridable)  # what it reads may be the result of a part that was reordered before
                order, gone = part.best_order()
                if order is None:
                    continue
                _Reordering(graph, part, order, ctx.analysis(FreshNames, model)).run()
                first = part.nodes[0]
                what = f"{pluralize(len(part.nodes), 'node')} from here on are computed in another order of axes"
                ctx.remark("passed", first, "cancel-transposes", f"{what}, which saves {pluralize(gone, 'transpose')}")
                ctx.count("transposes", gone)
                changed = True
        return changed


@dataclass
class _Part:
    """Connected nodes that do not depend on the order of axes.

    Attributes:
        nodes: The nodes, in the order of the graph.
        inputs: What each reads besides constants and shapes, by `id` of the node.
    """

    nodes: list[ir.Node] = field(default_factory=list)
    inputs: dict[int, list[ir.Value]] = field(default_factory=dict)

    def read(self, overridable: set[int]) -> None:
        """Look up what the nodes read."""
        self.inputs = {id(node): data_inputs(node, overridable) or [] for node in self.nodes}

    def entering(self) -> dict[int, ir.Value]:
        """Return the values that other nodes compute, by `id`."""
        read = (value for node in self.nodes for value in self.inputs[id(node)])
        return {id(value): value for value in read if id(value.producer()) not in self.inputs}

    def leaving(self) -> Iterator[tuple[ir.Value, list[ir.Node]]]:
        """Yield each result that is read elsewhere, with the nodes there; a graph output may have none."""
        for node in self.nodes:
            result = node.outputs[0]
            readers = [use.node for use in result.uses() if id(use.node) not in self.inputs]
            if readers or result.is_graph_output():
                yield result, readers

    def best_order(self) -> tuple[Order | None, int]:
        """Return the order to undo, and how many transposes that saves; no order if it saves none."""
        entering, leaving = self.entering().values(), list(self.leaving())
        orders = [order for value in entering if (order := order_of(value.producer()))]
        orders += [inverse(order) for _, readers in leaving for reader in readers if (order := order_of(reader))]
        if not orders:
            return None, 0
        ((order, _),) = Counter(orders).most_common(1)
        saved = 0
        for value in entering:
            if order_of(value.producer()) != order:
                saved -= 1
            elif not value.is_graph_output() and all(id(use.node) in self.inputs for use in value.uses()):
                saved += 1
        for result, readers in leaving:
            undone = _undoing(result, readers, order)
            saved += len(undone) - (len(undone) < len(readers) or result.is_graph_output())
        return (order, saved) if saved > 0 else (None, 0)


def _undoing(result: ir.Value, readers: list[ir.Node], order: Order) -> list[ir.Node]:
    """Return the readers of a result that undo `order`.

    Of those that compute a graph output, which keeps its name, only the first, and none in a body.
    """
    producer = result.producer()
    found = [reader for reader in readers if order_of(reader) == inverse(order)]
    outputs = [reader for reader in found if reader.outputs[0].is_graph_output()]
    first = next((reader for reader in outputs if producer is not None and reader.graph is producer.graph), None)
    return [reader for reader in found if reader is first or reader not in outputs]


def _parts(graph: ir.Graph, overridable: set[int]) -> list[_Part]:
    """Return the connected parts of nodes that can be computed in another order of axes."""
    above: dict[int, int] = {}

    def root(key: int) -> int:
        while above[key] != key:
            above[key] = key = above[above[key]]
        return key

    members: list[ir.Node] = []
    for node in graph:
        read = data_inputs(node, overridable)
        if read is None:
            continue
        members.append(node)
        above[id(node)] = id(node)
        for value in read:
            if id(value.producer()) in above:
                above[root(id(value.producer()))] = root(id(node))
    parts: dict[int, _Part] = {}
    for node in members:
        parts.setdefault(root(id(node)), _Part()).nodes.append(node)
    return list(parts.values())


class _Reordering:
    """Reorders a part of a graph: its nodes compute what they did before `order` was applied."""

    def __init__(self, graph: ir.Graph, part: _Part, order: Order, names: FreshNames):
        self._graph, self._part, self._order, self._names = graph, part, order, names
        self._constants: dict[tuple[int, str], ir.Value] = {}

    def run(self) -> None:
        """Replace the inputs of the part, its constants and attributes, and the values that others read from it."""
        read = list(self._part.entering().values())
        entering = {id(value): self._before(value) for value in read}
        leaving = {id(result): readers for result, readers in self._part.leaving()}
        for node in self._part.nodes:
            data = {id(value) for value in self._part.inputs[id(node)]}
            for index, value in enumerate(node.inputs):
                if value is None or id(value) in data and id(value) not in entering:
                    continue
                node.replace_input_with(index, entering.get(id(value)) or self._moved(node, index, value))
            if node.op_type == "Concat":
                import onnx_ir as ir

                (axis,) = moved_axes([node.attributes.get_int("axis", 0)], self._order)
                node.attributes["axis"] = ir.AttrInt64("axis", axis)
        for node in self._part.nodes:
            self._leave(node, leaving.get(id(node.outputs[0]), []))
        for value in read:
            producer = value.producer()
            if order_of(producer) and producer is not None and not value.uses() and not value.is_graph_output():
                graph_of(producer).remove(producer, safe=True)

    def _before(self, value: ir.Value) -> ir.Value:
        """Return a value before the order of its axes was changed."""
        producer = value.producer()
        if producer is not None and order_of(producer) == self._order:
            return input_of(producer, 0)
        node = self._transpose(value, inverse(self._order))
        insert_after_value(self._graph, value, node)
        return node.outputs[0]

    def _transpose(self, value: ir.Value, order: Order) -> ir.Node:
        import onnx_ir as ir

        node = ir.Node(
            "", "Transpose", [value], [ir.AttrInt64s("perm", order)], num_outputs=1,
            name=self._names.fresh(f"{value.name}_transpose"),
        )  # fmt: skip
        result, shape = node.outputs[0], value.shape
        result.name, result.type = self._names.fresh(f"{value.name}_reordered"), value.type
        result.shape = None if shape is None else ir.Shape([shape[axis] for axis in order])
        return node

    def _moved(self, node: ir.Node, index: int, value: ir.Value) -> ir.Value:
        """Return a constant of a node in the new order of axes: numbers to broadcast, axes, or pads."""
        import numpy as np
        import onnx_ir as ir

        tensor, kind = constant_of(value), "" if node.op_type in ELEMENTWISE else node.op_type
        if kind and index != 1 or not kind and tensor.size == 1:
            return value
        made = self._constants.get((id(value), kind))
        if made is None:
            if kind:
                move = moved_pads if kind == "Pad" else moved_axes
                array = np.array(move([int(number) for number in tensor.numpy().reshape(-1)], self._order), np.int64)
            else:
                array = moved_constant(tensor.numpy(), self._order)
            made = add_constant(
                self._graph, self._names.fresh(f"{value.name}_reordered"), ir.tensor(array, tensor.dtype)
            )
            self._constants[id(value), kind] = made
        return made

    def _leave(self, node: ir.Node, readers: list[ir.Node]) -> None:
        """Reorder a node's result; give other readers the old order, and those that undo it the new one."""
        import onnx_ir as ir

        result = node.outputs[0]
        undoing = _undoing(result, readers, self._order)
        name, is_output = result.name, result.is_graph_output()
        if result.shape is not None:
            result.shape = ir.Shape([result.shape[axis] for axis in inverse(self._order)])
        result.name = self._names.fresh(f"{name}_reordered")
        if len(undoing) < len(readers) or is_output:
            back = self._transpose(result, self._order)
            self._graph.insert_after(node, back)
            others = {id(reader) for reader in readers if reader not in undoing}
            for reader, index in [(use.node, use.idx) for use in result.uses() if id(use.node) in others]:
                reader.replace_input_with(index, back.outputs[0])
            back.outputs[0].name = name
            outputs = self._graph.outputs
            for index in [index for index, output in enumerate(outputs) if output is result]:
                outputs[index] = back.outputs[0]
        undoing.sort(key=lambda reader: reader.outputs[0].is_graph_output())  # the last one gives its name
        for reader in undoing:
            same = reader.outputs[0]
            same.replace_all_uses_with(result, replace_graph_outputs=True)
            graph_of(reader).remove(reader, safe=True)
            result.name, same.name = same.name, None  # its node is removed, which frees the name
