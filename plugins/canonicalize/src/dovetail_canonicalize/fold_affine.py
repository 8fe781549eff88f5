"""The `fold-affine` pass: fold constant scales and shifts into the preceding product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir.fresh_names import FreshNames
from dovetail.passes import Pass
from dovetail.planning.placement import origin_of, set_origin

from dovetail_canonicalize.products import Product, product_of

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context

__all__ = ["FoldAffine"]

_SCALES, _SHIFTS = ("Mul", "Div"), ("Add", "Sub")
# Constants beyond these could push weights or biases out of the range of float16.
_SMALLEST_SCALE, _LARGEST_SCALE, _LARGEST_SHIFT = 2.0**-8, 2.0**8, 2.0**13
_MOST_ELEMENTS = 65536


@dataclass(frozen=True)
class FoldAffine(Pass):
    """Fold Mul, Div, Add and Sub by constants into the convolution, Gemm or MatMul before them.

    Given:  %1 = Conv(%x, %w, %b)   %2 = Mul(%1, k)   %3 = Add(%2, c)
    Result: %3 = Conv(%x, %w * k, %b * k + c)

    k and c are scalars, or have one element per channel. New constants are computed in float64 and rounded once: a
    separately rounded scale would bias every element the same way.

    A scale is not folded into the product behind it. It often belongs to an activation that engines fuse, such as 1/6
    in a hard-swish, and divided weights may become subnormal in float16.
    """

    name = "fold-affine"
    stage = "normalise"
    after = ("normalise", "fold-constants", "fold-batchnorm")

    def run(self, model: Model, ctx: Context) -> bool:
        """Fold in graph order, so that chains fold into their product one by one."""
        changed = False
        overridable = {id(value) for value in model.graph.inputs}
        for _, graph in model.graphs():
            for node in graph:
                if node.op_type not in (*_SCALES, *_SHIFTS) or node.domain not in ("", "ai.onnx"):
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
    """A node that scales or shifts one value by a constant.

    Attributes:
        node: The node.
        value: The input that it scales or shifts.
        constant: The scale or shift, in float64.
    """

    node: ir.Node
    value: ir.Value
    constant: np.ndarray

    @property
    def scales(self) -> bool:
        """Whether it scales; otherwise it shifts."""
        return self.node.op_type in _SCALES

    def along(self, axis: int, channels: int) -> np.ndarray | None:
        """Return the constant with one element per channel along `axis` (from the end); None if it has another form."""
        import numpy as np

        shape = self.constant.shape
        if not self.keeps_rank:
            return None
        if self.constant.size == 1:
            return np.full(channels, self.constant.reshape(()))
        position = len(shape) + axis
        fits = self.constant.size == channels and position >= 0 and shape[position] == channels
        return self.constant.reshape(-1) if fits else None

    @property
    def keeps_rank(self) -> bool:
        """Whether the result has the rank of the value: a constant of higher rank would broadcast it."""
        rank = self.value.shape
        return not self.constant.shape or rank is not None and len(self.constant.shape) <= len(rank)


def _affine(node: ir.Node, overridable: set[int]) -> _Affine | None:
    import numpy as np

    for own, other in ((0, 1), (1, 0)):
        if own == 1 and node.op_type in ("Div", "Sub"):
            break  # c / x and c - x are not affine in this form
        value, constant = node.inputs[own], node.inputs[other]
        tensor = constant.const_value if constant is not None and constant.is_initializer() else None
        if tensor is None or id(constant) in overridable or value is None or value.is_initializer():
            continue
        if tensor.dtype.name not in ("FLOAT", "DOUBLE") or not 0 < tensor.size <= _MOST_ELEMENTS:
            continue
        array = tensor.numpy().astype(np.float64)
        if node.op_type in _SCALES:
            sizes = np.abs(array)
            # Comparisons with NaN are false.
            if not (sizes.min() >= _SMALLEST_SCALE and sizes.max() <= _LARGEST_SCALE):
                return None
            return _Affine(node, value, 1 / array if node.op_type == "Div" else array)
        if not np.abs(array).max() <= _LARGEST_SHIFT:
            return None
        return _Affine(node, value, -array if node.op_type == "Sub" else array)
    return None


def _fold(affine: _Affine, graph: ir.Graph, overridable: set[int], names: FreshNames) -> ir.Node | None:
    """Fold into the product that computes the value, if this is its only reader."""
    product = product_of(affine.value.producer(), overridable)
    if product is None or product.node.graph is not graph or not _read_once(affine.value):
        return None
    along, bias = affine.along(product.channel, product.channels), product.bias
    if along is None or bias is None and not affine.scales:
        return None
    if affine.scales:
        product.fold_in(graph, names, affine.node.name, along, _scaled(bias, along, product))
    else:
        product.fold_in(graph, names, affine.node.name, None, bias + along)
    _merge_origins(product.node, affine.node)
    _replace(graph, affine.node, affine.value)
    return product.node


def _scaled(bias: np.ndarray | None, along: np.ndarray, product: Product) -> np.ndarray | None:
    return None if bias is None or len(product.node.inputs) < 3 or product.node.inputs[2] is None else bias * along


def _read_once(value: ir.Value) -> bool:
    return len(value.uses()) == 1 and not value.is_graph_output()


def _merge_origins(product: ir.Node, node: ir.Node) -> None:
    set_origin(product, (*origin_of(product), *origin_of(node)))


def _replace(graph: ir.Graph, node: ir.Node, value: ir.Value) -> None:
    """Replace the result of `node` by `value`, which takes its name if it is an output."""
    result = node.outputs[0]
    name, is_output = result.name, result.is_graph_output()
    for index, output in enumerate(graph.outputs):
        if output is result:
            graph.outputs[index] = value
    result.replace_all_uses_with(value)
    graph.remove(node, safe=True)
    if is_output:
        result.name = None  # its node is gone, and gives the name up
        value.name = name
