"""The source model's own quantization: its QDQ nodes, and their adoption by a plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.ir import Format, dtype_name, dtype_of, input_of, is_onnx
from dovetail.planning import HOST, Parameters, placement_of, set_placement
from dovetail_placement.conversions import ConversionPlacement

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Border

    from dovetail_precision.sharing_groups import QuantizedForm


_QDQ = frozenset({"QuantizeLinear", "DequantizeLinear"})


@dataclass(frozen=True, slots=True)
class QdqNode:
    """A conversion between floats and integers whose parameters are constants.

    Attributes:
        node: The QuantizeLinear or DequantizeLinear.
        element: The element type of the integers.
        parameters: Scales and zero points.
        axis: The axis along which scales differ; None for a single scale.
        group: The number of elements along the axis that share a scale; None for one scale per index.
    """

    node: ir.Node
    element: str
    parameters: Parameters
    axis: int | None
    group: int | None

    @property
    def integers(self) -> ir.Value:
        """The integer value."""
        return input_of(self.node, 0) if self.node.op_type == "DequantizeLinear" else self.node.outputs[0]

    @property
    def floats(self) -> ir.Value:
        """The float value."""
        return self.node.outputs[0] if self.node.op_type == "DequantizeLinear" else input_of(self.node, 0)

    def fits(self, format_: Format) -> bool:
        """Check whether its integers are valid in that format; a single scale also fits formats with several scales."""
        floats = self.floats
        if format_.element != self.element or dtype_name(floats.dtype) != format_.expressed:
            return False
        if format_.scheme != "asymmetric" and not self._is_symmetric(format_):
            return False
        if self.axis is None:
            return True
        rank = None if floats.shape is None else len(floats.shape)
        if format_.axis is None or format_.group != self.group or rank is None:
            return False
        return format_.axis % rank == self.axis % rank

    def _is_symmetric(self, format_: Format) -> bool:
        middle = 1 << (format_.dtype.bitwidth - 1) if self.element.startswith("u") else 0
        if any(zero != middle for zero in self.parameters.zero_point):
            return False
        return format_.scheme == "symmetric" or all(math.frexp(scale)[0] == 0.5 for scale in self.parameters.scale)


def is_qdq(node: ir.Node) -> bool:
    """Check whether a node converts between floats and integers of one scale, constant or not."""
    return node.op_type in _QDQ and is_onnx(node)


def qdq_of(node: ir.Node | None) -> QdqNode | None:
    """Return a node as a QDQ node; None if it is not one, or if its parameters are known only at run time."""
    if node is None or not is_qdq(node) or len(node.inputs) < 2:
        return None
    scale = _constant(node.inputs[1])
    given = node.inputs[2] if len(node.inputs) > 2 else None
    zero = _constant(given) if given is not None else None
    integers = node.inputs[0] if node.op_type == "DequantizeLinear" else node.outputs[0]
    if scale is None or given is not None and zero is None or integers is None or integers.dtype is None:
        return None
    numbers = np.asarray(scale, np.float64).reshape(-1)
    if not (np.isfinite(numbers).all() and (numbers > 0).all()):
        return None
    zeros = np.zeros(numbers.shape, np.int64) if zero is None else np.asarray(zero).astype(np.int64).reshape(-1)
    if zeros.shape != numbers.shape:
        return None
    several, group = numbers.size > 1, node.attributes.get_int("block_size", 0) or None
    parameters = Parameters(tuple(numbers.tolist()), tuple(int(one) for one in zeros))
    axis = node.attributes.get_int("axis", 1) if several else None
    return QdqNode(node, dtype_name(integers.dtype), parameters, axis, group if several else None)


def dequantizing(value: ir.Value) -> QdqNode | None:
    """Return the QDQ node that computes a value from integers; None if there is none."""
    producer = value.producer()
    return qdq_of(producer) if producer is not None and producer.op_type == "DequantizeLinear" else None


def quantizing(value: ir.Value) -> Iterator[QdqNode]:
    """Yield the QDQ nodes that quantize a value."""
    for node, index in value.uses():
        if index == 0 and node.op_type == "QuantizeLinear":
            qdq = qdq_of(node)
            if qdq is not None:
                yield qdq


def weight_of(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor of a weight: an initializer, or an integer weight of the source model; else None."""
    if value.is_initializer():
        return None if value.is_graph_input() else value.const_value
    qdq = dequantizing(value)
    if qdq is None:
        return None
    stored = qdq.integers
    if stored.const_value is None or not stored.is_initializer() or stored.is_graph_input():
        return None
    integers, dtype = stored.const_value, dtype_of(value)
    return ir.LazyTensor(
        lambda: ir.Tensor(_dequantized(integers.numpy(), qdq).astype(dtype.numpy())),
        dtype,
        ir.Shape(integers.shape.numpy()),
        name=value.name,
    )


def _dequantized(integers: np.ndarray, qdq: QdqNode) -> np.ndarray:
    scale, zero = (_shaped(numbers, qdq, integers.shape) for numbers in qdq.parameters)
    return (integers.astype(np.float32) - zero) * scale


def _shaped(numbers: tuple, qdq: QdqNode, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(numbers, np.float32)
    if qdq.axis is None:
        return array.reshape(())
    axis = qdq.axis % len(shape)
    if qdq.group is None:
        return array.reshape([-1 if index == axis else 1 for index in range(len(shape))])
    whole = list(shape)
    whole[axis] = -(-whole[axis] // qdq.group)
    repeated = np.repeat(array.reshape(whole), qdq.group, axis=axis)
    return np.take(repeated, np.arange(shape[axis]), axis=axis)


def _constant(value: ir.Value | None) -> np.ndarray | None:
    if value is None or value.const_value is None or not value.is_initializer() or value.is_graph_input():
        return None
    return value.const_value.numpy()


def place_qdq(quantized_forms: Iterable[QuantizedForm], model: Model, ctx: Context) -> None:
    """Move adopted conversions from the host to the backend of their integers, if it supports both types.

    If `border` of a backend lets floats cross, the conversion at the other end moves with them. Remarks that such a
    conversion is not there, because the backend's file does not list it, are dropped.
    """
    adopted: set[tuple[str, str]] = set()
    places = ConversionPlacement(model, ctx)
    borders = {backend.name: backend.border for backend in ctx.backends}
    for form in quantized_forms:
        _remark_other_scheme(form, ctx)
        for qdq, backend in _wanted(form, borders):
            if placement_of(qdq.node).backend != HOST:
                continue
            integers, floats = Format.of(qdq.element), Format.of(dtype_name(dtype_of(qdq.floats)))
            reads_integers = qdq.node.op_type == "DequantizeLinear"
            source, target = (integers, floats) if reads_integers else (floats, integers)
            end = getattr(borders.get(backend), "out" if form.producer is not None else "into", "")
            crossing = floats if end == "inside" else integers
            chosen = places.choose(qdq.node, source, target, (backend,), crossing)
            if chosen != HOST:
                set_placement(qdq.node, replace(placement_of(qdq.node), backend=chosen))
                what = f"a conversion of the source model, beside '{_beside(form).name}' whose integers it has"
                ctx.remark("passed", qdq.node, "adopted", what, because=(_beside(form),))
                adopted.add((qdq.node.name or "", chosen))
    if adopted:
        ctx.remarks[:] = [
            one for one in ctx.remarks if one.kind != "missed" or (one.node, one.backend) not in adopted or one.format
        ]


def _wanted(form: QuantizedForm, borders: dict[str, Border | None]) -> Iterator[tuple[QdqNode, str]]:
    """Yield the conversions that a quantized value adopts, with the backend that should run each."""
    producer = form.producer
    if producer is not None:
        home = placement_of(producer.node).backend
        for qdq in quantizing(form.value):
            if form.adopted == qdq.parameters and qdq.fits(form.format):
                yield qdq, home
                if (border := borders.get(home)) is not None and border.out == "inside":
                    yield from ((back, home) for node, _ in qdq.integers.uses() if (back := _dequantize(node)))
        return
    own = dequantizing(form.value)
    if own is None or not own.fits(form.format) or form.adopted is None and not form.rule.factors:
        return
    reader = placement_of(form.uses[0].node).backend
    yield own, reader
    before = qdq_of(own.integers.producer())
    if before is not None and (border := borders.get(reader)) is not None and border.into == "inside":
        yield before, reader


def _remark_other_scheme(form: QuantizedForm, ctx: Context) -> None:
    """Remark where the source model uses another scheme: its conversions stay beside those of the plan."""
    if form.adopted is not None or form.rule.factors:
        return
    qdq = dequantizing(form.value)
    if qdq is None and form.producer is not None:
        qdq = next(quantizing(form.value), None)
    if qdq is None or qdq.fits(form.format) or qdq.integers.const_value is not None:
        return
    node = form.uses[0].node
    why = (
        f"the source model has '{form.value.name}' in {qdq.element} with another scheme or granularity than "
        f"{form.format}; both conversions are carried out"
    )
    ctx.remark("missed", node, "other-scheme", why, suggest="compile the model as it was before it was quantized")


def _dequantize(node: ir.Node) -> QdqNode | None:
    return qdq_of(node) if node.op_type == "DequantizeLinear" else None


def _beside(form: QuantizedForm) -> ir.Node:
    return form.uses[0].node
