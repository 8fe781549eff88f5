"""Products into which a scale and a shift can be folded: convolutions, Gemm and MatMul with constant weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.required import constant_of, input_of, shape_of

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir.fresh_names import FreshNames


_FLOATS = ("FLOAT", "DOUBLE")


class Product:
    """A product with a constant weight and an optional constant bias.

    Attributes:
        node: The node.
        outputs_at: The axis of output channels in the weight.
        channel: The axis of channels in the result, counted from the end: -1 is the last.
        channels: The number of output channels.
    """

    def __init__(self, node: ir.Node, outputs_at: int, channel: int):
        self.node = node
        self.outputs_at = outputs_at
        self.channel = channel
        self.channels = constant_of(input_of(node, 1)).shape.numpy()[outputs_at]

    @property
    def bias(self) -> np.ndarray | None:
        """The bias per output channel in float64; zeros if it has none. None for MatMul, which has no bias input."""
        import numpy as np

        if self.node.op_type == "MatMul":
            return None
        value = self.node.inputs[2] if len(self.node.inputs) > 2 else None
        if value is None:
            return np.zeros(self.channels)
        return np.broadcast_to(constant_of(value).numpy().astype(np.float64).reshape(-1), (self.channels,))

    @property
    def has_bias(self) -> bool:
        """Whether it reads a bias."""
        return len(self.node.inputs) > 2 and self.node.inputs[2] is not None

    def fold_in(
        self, graph: ir.Graph, names: FreshNames, name: str, scale: np.ndarray | None, bias: np.ndarray | None
    ) -> None:
        """Replace weight and bias.

        Args:
            graph: The graph that gets the constants.
            names: Names for them.
            name: Prefix of their names.
            scale: Factors of the weight per output channel, in float64; None to keep the weight.
            bias: The new bias; None to keep the old one.
        """
        import numpy as np
        import onnx_ir as ir

        old = constant_of(input_of(self.node, 1))
        dtype = old.dtype.numpy()
        if scale is not None:
            along = scale.reshape([-1 if position == self.outputs_at else 1 for position in range(len(old.shape))])

            def weight() -> ir.TensorProtocol:
                # Computed in float64, so that the weight is rounded only once.
                return ir.tensor((old.numpy() * along).astype(dtype))

            self.node.replace_input_with(1, add_constant(graph, names.fresh(f"{name}_weight"), _lazy(weight, old)))
        if bias is not None:
            if len(self.node.inputs) < 3:
                self.node.resize_inputs(3)
            self.node.replace_input_with(
                2, add_constant(graph, names.fresh(f"{name}_bias"), ir.tensor(np.asarray(bias).astype(dtype)))
            )


def product_of(node: ir.Node | None, overridable: set[int]) -> Product | None:
    """Return `node` as a product with constant weights, or None if it is not one.

    Args:
        node: Any node.
        overridable: The `id`s of graph inputs; an initializer among them is only a default.
    """
    if node is None or node.domain not in ("", "ai.onnx"):
        return None

    def constant(value: ir.Value | None) -> bool:
        if value is None or not value.is_initializer() or value.const_value is None:
            return False
        return id(value) not in overridable and value.const_value.dtype.name in _FLOATS

    rest = [value for value in node.inputs[2:3] if value is not None]
    if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul") or not constant(node.inputs[1]):
        return None
    if not all(constant(value) for value in rest):
        return None
    shape = constant_of(input_of(node, 1)).shape
    rank = len(shape)
    if node.op_type == "Conv":
        return Product(node, 0, 1 - rank)
    if node.op_type == "ConvTranspose":
        return Product(node, 1, 1 - rank) if node.attributes.get_int("group", 1) == 1 else None
    if node.op_type == "Gemm":
        transposed = node.attributes.get_int("transB", 0)
        plain = node.attributes.get_float("beta", 1.0) == 1.0 and all(
            constant_of(value).size in (1, shape[0 if transposed else 1])
            and not (len(shape_of(value)) == 2 and shape_of(value)[0] != 1)
            for value in rest
        )
        return Product(node, 0 if transposed else 1, -1) if plain else None
    return Product(node, 1, -1) if rank == 2 else None


def _lazy(make, like: ir.TensorProtocol) -> ir.TensorProtocol:
    import onnx_ir as ir

    return ir.LazyTensor(make, like.dtype, ir.Shape(like.shape.numpy()))


def add_constant(graph: ir.Graph, name: str, tensor: ir.TensorProtocol) -> ir.Value:
    """A new initializer of `graph`; nothing else in the model has its name."""
    import onnx_ir as ir

    tensor.name = name
    value = ir.Value(
        name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor
    )
    graph.register_initializer(value)
    return value
