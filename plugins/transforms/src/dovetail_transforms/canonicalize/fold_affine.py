"""The `fold-affine` pass: fold constant scales and shifts into the preceding product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir import FreshNames, constant_of, input_of, is_onnx, shape_of
from dovetail.passes import Pass
from dovetail.planning import origin_of, set_origin

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


_FLOATS = ("FLOAT", "DOUBLE")


class Product:
    """A product with a constant weight and an optional constant bias.

    Attributes:
        node: The node.
        outputs_at: The axis of output channels in the weight.
        channel: The channel axis of the result, counted from the end: -1 is the last.
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
        """Whether it has a bias input."""
        return len(self.node.inputs) > 2 and self.node.inputs[2] is not None

    def fold_in(
        self, graph: ir.Graph, names: FreshNames, name: str, scale: np.ndarray | None, bias: np.ndarray | None
    ) -> None:
        """Replace weight and bias.

        Args:
            graph: The graph that receives the constants.
            names: Generator of their names.
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
                # Compute in float64, so that the weight is rounded only once.
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
    if node is None or not is_onnx(node):
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
    """Add an initializer to `graph`; its name must be unique in the model."""
    import onnx_ir as ir

    tensor.name = name
    value = ir.Value(
        name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor
    )
    graph.register_initializer(value)
    return value


_SCALES, _SHIFTS, _BOTH = ("Mul", "Div"), ("Add", "Sub"), "BatchNormalization"
_OPERATORS = (*_SCALES, *_SHIFTS, _BOTH)
# Larger constants could push weights or biases out of the range of float16.
_SMALLEST_SCALE, _LARGEST_SCALE, _LARGEST_SHIFT = 2.0**-8, 2.0**8, 2.0**13
_MOST_ELEMENTS = 65536


class FoldAffine(Pass):
    """Fold Mul, Div, Add and Sub by constants into the convolution, Gemm or MatMul before them, and so
    BatchNormalization where `fold-batchnorm` found no convolution right before it.

    Given:  %1 = Conv(%x, %w, %b)   %2 = Mul(%1, k)   %3 = Add(%2, c)
    Result: %3 = Conv(%x, %w * k, %b * k + c)

    k and c are scalars, or have one element per channel. A Squeeze may stand between, as TensorFlow writes one between
    a convolution over time and its bias; it stays behind the product. New constants are computed in float64 and rounded
    once: a separately rounded scale would bias every element the same way.

    A scale is not folded into the following product. It often belongs to an activation that engines fuse, such as 1/6
    in a hard-swish, and divided weights may become subnormal in float16.
    """

    name = "fold-affine"
    stage = "normalize"
    after = ("normalize", "fold-constants", "fold-batchnorm")

    def run(self, model: Model, ctx: Context) -> bool:
        """Fold in graph order, so that chains fold into their product one by one."""
        changed = False
        overridable = {id(value) for value in model.graph.inputs}
        for _, graph in model.graphs():
            for node in graph:
                if node.op_type not in _OPERATORS or not is_onnx(node):
                    continue
                affine = _affine(node, overridable)
                into = affine and _fold(affine, graph, overridable, ctx.analysis(FreshNames, model))
                if into:
                    ctx.remark("passed", into, "fold-affine", f"'{node.name}' is folded into it")
                    ctx.count("folded")
                    changed = True
        return changed


@dataclass(slots=True)
class _Affine:
    """A node that scales and shifts one value by constants, in float64.

    Attributes:
        node: The node.
        value: The input that it scales and shifts.
        scale: The factor; None if it only shifts.
        shift: The addend; None if it only scales.
    """

    node: ir.Node
    value: ir.Value
    scale: np.ndarray | None
    shift: np.ndarray | None

    def along(self, constant: np.ndarray, axis: int, channels: int) -> np.ndarray | None:
        """Return a constant with one element per channel along `axis` (from the end); None if its shape differs."""
        import numpy as np

        shape = constant.shape
        if not self._keeps_rank(shape):
            return None
        if constant.size == 1:
            return np.full(channels, constant.reshape(()))
        position = len(shape) + axis
        fits = constant.size == channels and position >= 0 and shape[position] == channels
        return constant.reshape(-1) if fits else None

    def _keeps_rank(self, shape: tuple[int, ...]) -> bool:
        """Check whether the result has the rank of the value: a constant of higher rank would broadcast it."""
        rank = self.value.shape
        return not shape or rank is not None and len(shape) <= len(rank)


def _affine(node: ir.Node, overridable: set[int]) -> _Affine | None:
    import numpy as np

    if node.op_type == _BOTH:
        return _normalization(node, overridable)
    for own, other in ((0, 1), (1, 0)):
        if own == 1 and node.op_type in ("Div", "Sub"):
            break  # c / x and c - x are not affine in this form
        value, array = node.inputs[own], _constant(node.inputs[other], overridable)
        if array is None or value is None or value.is_initializer():
            continue
        if node.op_type in _SCALES:
            sizes = np.abs(array)
            # Comparisons with NaN are false.
            if not (sizes.min() >= _SMALLEST_SCALE and sizes.max() <= _LARGEST_SCALE):
                return None
            return _Affine(node, value, 1 / array if node.op_type == "Div" else array, None)
        if not np.abs(array).max() <= _LARGEST_SHIFT:
            return None
        return _Affine(node, value, None, -array if node.op_type == "Sub" else array)
    return None


def _normalization(node: ir.Node, overridable: set[int]) -> _Affine | None:
    """Express batch normalization with constant statistics as a scale and a shift per channel, the second axis."""
    import numpy as np

    value, *rest = node.inputs
    arrays = [found for one in rest if (found := _constant(one, overridable)) is not None]
    trains = node.attributes.get_int("training_mode", 0) or len(node.outputs) > 1
    if trains or value is None or value.shape is None or len(value.shape) < 2 or len(arrays) < len(rest):
        return None
    scale, shift, mean, variance = arrays
    scale = scale / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
    form = (-1, *[1] * (len(value.shape) - 2))
    return _Affine(node, value, scale.reshape(form), (shift - mean * scale).reshape(form))


def _constant(value: ir.Value | None, overridable: set[int]) -> np.ndarray | None:
    """Return the content of a small float constant in float64; None for any other value."""
    import numpy as np

    tensor = value.const_value if value is not None and value.is_initializer() else None
    if tensor is None or id(value) in overridable or tensor.dtype.name not in ("FLOAT", "DOUBLE"):
        return None
    return tensor.numpy().astype(np.float64) if 0 < tensor.size <= _MOST_ELEMENTS else None


def _fold(affine: _Affine, graph: ir.Graph, overridable: set[int], names: FreshNames) -> ir.Node | None:
    """Fold into the product that computes the value, if this is its only user."""
    before, squeezed = _behind_squeeze(affine.value, overridable)
    product = product_of(before.producer(), overridable)
    if product is None or product.node.graph is not graph or not (_read_once(affine.value) and _read_once(before)):
        return None
    channel = product.channel
    if squeezed:
        if channel in squeezed:
            return None
        channel += sum(channel < axis for axis in squeezed)
    scale = affine.scale if affine.scale is None else affine.along(affine.scale, channel, product.channels)
    shift = affine.shift if affine.shift is None else affine.along(affine.shift, channel, product.channels)
    if (scale is None) != (affine.scale is None) or (shift is None) != (affine.shift is None):
        return None
    bias = product.bias
    if bias is None and shift is not None:
        return None  # MatMul has no bias
    if shift is not None:
        bias = shift + (bias if scale is None else bias * scale)
    elif bias is None or not product.has_bias:
        bias = None
    else:
        bias = bias * scale
    product.fold_in(graph, names, affine.node.name or "", scale, bias)
    _merge_origins(product.node, affine.node)
    _replace(graph, affine.node, affine.value)
    return product.node


def _behind_squeeze(value: ir.Value, overridable: set[int]) -> tuple[ir.Value, frozenset[int]]:
    """Return what a Squeeze with constant axes makes a value of, and these axes, counted from the end.

    Of any other value, return it, and no axes.
    """
    node = value.producer()
    if node is None or node.op_type != "Squeeze" or not is_onnx(node) or node.inputs[0] is None:
        return value, frozenset()
    given = node.inputs[1] if len(node.inputs) > 1 else None
    tensor = given.const_value if given is not None and given.is_initializer() else None
    shape = node.inputs[0].shape
    if tensor is None or id(given) in overridable or shape is None:
        return value, frozenset()
    rank = len(shape)
    return node.inputs[0], frozenset(axis % rank - rank for axis in tensor.numpy().reshape(-1).tolist())


def _read_once(value: ir.Value) -> bool:
    return len(value.uses()) == 1 and not value.is_graph_output()


def _merge_origins(product: ir.Node, node: ir.Node) -> None:
    set_origin(product, (*origin_of(product), *origin_of(node)))


def _replace(graph: ir.Graph, node: ir.Node, value: ir.Value) -> None:
    """Replace the result of `node` by `value`, which takes over its name if it is a graph output."""
    result = node.outputs[0]
    name, is_output = result.name, result.is_graph_output()
    for index, output in enumerate(graph.outputs):
        if output is result:
            graph.outputs[index] = value
    result.replace_all_uses_with(value)
    graph.remove(node, safe=True)
    if is_output:
        result.name = None  # its node is removed, which frees the name
        value.name = name
