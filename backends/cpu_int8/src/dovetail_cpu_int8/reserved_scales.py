"""The passes `reserve-scales` and `drop-scales`: a place for the factors of `smooth` if a value has other readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.ir import FreshNames, constant_of, input_of, insert_after_value, name_of
from dovetail.passes import Pass
from dovetail_quantize import SMOOTH, absorber_of, float_tensor, layers_of, steps_of

from dovetail_cpu_int8.backend import BACKEND

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_quantize import Layer


_NORMALIZATIONS = ("LayerNormalization", "RMSNormalization")
_RESERVED = "dovetail.reserved_scale"


class ReserveScales(Pass):
    """Insert a Mul by ones before products whose inputs have other readers, if these inputs may be smoothed.

    Given:  %x = LayerNormalization(...)   %q = MatMul(%x, %w)   %y = Add(%x, %z)
    Result: %x = LayerNormalization(...)   %s = Mul(%x, %ones)   %q = MatMul(%s, %w)   %y = Add(%x, %z)

    The factors of `smooth` for %q then have a place that changes nothing for %y, the residual stream. Engines compute
    the Mul together with the normalization and QuantizeLinear. `drop-scales` removes those that are not used.
    """

    name = "reserve-scales"
    stage = "analyze"
    for_backend = "cpu-int8"
    before = ("edge-kinds",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Insert the nodes into the main graph.

        Raises:
            DovetailError: The request contradicts a replayed plan.
        """
        if SMOOTH not in steps_of(ctx).get(BACKEND, ()):
            return False
        readers: dict[ir.Value, list[Layer]] = {}
        for layer in layers_of(model.graph):
            if not layer.is_convolution:
                readers.setdefault(input_of(layer.node, 0), []).append(layer)
        names, changed = ctx.analysis(FreshNames, model), False
        for value, layers in readers.items():
            channels = layers[0].layout.extents[2]
            if _needs_place(value, layers, channels):
                _insert(value, layers, channels, model, names)
                changed = True
        if changed:
            model.touch()
        return changed


def _needs_place(value: ir.Value, layers: list[Layer], channels: int) -> bool:
    """Check whether nothing else takes up factors: others read the value, or the constants of its normalization."""
    producer = value.producer()
    if producer is None:
        return False
    if len(value.uses()) > len(layers):
        return True
    return producer.op_type in _NORMALIZATIONS and absorber_of(value, channels) is None


def _insert(value: ir.Value, layers: list[Layer], channels: int, model: Model, names: FreshNames) -> None:
    tensor = float_tensor(np.ones(channels), names.fresh(f"{value.name}_ones"))
    ones = ir.Value(name=tensor.name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
    model.graph.register_initializer(ones)
    scaled = ir.node("Mul", [value, ones], name=names.fresh(f"{value.name}_scaled"))
    scaled.outputs[0].name = names.fresh(f"{value.name}_smooth")
    scaled.outputs[0].type, scaled.outputs[0].shape = value.type, value.shape
    scaled.meta[_RESERVED] = True
    insert_after_value(model.graph, value, scaled)
    for layer in layers:
        layer.node.replace_input_with(0, scaled.outputs[0])


class DropScales(Pass):
    """Remove the nodes of `reserve-scales` that still multiply by ones.

    Given:  %s = Mul(%x, %ones)   %q = MatMul(%s, %w)
    Result: %q = MatMul(%x, %w)
    """

    name = "drop-scales"
    stage = "calibrate"
    for_backend = "cpu-int8"
    after = ("smooth",)
    before = ("calibrate",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Remove the nodes."""
        reserved = [node for node in model.graph if _RESERVED in node.meta.data]
        idle = [node for node in reserved if node.meta.pop(_RESERVED) and _multiplies_by_ones(node)]
        for node in idle:
            ones = input_of(node, 1)
            node.outputs[0].replace_all_uses_with(input_of(node, 0))
            model.graph.remove(node, safe=True)
            del model.graph.initializers[name_of(ones)]
        if idle:
            model.touch()
        return bool(idle)


def _multiplies_by_ones(node: ir.Node) -> bool:
    return bool(np.all(constant_of(input_of(node, 1)).numpy() == 1))
