"""The `quantized-experts` pass: mixtures of experts with weights in few bits as ONNX Runtime's QMoE."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import onnx_ir as ir
from dovetail.ir import constant_of
from dovetail.passes import Pass
from dovetail.plugin import is_onnx
from dovetail_quantize import BlockTensor

from dovetail_cpu_int8.backend import BACKEND, level_of, new_nodes, weights_alone
from dovetail_cpu_int8.packed_weights import BITS, PackedTensor, lazy, packed, store_rows, unsigned

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_transforms import NewNodes


_DOMAIN = "com.microsoft"
_WEIGHTS = {2: 2, 4: 5, 6: 8}
"""Inputs of MoE with weights, and the inputs of QMoE with the same weights; a bias follows the first, and scales and a
bias the second."""
_ZERO_POINTS = 11  # the first of these inputs of QMoE


class QuantizedExperts(Pass):
    """Replace a MoE and the DequantizeLinears of its weights by a QMoE, for `cpu-int8:kernel=nbits`.

    Given:  %w = DequantizeLinear<axis = 2, block_size = 32>(%w_int4, %s)   %y = MoE(%x, %router, %w, ...)
    Result: %y = QMoE<expert_weight_bits = 4, block_size = 32>(%x, %router, %w_packed, %s, ...)

    All experts of a node have one format. ONNX Runtime's kernel computes 4 bits in float32 with `accuracy_level=1`;
    with 8 bits, and with 2 bits in blocks of 32 and more, it always rounds the inputs of products to int8.
    """

    name = "quantized-experts"
    stage = "quantize"
    for_backend = "cpu-int8"
    requires = ("quantize",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Rewrite the experts of the main graph, the only one with quantized nodes."""
        backend = ctx.backend(BACKEND)
        if backend is None or not weights_alone(backend) or backend.chosen["kernel"] != "nbits":
            return False
        found = [node for node in self.own_nodes(model) if node.op_type == "MoE" and node.domain == _DOMAIN]
        if not found:
            return False
        nodes, level = new_nodes(model, ctx), level_of(backend)
        made = sum(_rewrite(node, nodes, level, ctx) for node in found)
        if made:
            ctx.count("experts", made)
            model.touch()
        return made > 0


def _rewrite(node: ir.Node, nodes: NewNodes, level: int, ctx: Context) -> bool:
    given = {index: value for index, value in enumerate(node.inputs) if value is not None}
    weights = {index: value for index in _WEIGHTS if (value := given.get(index)) is not None}
    dequantized = [value.producer() for value in weights.values()]
    forms = {form for one in dequantized if (form := _form(one)) is not None}
    if len(forms) != 1 or not all(map(_form, dequantized)):
        return False
    ((bits, block),) = forms
    inputs: dict[int, ir.Value] = {0: given[0], 1: given[1]}
    for number, (index, value) in enumerate(weights.items()):
        read, at = value.producer(), _WEIGHTS[index]
        assert read is not None, "a weight is dequantized"
        integers, scale, *zero = read.inputs
        assert integers is not None and scale is not None, "DequantizeLinear has these inputs"
        inputs[at], inputs[at + 1] = nodes.constant(_in_bytes(integers, bits)), scale
        if index + 1 in given:
            inputs[at + 2] = given[index + 1]
        if zero and zero[0] is not None and (zero[0].dtype or ir.DataType.INT8).name.startswith("U"):
            inputs[_ZERO_POINTS + number] = nodes.constant(_in_bytes(zero[0], bits))
    settings: dict[str, int | ir.Attr] = dict(node.attributes.items())
    settings |= {"expert_weight_bits": bits, "block_size": block, "accuracy_level": level}
    result, name = node.outputs[0], node.name or "experts"
    like = result.dtype or ir.DataType.FLOAT, result.shape
    listed = [inputs.get(index) for index in range(max(inputs) + 1)]
    made = nodes.add(node, "QMoE", listed, name, like, _DOMAIN, **settings)
    nodes.replace(node, made)
    for value in weights.values():
        nodes.drop_unread(value)
    exact = bits < 8 and (block == 16 or bits == 4) and level != 4
    rounded = "it computes in float32" if exact else "what its products read is rounded to int8 in blocks"
    why = f"QMoE with {bits} bits and blocks of {block}: {rounded}"
    ctx.remark("passed", made.producer() or name, "quantized-experts", why)
    return True


def _form(read: ir.Node | None) -> tuple[int, int] | None:
    """Return bits and block of weights by expert, output and input; None if they are not in blocks of inputs."""
    if read is None or read.op_type != "DequantizeLinear" or not is_onnx(read) or read.inputs[0] is None:
        return None
    integers, block = read.inputs[0], read.attributes.get_int("block_size", 0)
    if integers.const_value is None or integers.dtype not in BITS or integers.shape is None:
        return None
    last = len(integers.shape) - 1
    return (BITS[integers.dtype], block) if block and last == 2 == read.attributes.get_int("axis", 1) else None


def _in_bytes(value: ir.Value, bits: int) -> ir.LazyTensor:
    """Return integers with those of the last axis packed into bytes."""
    tensor, name = constant_of(value), f"{value.name}_packed"
    *outer, inner = tensor.shape.numpy()
    shape = (*outer, math.ceil(inner * bits / 8))
    if isinstance(tensor, BlockTensor) and tensor.part == "integers":
        return PackedTensor(lambda: tensor.encoded.integers(store_rows), shape, name)
    return lazy(
        lambda: packed(unsigned(tensor.numpy(), bits).reshape(-1, inner), bits).reshape(shape),
        ir.DataType.UINT8, shape, name,
    )  # fmt: skip
