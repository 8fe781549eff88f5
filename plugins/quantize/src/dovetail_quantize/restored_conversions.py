"""Conversions of a source in integers that were lifted from the graph, restored where no backend made its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir
from dovetail.ir import FreshNames, dtype_of, float_format, insert_after_value, name_of
from dovetail.planning import HOST, Placement, get_placement, placement_of, set_placement
from dovetail_onnx.signatures import Signatures, input_name

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_placement.source_scales import SourceScale
    from onnx_ir._core import Usage


def restore_conversions(model: Model, lifted: Sequence[tuple[ir.Value, SourceScale]], ctx: Context) -> bool:
    """Let whatever reads a value of the source in floats read it as the source rounds it.

    Ports in integers have conversions of their own by now, with the scale of the source where their formats have it.

    Args:
        model: The model.
        lifted: Its values whose conversions were lifted; see `lifted_values`.
        ctx: Its context.

    Returns:
        Whether anything changed.
    """
    restoring = _Restoring(model, ctx) if lifted else None
    count = sum(restoring.restore(value, scale) for value, scale in lifted) if restoring is not None else 0
    if count:
        ctx.count("restored", count)
        model.touch()
    return bool(count)


class _Restoring:
    """Restores the conversions of one model."""

    def __init__(self, model: Model, ctx: Context):
        self._graph, self._names = model.graph, ctx.analysis(FreshNames, model)
        self._signatures = Signatures(model.ir.opset_imports)
        self._takes = {backend.name for backend in ctx.backends if backend.takes("", "DequantizeLinear")}

    def restore(self, value: ir.Value, scale: SourceScale) -> bool:
        """Restore the conversions of one value; return False if all of its readers have their own."""
        users = [use for use in value.uses() if self._reads_floats(use)]
        outputs = [index for index, output in enumerate(self._graph.outputs) if output is value]
        if not users and not outputs:
            return False
        homes = {placement_of(use.node).backend for use in users}
        home = next(iter(homes)) if len(homes) == 1 and not outputs and homes <= self._takes else HOST
        constants = self._parameters(value, scale)
        if scale.integers is not None:
            held = self._register(f"{value.name}_integers", scale.integers)
            before = []
        else:
            quantize = self._node(
                "QuantizeLinear", [value, *constants], scale, value, home, ir.DataType[scale.element.upper()]
            )
            held, before = quantize.outputs[0], [quantize]
        back = self._node("DequantizeLinear", [held, *constants], scale, value, home, dtype_of(value))
        result = back.outputs[0]
        for user, index in users:
            user.replace_input_with(index, result)
        for index in outputs:
            self._graph.outputs[index] = result
        if outputs:
            name = value.name
            value.name = self._names.fresh(f"{name}_float")
            result.name = name
        after = value
        if scale.integers is not None:
            self._graph.insert_before(self._graph[0], back)
            if not value.uses() and value.is_initializer():
                del self._graph.initializers[name_of(value)]
        else:
            for node in (*before, back):
                insert_after_value(self._graph, after, node)
                after = node.outputs[0]
        return True

    def _reads_floats(self, use: Usage) -> bool:
        if use.node.op_type == "QuantizeLinear":
            return False
        placement = get_placement(use.node)
        port = input_name(use.idx, self._signatures(use.node))
        format_ = placement.port_format(port) if placement is not None else None
        return format_ is None or not format_.quantized

    def _parameters(self, value: ir.Value, scale: SourceScale) -> list[ir.Value]:
        import numpy as np

        dtype = ir.DataType[scale.element.upper()]
        numbers = np.asarray(scale.parameters.scale, np.float64).astype(dtype_of(value).numpy())
        zeros = np.asarray(scale.parameters.zero_point).astype(dtype.numpy())
        shape = (-1,) if scale.axis is not None else ()
        tensors = {
            "scale": ir.Tensor(numbers.reshape(shape)),
            "zero_point": ir.Tensor(zeros.reshape(shape), dtype=dtype),
        }
        return [self._register(f"{value.name}_{stem}", tensor) for stem, tensor in tensors.items()]

    def _register(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        name = self._names.fresh(name)
        kind, shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
        value = ir.Value(name=name, type=kind, shape=shape, const_value=tensor)
        self._graph.register_initializer(value)
        return value

    def _node(
        self, operator: str, inputs: list, scale: SourceScale, like: ir.Value, home: str, dtype: ir.DataType
    ) -> ir.Node:
        attributes = {} if scale.axis is None else {"axis": scale.axis}
        node = ir.node(operator, inputs, attributes, name=self._names.fresh(f"{like.name}_{operator}"))
        result = node.outputs[0]
        result.name, result.type, result.shape = self._names.fresh(f"{node.name}_out"), ir.TensorType(dtype), like.shape
        set_placement(node, Placement(home, float_format(like)))
        return node
