"""The `matmul-nbits` pass: products with weights of 4 or 8 bits as ONNX Runtime's MatMulNBits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx_ir as ir
from dovetail.errors import UsageError
from dovetail.ir import input_of
from dovetail.passes import Pass
from dovetail.planning import get_placement

from dovetail_cpu_int8.max_size import weights_alone
from dovetail_cpu_int8.new_nodes import BACKEND, NewNodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.ir import Model
    from dovetail.passes import Context


_DOMAIN = "com.microsoft"
_LARGEST, _SMALLEST = 128, 16  # blocks that a scale per channel is repeated for
_ELEMENTS = {ir.DataType.INT4: 4, ir.DataType.UINT4: 4, ir.DataType.INT8: 8, ir.DataType.UINT8: 8}


@dataclass(frozen=True)
class MatMulNBits(Pass):
    """Make a MatMulNBits of a product and the DequantizeLinear of its weight, for `cpu-int8:kernel=nbits`.

    Given:  %w = DequantizeLinear<axis = 0, block_size = 32>(%w_int4, %s)   %y = MatMul(%x, %w)
    Result: %y = MatMulNBits<bits = 4, block_size = 32, accuracy_level = 1>(%x, %w_packed, %s_transposed)

    Integers are packed as the operator has them, [N, K / block, block * bits / 8], when they are written. A scale per
    channel is repeated for blocks of up to 128. A Gemm becomes a MatMulNBits and an Add.
    """

    name = "matmul-nbits"
    stage = "quantize"
    requires = ("quantize",)
    after = ("integer-gathers", "dynamic-quantization")

    def run(self, model: Model, ctx: Context) -> bool:
        """Rewrite the products of the main graph, the only one with quantized nodes.

        Raises:
            UsageError: `accuracy_level` is asked for without `kernel=nbits`.
        """
        backend = next((backend for backend in ctx.backends if backend.name == BACKEND), None)
        if backend is None or not weights_alone(backend):
            return False
        level = int(backend.chosen["accuracy_level"])
        if backend.chosen["kernel"] != "nbits":
            if level != 1:
                raise UsageError(
                    f"cpu-int8: accuracy_level={level} is an attribute of MatMulNBits, and there is none",
                    f"write --backend cpu-int8:weights=int4,kernel=nbits,accuracy_level={level}",
                )
            return False
        nodes, made = NewNodes(model, ctx), 0
        for node in list(model.graph):
            placement = get_placement(node)
            if node.op_type in ("MatMul", "Gemm") and placement is not None and placement.backend == BACKEND:
                made += _rewrite(node, nodes, level, ctx)
        if made:
            model.ir.opset_imports.setdefault(_DOMAIN, 1)
            ctx.count("products", made)
            model.touch()
        return made > 0


class _Weight(NamedTuple):
    """A weight of a product, as its DequantizeLinear has it.

    Attributes:
        integers: The integers.
        scale: Their scales.
        zero_point: Their zero points, or None.
        across: Whether the sums run along axis 1, as in a transposed weight.
        block: Elements along the sums that share a scale.
    """

    integers: ir.Value
    scale: ir.Value
    zero_point: ir.Value | None
    across: bool
    block: int

    @property
    def extents(self) -> tuple[int, int]:
        """K, the length of the sums, and N, their number."""
        assert self.integers.shape is not None, "a constant has a shape"
        rows, columns = self.integers.shape.numpy()
        return (columns, rows) if self.across else (rows, columns)


def _rewrite(node: ir.Node, nodes: NewNodes, level: int, ctx: Context) -> bool:
    weight = _weight_of(node)
    if weight is None:
        return False
    bits, (inner, outer) = _ELEMENTS[weight.integers.dtype or ir.DataType.INT8], weight.extents
    name, result = node.name or "product", node.outputs[0]
    floats = weight.scale.dtype or ir.DataType.FLOAT
    stored, blocks = weight.integers.name, inner // weight.block
    packed = _lazy(
        lambda: _packed(_unsigned(weight.integers, weight, bits), bits).reshape(outer, blocks, -1),
        ir.DataType.UINT8, (outer, blocks, weight.block * bits // 8), f"{stored}_packed",
    )  # fmt: skip
    scales = _lazy(lambda: _by_block(weight.scale, weight), floats, (outer, blocks), f"{weight.scale.name}_blocks")
    inputs = [input_of(node, 0), nodes.constant(packed), nodes.constant(scales)]
    zero = weight.zero_point
    if zero is not None and (zero.dtype or floats).name.startswith("U"):
        shape = (outer, math.ceil(blocks * bits / 8))
        points = _lazy(lambda: _packed(_by_block(zero, weight), bits), ir.DataType.UINT8, shape, f"{zero.name}_packed")
        inputs.append(nodes.constant(points))
    settings = {"K": inner, "N": outer, "bits": bits, "block_size": weight.block, "accuracy_level": level}
    read = input_of(node, 1)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    made = nodes.add(node, "MatMulNBits", inputs, name, (floats, result.shape), _DOMAIN, **settings)
    if bias is not None:
        made = nodes.add(node, "Add", [made, bias], f"{name}_bias", (floats, result.shape))
    nodes.replace(node, made)
    nodes.drop_unread(read)
    rounded = "what it reads is rounded to int8 in blocks" if level == 4 else "it computes in float32"
    why = f"MatMulNBits with {bits} bits, blocks of {weight.block} and accuracy_level {level}: {rounded}"
    ctx.remark("passed", made.producer() or name, "matmul-nbits", why)
    return True


def _weight_of(node: ir.Node) -> _Weight | None:
    """Return the weight of a product if MatMulNBits can have it; None for other products."""
    read = input_of(node, 1).producer()
    across = False
    if node.op_type == "Gemm":
        numbers = (node.attributes.get_float(name, 1.0) for name in ("alpha", "beta"))
        if node.attributes.get_int("transA", 0) or any(number != 1 for number in numbers):
            return None
        across = bool(node.attributes.get_int("transB", 0))
    if read is not None and read.op_type == "Transpose":
        read, across = input_of(read, 0).producer(), not across
    if read is None or read.op_type != "DequantizeLinear" or read.domain:
        return None
    integers, scale = input_of(read, 0), input_of(read, 1)
    zero = read.inputs[2] if len(read.inputs) > 2 else None
    if integers.const_value is None or scale.const_value is None or integers.dtype not in _ELEMENTS:
        return None
    if integers.shape is None or len(integers.shape) != 2 or scale.shape is None:
        return None
    sums = 1 if across else 0
    axis, block = read.attributes.get_int("axis", 1) % 2, read.attributes.get_int("block_size", 0)
    inner = integers.shape.numpy()[sums]
    if block == 0 and axis != sums and len(scale.shape) == 1:
        block = math.gcd(inner, _LARGEST)
    elif axis != sums:
        return None
    fits = block >= _SMALLEST and block & (block - 1) == 0 and inner % block == 0
    return _Weight(integers, scale, zero, across, block) if fits else None


def _lazy(read: Callable[[], np.ndarray], dtype: ir.DataType, shape: tuple[int, ...], name: str) -> ir.LazyTensor:
    return ir.LazyTensor(lambda: ir.Tensor(read(), dtype=dtype), dtype, ir.Shape(shape), name=name)


def _unsigned(integers: ir.Value, weight: _Weight, bits: int) -> np.ndarray:
    """Return the integers as uint8 [N, K]; signed ones are moved to the zero point that the operator assumes."""
    assert integers.const_value is not None, "a weight is a constant"
    array = integers.const_value.numpy()
    array = array if weight.across else array.T
    if integers.dtype in (ir.DataType.UINT4, ir.DataType.UINT8):
        return array.astype(np.uint8)
    moved = array.astype(np.int8).view(np.uint8)
    return (moved + np.uint8(1 << (bits - 1))) & np.uint8((1 << bits) - 1)


def _by_block(value: ir.Value, weight: _Weight) -> np.ndarray:
    """Return scales or zero points as [N, K / block]."""
    assert value.const_value is not None, "parameters are constants"
    array = value.const_value.numpy()
    if array.ndim == 1:
        return np.repeat(array[:, None], weight.extents[0] // weight.block, axis=1)
    return np.ascontiguousarray(array if weight.across else array.T)


def _packed(array: np.ndarray, bits: int) -> np.ndarray:
    """Return rows of integers in bytes, the first of two 4-bit ones in the lower half."""
    array = np.ascontiguousarray(array).astype(np.uint8)
    if bits == 8:
        return array
    if array.shape[1] % 2:
        array = np.pad(array, ((0, 0), (0, 1)))
    return array[:, 0::2] | array[:, 1::2] << 4
