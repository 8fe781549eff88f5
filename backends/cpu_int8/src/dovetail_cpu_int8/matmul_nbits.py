"""The `matmul-nbits` pass: products with weights in few bits as ONNX Runtime's MatMulNBits, tables as its Gather."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
from dovetail.errors import UsageError
from dovetail.ir import input_of
from dovetail.passes import Pass

from dovetail_cpu_int8.backend import BACKEND, level_of, new_nodes, weights_alone
from dovetail_cpu_int8.packed_weights import PackedWeight, PackedWeights

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Backend


_DOMAIN = "com.microsoft"


class MatMulNBits(Pass):
    """Replace a product and the DequantizeLinear of its weight by a MatMulNBits, for `cpu-int8:kernel=nbits`.

    Given:  %w = DequantizeLinear<axis = 0, block_size = 32>(%w_int4, %s)   %y = MatMul(%x, %w)
    Result: %y = MatMulNBits<bits = 4, block_size = 32, accuracy_level = 4>(%x, %w_packed, %s_transposed)

    A Gemm becomes a MatMulNBits and an Add, and a Gather of rows a GatherBlockQuantized. That reads the weight of a
    product as it is stored, through a Reshape, so that an embedding that is also the head is one tensor.
    """

    name = "matmul-nbits"
    stage = "quantize"
    for_backend = "cpu-int8"
    requires = ("quantize",)
    before = ("integer-gathers",)
    after = ("dynamic-quantization",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Rewrite the products of the main graph, the only one with quantized nodes.

        Raises:
            UsageError: An option is asked for that only `kernel=nbits` has.
        """
        backend = ctx.backend(BACKEND)
        if backend is None or not weights_alone(backend):
            return False
        if backend.chosen["kernel"] != "nbits":
            _check(backend)
            return False
        rewriter, made = _Rewriter(model, ctx, level_of(backend)), 0
        here = self.own_nodes(model)
        for node in here:  # products first: a table takes the form of the one that shares it
            made += node.op_type in ("MatMul", "Gemm") and rewriter.product(node)
        for node in here:
            made += node.op_type == "Gather" and rewriter.gather(node)
        if made:
            model.ir.opset_imports.setdefault(_DOMAIN, 1)
            ctx.count("products", made)
            model.touch()
        return made > 0


def _check(backend: Backend) -> None:
    """Check that no option asks for operators of ONNX Runtime.

    Raises:
        UsageError: One does.
    """
    for option, value, what in (
        ("accuracy_level", "4", "an attribute of MatMulNBits"),
        ("embedding", "as-weights", "a GatherBlockQuantized"),
        ("weights", "int2", "a format of MatMulNBits"),
    ):
        if backend.chosen[option] == value:
            weights = backend.chosen["weights"] if option == "weights" else f"int4,{option}={value}"
            raise UsageError(
                f"cpu-int8: {option}={value} is {what}, and there is none with kernel=qdq",
                f"write --backend cpu-int8:weights={weights},kernel=nbits",
            )


class _Rewriter:
    """Rewrites the readers of weights of one model.

    Args:
        model: The model.
        ctx: Its context.
        level: The accuracy level of products.
    """

    def __init__(self, model: Model, ctx: Context, level: int):
        self._nodes, self._ctx, self._level = new_nodes(model, ctx), ctx, level
        self._stored = PackedWeights(self._nodes)

    def product(self, node: ir.Node) -> bool:
        """Rewrite a MatMul or a Gemm, if MatMulNBits can have its weight."""
        across = False
        if node.op_type == "Gemm":
            numbers = (node.attributes.get_float(name, 1.0) for name in ("alpha", "beta"))
            if node.attributes.get_int("transA", 0) or any(number != 1 for number in numbers):
                return False
            across = bool(node.attributes.get_int("transB", 0))
        weight = PackedWeight.read_by(node, 1, across)
        if weight is None:
            return False
        nodes, name, result, read = self._nodes, node.name or "product", node.outputs[0], input_of(node, 1)
        stored = self._stored.of(weight)
        inner, outer = weight.extents
        settings = {"K": inner, "N": outer, "bits": weight.bits, "block_size": weight.block}
        settings["accuracy_level"] = self._level
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        like = weight.floats, result.shape
        made = nodes.add(node, "MatMulNBits", [input_of(node, 0), *stored], name, like, _DOMAIN, **settings)
        if bias is not None:
            made = nodes.add(node, "Add", [made, bias], f"{name}_bias", like)
        nodes.replace(node, made)
        nodes.drop_unread(read)
        rounded = "what it reads is rounded to int8 in blocks" if self._level == 4 else "it computes in float32"
        form = f"{weight.bits} bits, blocks of {weight.block} and accuracy_level {self._level}"
        why = f"MatMulNBits with {form}: {rounded}"
        self._ctx.remark("passed", made.producer() or name, "matmul-nbits", why)
        return True

    def gather(self, node: ir.Node) -> bool:
        """Rewrite a Gather of rows, if GatherBlockQuantized can have its table."""
        weight = None if node.attributes.get_int("axis", 0) else PackedWeight.read_by(node, 0, across=True)
        if weight is None:
            return False
        nodes, name, table = self._nodes, node.name or "gather", input_of(node, 0)
        integers, *parameters = self._stored.of(weight, flat=True)
        row = weight.extents[1], weight.extents[0] * weight.bits // 8
        shared = integers.shape is not None and len(integers.shape) > len(row)  # in the form of a product
        if shared:
            shape = nodes.constant(ir.tensor(row, dtype=ir.DataType.INT64, name=f"{name}_shape"))
            like = ir.DataType.UINT8, ir.Shape(row)
            integers = nodes.add(node, "Reshape", [integers, shape], f"{name}_rows", like)
        settings = {"bits": weight.bits, "block_size": weight.block, "gather_axis": 0, "quantize_axis": 1}
        inputs = [integers, input_of(node, 1), *parameters]
        made = nodes.add(
            node, "GatherBlockQuantized", inputs, name, (weight.floats, node.outputs[0].shape), _DOMAIN, **settings
        )
        nodes.replace(node, made)
        nodes.drop_unread(table)
        why = f"GatherBlockQuantized with {weight.bits} bits and blocks of {weight.block}"
        why += ", whose bytes a product shares" if shared else ""
        self._ctx.remark("passed", made.producer() or name, "matmul-nbits", why)
        return True
