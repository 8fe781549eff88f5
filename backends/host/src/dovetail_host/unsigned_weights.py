"""int8 weights as uint8, for x86 CPUs on which ONNX Runtime's kernels saturate sums of uint8 times int8.

Products of uint8 and uint8 have kernels that are exact, and slower. ONNX Runtime does this itself with
`session.x64quantprecision`, but fails where nodes share a weight or its zero point, and where a scale per channel has
no zero point (1.31).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import FreshNames

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir
    from dovetail.ir import Model


class _Ports(NamedTuple):
    """Indices of inputs of an operator: a weight, its zero point, and its scale if it has one."""

    weight: int
    zero_point: int
    scale: int | None


_READERS = {
    "DequantizeLinear": _Ports(0, 2, 1),
    "MatMulInteger": _Ports(1, 3, None),
    "QLinearConv": _Ports(3, 5, 4),
    "QLinearMatMul": _Ports(3, 5, 4),
}
_SMALL = 64  # two products of 255 and 64 fit into 16 bits with a sign
_OFFSET = 128


def with_unsigned_weights(model: Model, fuses: bool = True) -> Model | None:
    """Return a copy of `model` with uint8 in place of int8 weights, and zero points that are larger by 128.

    Weights whose sums are exact in any case, with integers up to 64, stay. Weights are read one at a time.

    Args:
        model: The model.
        fuses: Whether ONNX Runtime may compute a DequantizeLinear as part of an integer product.

    Returns:
        The copy, which computes the same; None if there is nothing to change.
    """
    readers = {name: ports for name, ports in _READERS.items() if fuses or name != "DequantizeLinear"}
    if not any(_weights(graph, readers) for _, graph in model.graphs()):
        return None
    work = model.clone()
    names, shifted = FreshNames.of(work.graph), False
    for _, graph in work.graphs():
        for value in _weights(graph, readers):
            if _is_large(value):
                shifted |= _shift(value, graph, names, readers)
    if not shifted:
        return None
    work.touch()
    return work


def _weights(graph: ir.Graph, readers: Mapping[str, _Ports]) -> list[ir.Value]:
    """Return the int8 weights of a graph that some node multiplies, or dequantizes with a constant zero point."""
    return [
        value
        for value in graph.initializers.values()
        if value.const_value is not None and value.const_value.dtype.name == "INT8" and _uses(value, readers)
    ]


def _uses(value: ir.Value, readers: Mapping[str, _Ports]) -> list[tuple[ir.Node, _Ports]]:
    found = []
    for node, index in value.uses():
        ports = readers.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if ports is None or ports.weight != index:
            continue
        zero = node.inputs[ports.zero_point] if len(node.inputs) > ports.zero_point else None
        if (zero is None or zero.const_value is not None) and _zero_shape(node, ports) is not None:
            found.append((node, ports))
    return found


def _zero_shape(node: ir.Node, ports: _Ports) -> tuple[int, ...] | None:
    """Return the shape that the zero point must have; None if it is unknown."""
    zero = node.inputs[ports.zero_point] if len(node.inputs) > ports.zero_point else None
    value = zero if zero is not None else node.inputs[ports.scale] if ports.scale is not None else None
    if value is None:
        return ()
    if value.const_value is not None:
        return tuple(value.const_value.shape.numpy())
    return tuple(value.shape.numpy()) if value.shape is not None and value.shape.is_static() else None


def _is_large(value: ir.Value) -> bool:
    import numpy as np

    assert value.const_value is not None
    array = value.const_value.numpy()
    return bool(array.size) and max(-int(np.min(array)), int(np.max(array))) > _SMALL


def _shift(value: ir.Value, graph: ir.Graph, names: FreshNames, readers: Mapping[str, _Ports]) -> bool:
    import numpy as np
    import onnx_ir as ir

    signed = value.const_value
    assert signed is not None

    def unsigned() -> ir.Tensor:
        return ir.Tensor(np.bitwise_xor(signed.numpy().view(np.uint8), np.uint8(_OFFSET)))

    tensor = ir.LazyTensor(unsigned, dtype=ir.DataType.UINT8, shape=ir.Shape(signed.shape.numpy()), cache=False)
    weight = _initializer(names.fresh(f"{value.name}/uint8"), tensor, graph)
    for node, ports in _uses(value, readers):
        shape = _zero_shape(node, ports)
        assert shape is not None
        zero = node.inputs[ports.zero_point] if len(node.inputs) > ports.zero_point else None
        array = np.full(shape, _OFFSET, np.int16)
        if zero is not None and zero.const_value is not None:
            array += zero.const_value.numpy()
        if len(node.inputs) <= ports.zero_point:
            node.resize_inputs(ports.zero_point + 1)
        name = names.fresh(f"{node.name}/zero_point")
        node.replace_input_with(ports.weight, weight)
        node.replace_input_with(ports.zero_point, _initializer(name, ir.Tensor(array.astype(np.uint8)), graph))
    if not value.uses() and not value.is_graph_output():
        del graph.initializers[value.name or ""]
    return True


def _initializer(name: str, tensor: ir.TensorProtocol, graph: ir.Graph) -> ir.Value:
    import onnx_ir as ir

    value = ir.Value(
        name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor
    )
    graph.register_initializer(value)
    return value
