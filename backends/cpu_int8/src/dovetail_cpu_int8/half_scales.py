"""The `half-scales` pass: scales of weights in 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.errors import DovetailError, UsageError
from dovetail.ir import FLOAT32, Format, constant_of, input_of, name_of, producer_of
from dovetail.passes import Pass
from dovetail.planning import Placement, set_placement

from dovetail_cpu_int8.backend import BACKEND, new_nodes, weights_alone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_transforms import NewNodes

_SCALES = {
    "DequantizeLinear": ((0, 1),),
    "GatherBlockQuantized": ((0, 2),),
    "MatMulNBits": ((1, 2),),
    "QMoE": ((2, 3), (5, 6), (8, 9)),
}
"""Inputs with integers, each with that of their scales."""
_SMALLEST = float(np.finfo(np.float16).smallest_normal)
_HALF = Format.of("float16")
_LARGEST = float(np.finfo(np.float16).max)


class HalfScales(Pass):
    """Keep the scales of weights in float16, for `cpu-int8:scales=float16`.

    Given:  %w = DequantizeLinear<block_size = 32>(%w_int4, %s)
    Result: %t = Cast<to = FLOAT>(%s_half)   %w = DequantizeLinear<block_size = 32>(%w_int4, %t)

    That is half a bit less per weight with blocks of 32. A scale changes by a 2048th at most, which is far below the
    noise of 4 bits. Engines compute the Cast once, when they load the model. Scales are found when they are written,
    one weight at a time; if float16 does not hold those of a weight, that is an error then.
    """

    name = "half-scales"
    stage = "join"
    for_backend = "cpu-int8"
    requires = ("join",)
    after = ("float-borders",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Rewrite the scales of the main graph, the only one with quantized nodes.

        Raises:
            UsageError: `scales=float16` is asked for without weights alone.
        """
        backend = ctx.backend(BACKEND)
        if backend is None or backend.chosen["scales"] != "float16":
            return False
        if not weights_alone(backend):
            raise UsageError(
                "cpu-int8: scales=float16 is for weights alone, whose blocks have many scales",
                "write --backend cpu-int8:weights=int4,scales=float16",
            )
        nodes, halves = new_nodes(model, ctx), dict[ir.Value, tuple[ir.Value, ir.Value]]()
        order = list(model.graph.initializers)
        for node in [node for node in self.own_nodes(model) if node.op_type in _SCALES]:
            for integers, index in _SCALES[node.op_type]:
                if index >= len(node.inputs) or node.inputs[index] is None:
                    continue
                scale = input_of(node, index)
                if not _is_stored(input_of(node, integers)) or not _is_stored_in_floats(scale):
                    continue
                if scale not in halves:
                    halves[scale] = _cast(scale, node, nodes)
                node.replace_input_with(index, halves[scale][0])
                nodes.drop_unread(scale)
        ctx.count("scales", len(halves))
        if halves:
            _put_in_place(model, order, {name_of(scale): half for scale, (_, half) in halves.items()})
            model.touch()
        return bool(halves)


def _is_stored(integers: ir.Value) -> bool:
    """Check whether integers are a constant, perhaps with another shape for a second reader."""
    producer = integers.producer()
    if producer is not None and producer.op_type == "Reshape":
        integers = input_of(producer, 0)
    return integers.is_initializer()


def _is_stored_in_floats(scale: ir.Value) -> bool:
    """Check whether a value is a constant with several float32 scales."""
    tensor = scale.const_value
    return scale.is_initializer() and tensor is not None and tensor.dtype is ir.DataType.FLOAT and tensor.size > 1


def _in_half(scale: ir.TensorProtocol) -> ir.Tensor:
    """Round scales to float16.

    Raises:
        DovetailError: They are larger than what it holds, or all are smaller than what it holds with all digits.
    """
    array = scale.numpy()
    largest = float(np.abs(array).max())
    if not _SMALLEST <= largest <= _LARGEST:
        raise DovetailError(f"float16 does not hold '{scale.name}', up to {largest:.3g}", "leave scales=float16 out")
    return ir.Tensor(array.astype(np.float16))


def _cast(scale: ir.Value, node: ir.Node, nodes: NewNodes) -> tuple[ir.Value, ir.Value]:
    """Return what casts scales in float16 to float32, and these."""
    tensor = constant_of(scale)
    shape = ir.Shape(tensor.shape.numpy())
    half = nodes.constant(
        ir.LazyTensor(lambda: _in_half(tensor), ir.DataType.FLOAT16, shape, name=f"{scale.name}_half")
    )
    like = (ir.DataType.FLOAT, shape)
    cast = nodes.add(node, "Cast", [half], f"{node.name}/scale", like, to=int(ir.DataType.FLOAT))
    set_placement(producer_of(cast), Placement(BACKEND, FLOAT32, {"input": _HALF}))
    return cast, half


def _put_in_place(model: Model, order: Sequence[str], halves: Mapping[str, ir.Value]) -> None:
    """Put each constant where the one was that it replaces: scales are known while their integers are written."""
    initializers = model.graph.initializers
    values = []
    for name in order:
        if name in halves:
            values.append(initializers.pop(name_of(halves[name])))
        if name in initializers:
            values.append(initializers.pop(name))
    rest = [initializers.pop(name) for name in list(initializers)]
    for value in (*values, *rest):
        model.graph.register_initializer(value)
