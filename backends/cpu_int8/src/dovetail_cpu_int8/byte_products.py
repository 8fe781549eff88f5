"""The `byte-products` pass: products with weights of 8 bits in two of 4 bits, where they compute in floats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.ir import constant_of, input_of
from dovetail.passes import Pass

from dovetail_cpu_int8.accuracy_level import LEVEL
from dovetail_cpu_int8.backend import is_here, new_nodes
from dovetail_cpu_int8.packed_weights import lazy, packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_transforms import NewNodes


_DOMAIN = "com.microsoft"
_GATHER = "GatherBlockQuantized"
_HALF = 16  # numbers that four bits hold
_ZEROS, _BIAS = 3, 5  # indices of inputs


class ByteProducts(Pass):
    """Compute a product of 8 bits with `accuracy_level=1` as one of their upper and one of their lower four bits.

    Given:  %y = MatMulNBits<bits = 8, accuracy_level = 1>(%x, %w, %s)
    Result: %y = MatMulNBits<bits = 4>(%x * 16, %upper, %s) + MatMulNBits<bits = 4>(%x, %lower, %s, 0)

    Both add up to the same numbers. ONNX Runtime (1.32) has no kernel for 8 bits that reads floats: each call
    dequantizes the whole weight. With four bits it has one, so that two take a twentieth of the time for one token. A
    table that shares the weight is gathered from both halves.
    """

    name = "byte-products"
    stage = "join"
    for_backend = "cpu-int8"
    requires = ("join",)
    after = ("accuracy-level", "half-scales")

    def run(self, model: Model, ctx: Context) -> bool:
        """Divide the products of the main graph, each weight once for all of its readers."""
        weights = dict.fromkeys(input_of(node, 1) for node in model.graph if _is_slow(node))
        nodes, made = new_nodes(model, ctx), 0
        for weight in weights:
            readers = _readers(weight)
            if readers is None:
                continue
            halves = _Halves(weight, nodes)
            for node in readers:
                halves.read_by(node)
                why = "two products of 4 bits compute that of 8 bits, for which there is no kernel that reads floats"
                if node.op_type == _GATHER:
                    why = "gathers the upper and the lower 4 bits apart, which a product shares"
                ctx.remark("passed", node, self.name, why)
            made += len(readers)
        if made:
            ctx.count("divided", made)
            model.touch()
        return made > 0


def _is_slow(node: ir.Node) -> bool:
    """Check whether a node is a product of 8 bits that reads floats as they are."""
    if node.op_type != "MatMulNBits" or not is_here(node) or input_of(node, 0).dtype is not ir.DataType.FLOAT:
        return False
    return node.attributes.get_int("bits", 4) == 8 and node.attributes.get_int(LEVEL, 0) <= 1


def _readers(weight: ir.Value) -> list[ir.Node] | None:
    """Return the products and Gathers that read a weight, perhaps through a Reshape; None if anything else does."""
    if not weight.is_initializer() or weight.is_graph_output() or weight.is_graph_input():
        return None
    found: list[ir.Node] = []
    for node, index in weight.uses():
        reads = [(node, index)]
        if node.op_type == "Reshape" and index == 0 and not node.outputs[0].is_graph_output():
            reads = [(use.node, use.idx) for use in node.outputs[0].uses()]
        for reader, place in reads:
            is_table = reader.op_type == _GATHER and place == 0
            if not is_table and not (_is_slow(reader) and place == 1):
                return None
            zero = _zero_points(reader)
            if zero is not None and not zero.is_initializer():
                return None
            found.append(reader)
    return found


def _zero_points(node: ir.Node) -> ir.Value | None:
    return node.inputs[_ZEROS] if len(node.inputs) > _ZEROS else None


class _Halves:
    """The upper and the lower four bits of one weight, and what reads them."""

    def __init__(self, weight: ir.Value, nodes: NewNodes):
        tensor, self._nodes = constant_of(weight), nodes
        shape = tensor.shape.numpy()
        self._shape = (*shape[:-1], shape[-1] // 2)
        name = str(weight.name)
        self._upper = nodes.constant(self._packed(tensor, 4, f"{name}_upper"))
        self._lower = nodes.constant(self._packed(tensor, 0, f"{name}_lower"))
        self._zeros: dict[tuple[ir.Value | None, int], tuple[ir.Value | None, ir.Value]] = {}
        self._factor: ir.Value | None = None

    def _packed(self, tensor: ir.TensorProtocol, shift: int, name: str) -> ir.LazyTensor:
        def read() -> np.ndarray:
            nibbles = tensor.numpy() >> np.uint8(shift) & np.uint8(_HALF - 1)
            return packed(nibbles.reshape(len(nibbles), -1), 4).reshape(self._shape)

        return lazy(read, ir.DataType.UINT8, self._shape, name)

    def read_by(self, node: ir.Node) -> None:
        """Replace a product or a Gather by one of each half."""
        nodes, name, result = self._nodes, node.name or "product", node.outputs[0]
        gathers = node.op_type == _GATHER
        scale = input_of(node, 2)
        zero = _zero_points(node)
        zeros = self._zeros_of(zero, scale)
        settings = {key: attribute for key, attribute in node.attributes.items() if key != "bits"}
        like = result.dtype or ir.DataType.FLOAT, result.shape
        parts = []
        for half, points, what in zip((self._upper, self._lower), zeros, ("upper", "lower"), strict=True):
            called = f"{name}_{what}"
            inputs = [self._rows(half, node, called), input_of(node, 1)] if gathers else [input_of(node, 0), half]
            if what == "upper" and not gathers:  # an exact factor, on what is shorter than the result
                read = inputs[0]
                inputs[0] = self._times_sixteen(node, read, f"{name}_read", read.shape)
            inputs = [*inputs, scale, *([] if points is None else [points])]
            made = nodes.add(node, node.op_type, inputs, called, like, node.domain, bits=4, **settings)
            if what == "upper" and gathers:
                made = self._times_sixteen(node, made, f"{name}_scaled", result.shape)
            parts.append(made)
        total = nodes.add(node, "Add", parts, name, like)
        bias = node.inputs[_BIAS] if not gathers and len(node.inputs) > _BIAS else None
        if bias is not None:
            total = nodes.add(node, "Add", [total, bias], f"{name}_bias", like)
        weight = node.inputs[0] if gathers else node.inputs[1]
        nodes.replace(node, total)
        nodes.drop_unread(weight)
        nodes.drop_unread(zero)

    def _rows(self, half: ir.Value, node: ir.Node, name: str) -> ir.Value:
        """Return a half with one row for each that is gathered."""
        table = node.inputs[0]
        shape = () if table is None or table.shape is None else tuple(table.shape.numpy())
        rows = (*shape[:-1], shape[-1] // 2)
        if rows == self._shape:
            return half
        wanted = self._nodes.constant(ir.tensor(list(rows), dtype=ir.DataType.INT64, name=f"{name}_shape"))
        return self._nodes.add(node, "Reshape", [half, wanted], f"{name}_rows", (ir.DataType.UINT8, ir.Shape(rows)))

    def _zeros_of(self, zero: ir.Value | None, scale: ir.Value) -> tuple[ir.Value | None, ir.Value]:
        """Return the zero points of both halves; without one, that of the upper half is what operators assume."""
        shape = scale.shape
        assert shape is not None, "scales are constants, or a Cast of one"
        outer, blocks = shape.numpy()
        key = zero, blocks
        if key not in self._zeros:
            extents = (outer, -(-blocks // 2))
            upper = None
            if zero is None:
                below = lazy(lambda: np.zeros(extents, np.uint8), ir.DataType.UINT8, extents, f"{scale.name}_zeros")
            else:
                below = self._points(constant_of(zero), 0, extents, f"{zero.name}_lower")
                upper = self._nodes.constant(self._points(constant_of(zero), 4, extents, f"{zero.name}_upper"))
            self._zeros[key] = upper, self._nodes.constant(below)
        return self._zeros[key]

    @staticmethod
    def _points(tensor: ir.TensorProtocol, shift: int, extents: Sequence[int], name: str) -> ir.LazyTensor:
        return lazy(
            lambda: packed(tensor.numpy() >> np.uint8(shift) & np.uint8(_HALF - 1), 4),
            ir.DataType.UINT8, tuple(extents), name,
        )  # fmt: skip

    def _times_sixteen(self, before: ir.Node, value: ir.Value, name: str, shape: ir.Shape | None) -> ir.Value:
        dtype = value.dtype or ir.DataType.FLOAT
        if self._factor is None:
            self._factor = self._nodes.constant(ir.tensor(float(_HALF), dtype=dtype, name="sixteen"))
        return self._nodes.add(before, "Mul", [value, self._factor], name, (dtype, shape))
