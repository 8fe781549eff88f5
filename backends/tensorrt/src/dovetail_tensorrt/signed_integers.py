"""The `signed-integers` pass: convert a source model's quantization to symmetric int8, which TensorRT requires."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.ir import FreshNames, constant_of, input_of
from dovetail.passes import Pass
from dovetail_placement import QdqNode, qdq_of

from dovetail_tensorrt.engine_backends import makes_engines

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context


_MIDDLE = 128
_ZERO_POINT = 2  # input of QuantizeLinear and DequantizeLinear


class SignedIntegers(Pass):
    """Convert uint8 with the zero point 128 to int8 with zero.

    Given:  %q = QuantizeLinear(%x, %scale, uint8 128)   %y = DequantizeLinear(%q, %scale, uint8 128)
    Result: %q = QuantizeLinear(%x, %scale, int8 0)   %y = DequantizeLinear(%q, %scale, int8 0)

    All floats are unchanged: the integers are shifted by 128, and saturate at the same numbers. uint8 with another zero
    point represents numbers that int8 with the same scale cannot; it is left unchanged, with a remark.
    """

    name = "signed-integers"
    stage = "normalize"
    requires = ("normalize",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Rewrite the conversions of the main graph, if a backend of the request has engines."""
        if not any(map(makes_engines, ctx.backends)):
            return False
        rewriter = _Rewriter(model, ctx)
        seen: set[int] = set()
        for node in list(model.graph):
            qdq = qdq_of(node)
            if qdq is None or id(qdq.integers) in seen:
                continue
            seen.add(id(qdq.integers))
            if qdq.element == "uint8":
                rewriter.sign(qdq)
        if rewriter.changed:
            model.touch()
        return rewriter.changed


class _Rewriter:
    """Rewriter of the conversions of one model."""

    def __init__(self, model: Model, ctx: Context):
        self._graph, self._ctx = model.graph, ctx
        self._names = ctx.analysis(FreshNames, model)
        self.changed = False

    def sign(self, qdq: QdqNode) -> None:
        """Convert uint8 to int8, if all conversions of the value have the zero point 128."""
        integers, node = qdq.integers, qdq.node
        ends = [node] if node.op_type == "QuantizeLinear" else []
        ends += [reader for reader, _ in integers.uses()]
        qdq_nodes = [found for end in ends if (found := qdq_of(end)) is not None]
        given = integers.producer() is None and not self._is_stored(integers)
        others = integers.producer() not in (None, node) or len(qdq_nodes) < len(ends)
        if given or integers.is_graph_output() or others:
            return
        shifted = sorted({zero for one in qdq_nodes for zero in one.parameters.zero_point} - {_MIDDLE})
        if shifted:
            what = f"'{integers.name}' is uint8 with the zero point {', '.join(map(str, shifted))}"
            why = f"{what}; int8 of the same scale lacks some of its numbers, and TensorRT has no other integers"
            suggest = "compile the model as it was before it was quantized, with tensorrt:precision=int8 and --data"
            self._ctx.remark("missed", node, "unsigned", why, suggest=suggest)
            return
        for one in qdq_nodes:
            zeros = np.zeros(constant_of(input_of(one.node, _ZERO_POINT)).shape.numpy(), np.int8)
            one.node.replace_input_with(_ZERO_POINT, self._constant(f"{integers.name}_zero", zeros))
        if integers.producer() is None:
            signed = (constant_of(integers).numpy().astype(np.int16) - _MIDDLE).astype(np.int8)
            integers.const_value = ir.Tensor(signed, name=integers.name)
        integers.dtype = ir.DataType.INT8
        why = f"'{integers.name}' is int8 instead of uint8 with the zero point 128: the same numbers"
        self._ctx.remark("passed", node, "signed", why)
        self.changed = True

    def _is_stored(self, value: ir.Value) -> bool:
        return value.is_initializer() and not value.is_graph_input() and value.const_value is not None

    def _constant(self, name: str, array: np.ndarray) -> ir.Value:
        name = self._names.fresh(name)
        tensor = ir.Tensor(array, name=name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
        self._graph.register_initializer(value)
        return value
