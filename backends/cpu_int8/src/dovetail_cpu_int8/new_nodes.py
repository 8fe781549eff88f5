"""Nodes that passes of `cpu-int8` insert before another one, with names, types and placement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
from dovetail.ir import FLOAT32, FreshNames, name_of
from dovetail.planning import Placement, get_placement, set_placement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.ir import Model
    from dovetail.passes import Context


BACKEND = "cpu-int8"


def is_here(node: ir.Node) -> bool:
    """Check whether `node` is placed on this backend."""
    placement = get_placement(node)
    return placement is not None and placement.backend == BACKEND


class NewNodes:
    """Makes nodes and constants of one model."""

    def __init__(self, model: Model, ctx: Context):
        self.graph = model.graph
        self._names = ctx.analysis(FreshNames, model)

    def add(
        self,
        before: ir.Node,
        operator: str,
        inputs: Sequence[ir.Value | None],
        name: str,
        like: tuple[ir.DataType, ir.Shape | None],
        domain: str = "",
        **attributes: int | ir.Attr,
    ) -> ir.Value:
        """Insert a node, and return its result.

        Args:
            before: The node that it comes before.
            operator: Its operator.
            inputs: Its inputs.
            name: Prefix of its name.
            like: Element type and shape of its result.
            domain: Domain of the operator.
            attributes: Its attributes.
        """
        node = ir.node(operator, inputs, attributes, domain=domain, name=self._names.fresh(name))
        result = node.outputs[0]
        result.name, (kind, result.shape) = self._names.fresh(f"{name}_out"), like
        result.type = ir.TensorType(kind)
        set_placement(node, Placement(BACKEND, FLOAT32))
        self.graph.insert_before(before, node)
        return result

    def split(self, before: ir.Node, value: ir.Value, extents: Sequence[int], name: str) -> Sequence[ir.Value]:
        """Insert a Split along the last axis, and return its results, which have no types yet.

        Args:
            before: The node that it comes before.
            value: The value that it divides.
            extents: The last extent of each part.
            name: Prefix of its name.
        """
        sizes = self.constant(ir.tensor(list(extents), dtype=ir.DataType.INT64, name=f"{name}_sizes"))
        node = ir.node("Split", [value, sizes], {"axis": -1}, num_outputs=len(extents), name=self._names.fresh(name))
        for part in node.outputs:
            part.name = self._names.fresh(f"{name}_out")
        set_placement(node, Placement(BACKEND, FLOAT32))
        self.graph.insert_before(before, node)
        return node.outputs

    def constant(self, tensor: ir.TensorProtocol) -> ir.Value:
        """Register a constant under a fresh name like that of its tensor."""
        tensor.name = self._names.fresh(tensor.name or "constant")
        value = ir.Value(
            name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor
        )
        self.graph.register_initializer(value)
        return value

    def replace(self, node: ir.Node, result: ir.Value) -> None:
        """Let readers of a node's result read another value under the same name, and remove the node."""
        old, producer = node.outputs[0], result.producer()
        assert producer is not None, "the result is computed"
        name = node.name
        result.type, result.shape = old.type, old.shape
        old.replace_all_uses_with(result, replace_graph_outputs=True)
        self.graph.remove(node, safe=True)
        producer.name = name
        result.name, old.name = old.name, None

    def drop_unread(self, value: ir.Value | None) -> None:
        """Remove the nodes that computed a value, and their constants, if nothing reads them any more."""
        while value is not None and not value.uses() and not value.is_graph_output():
            if value.is_initializer():
                del self.graph.initializers[name_of(value)]
                return
            producer = value.producer()
            if producer is None:
                return
            inputs = [given for given in producer.inputs if given is not None]
            self.graph.remove(producer, safe=True)
            for other in inputs[1:]:
                self.drop_unread(other)
            value = inputs[0] if inputs else None
