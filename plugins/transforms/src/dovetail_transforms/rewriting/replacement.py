"""The maker of new nodes for rewrites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.fresh_names import FreshNames


class Replacement:
    """Makes the nodes of a replacement; they enter the graph when the replacement is complete.

    `op.Add(x, y)` makes a node and returns its output; `op.TopK(x, k, axis=1, outputs=2)` returns two. Attributes that
    are None are left out.

    Attributes:
        node: The node that is replaced.
        version: The version of the default domain that new nodes are written in.
        nodes: The new nodes, in order.
        initializers: The new initializers.
    """

    def __init__(self, node: ir.Node, names: FreshNames, version: int):
        self.node = node
        self.version = version
        self.nodes: list[ir.Node] = []
        self.initializers: list[ir.Value] = []
        self._names = names

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return lambda *inputs, **attributes: self.make(op_type, inputs, **attributes)

    def make(
        self, op_type: str, inputs: Sequence[ir.Value | None], outputs: int = 1, domain: str = "", **attributes: Any
    ) -> ir.Value | Sequence[ir.Value]:
        """Make a node of an operator by name.

        Returns:
            Its output, or its outputs if there are several.
        """
        import onnx_ir as ir

        given = {name: value for name, value in attributes.items() if value is not None}
        version = self.version if domain in ("", "ai.onnx") else None
        held = ir.convenience.convert_attributes(given)
        node = ir.Node(domain, op_type, inputs, held, num_outputs=outputs, version=version)
        self.nodes.append(node)
        return node.outputs[0] if outputs == 1 else node.outputs

    def like(self, node: ir.Node, *inputs: ir.Value | None, **attributes: Any) -> ir.Value | Sequence[ir.Value]:
        """Make a node like `node` with other inputs; given attributes replace its own, or remove them (None)."""
        kept = {name: value for name, value in node.attributes.items() if name not in attributes}
        made = self.make(node.op_type, inputs, len(node.outputs), node.domain, **kept, **attributes)
        copy = self.nodes[-1]
        copy.name, copy.doc_string = node.name, node.doc_string
        copy.metadata_props.update(node.metadata_props)
        return made

    def constant(self, tensor: ir.TensorProtocol, what: str) -> ir.Value:
        """Make an initializer; `what` ends its name. A lazy tensor is computed when the model is saved."""
        import onnx_ir as ir

        tensor.name = self._names.fresh(f"{self.node.name or self.node.op_type}_{what}")
        kind, shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
        value = ir.Value(name=tensor.name, type=kind, shape=shape, const_value=tensor)
        self.initializers.append(value)
        return value
