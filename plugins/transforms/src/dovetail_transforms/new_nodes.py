"""Nodes that passes insert one by one, with names, types and a placement; rewrites make theirs by a `Replacement`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import onnx_ir as ir
from dovetail.ir import FreshNames, name_of
from dovetail.planning import set_placement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Placement

TypeAndShape: TypeAlias = "tuple[ir.DataType, ir.Shape | None]"


class NewNodes:
    """Makes nodes and constants of one model. Their names are fresh.

    Args:
        model: The model.
        ctx: Its context.
        placement: Where new nodes are placed; None before the model is placed.
    """

    def __init__(self, model: Model, ctx: Context, placement: Placement | None = None):
        self.graph = model.graph
        self._names = ctx.analysis(FreshNames, model)
        self._placement = placement

    def add(
        self,
        before: ir.Node,
        operator: str,
        inputs: Sequence[ir.Value | None],
        name: str,
        like: TypeAndShape,
        domain: str = "",
        **attributes: int | Sequence[int] | ir.Attr,
    ) -> ir.Value:
        """Insert a node, and return its result.

        Args:
            before: The node that it comes before.
            operator: Its operator.
            inputs: Its inputs.
            name: Prefix of its name; that of its result is `NAME_out`.
            like: Element type and shape of its result.
            domain: Domain of the operator.
            attributes: Its attributes.
        """
        (result,) = self.add_several(before, operator, inputs, name, {f"{name}_out": like}, domain, **attributes)
        return result

    def add_several(
        self,
        before: ir.Node,
        operator: str,
        inputs: Sequence[ir.Value | None],
        name: str,
        like: Mapping[str, TypeAndShape],
        domain: str = "",
        **attributes: int | Sequence[int] | ir.Attr,
    ) -> Sequence[ir.Value]:
        """Insert a node with several results, and return these.

        Args:
            before: The node that it comes before.
            operator: Its operator.
            inputs: Its inputs.
            name: Prefix of its name.
            like: Element type and shape of each result, by the prefix of its name.
            domain: Domain of the operator.
            attributes: Its attributes.
        """
        fresh = self._names.fresh(name)
        node = ir.node(operator, inputs, attributes, domain=domain, num_outputs=len(like), name=fresh)
        for result, (prefix, (kind, shape)) in zip(node.outputs, like.items(), strict=True):
            result.name, result.type, result.shape = self._names.fresh(prefix), ir.TensorType(kind), shape
        if self._placement is not None:
            set_placement(node, self._placement)
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
        producer, name = result.producer(), node.name
        assert producer is not None, "the result is computed"
        result.type, result.shape = node.outputs[0].type, node.outputs[0].shape
        self.replace_value(node.outputs[0], result)
        self.graph.remove(node, safe=True)
        producer.name = name

    def replace_value(self, old: ir.Value, new: ir.Value) -> None:
        """Let readers of a value read another one, which takes its name."""
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        new.name, old.name = old.name, None

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
