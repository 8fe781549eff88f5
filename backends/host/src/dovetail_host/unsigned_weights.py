"""int8 weights as uint8, for x86 CPUs on which ONNX Runtime's kernels saturate sums of uint8 times int8.

Products of uint8 and uint8 have kernels that are exact, and slower; those of int8 and int8 are exact as they are. ONNX
Runtime does this itself with `session.x64quantprecision`, but fails where nodes share a weight or its zero point, where
a scale per channel has no zero point (1.31), and where a weight is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dovetail.ir import FreshNames, graph_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import onnx_ir as ir
    from dovetail.ir import Model


class _Ports(NamedTuple):
    """Indices of inputs of an operator: a weight, its zero point, its scale, what it is multiplied with, and its zero.

    The scale is None if there is none, and so are the last two if the operator itself quantizes that to uint8.
    """

    weight: int
    zero_point: int
    scale: int | None
    activation: int | None
    activation_zero: int | None = None


_Readers: TypeAlias = "Mapping[tuple[str, str], tuple[_Ports, ...]]"
_MICROSOFT = "com.microsoft"
_DEQUANTIZE = (_Ports(0, 2, 1, None),)
_READERS: _Readers = {
    ("", "DequantizeLinear"): _DEQUANTIZE,
    (_MICROSOFT, "DequantizeLinear"): _DEQUANTIZE,
    ("", "MatMulInteger"): (_Ports(1, 3, None, 0, 2),),
    ("", "QLinearConv"): (_Ports(3, 5, 4, 0, 2),),
    (_MICROSOFT, "QLinearConv"): (_Ports(3, 5, 4, 0, 2),),
    ("", "QLinearMatMul"): (_Ports(3, 5, 4, 0, 2),),
    (_MICROSOFT, "DynamicQuantizeLSTM"): (_Ports(1, 9, 8, None), _Ports(2, 11, 10, None)),
    (_MICROSOFT, "DynamicQuantizeMatMul"): (_Ports(1, 3, 2, None),),
    (_MICROSOFT, "MatMulIntegerToFloat"): (_Ports(1, 5, 3, 0, 4),),
    (_MICROSOFT, "QAttention"): (_Ports(1, 7, 4, 0, 6),),
    (_MICROSOFT, "QGemm"): (_Ports(3, 5, 4, 0, 2),),
    # ConvInteger multiplies the other way round: its weights are the unsigned operand, and int8 data saturates.
    ("", "ConvInteger"): (_Ports(0, 2, None, 1, 3),),
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
    if not saturates(model, fuses):
        return None
    readers = _readers(fuses)
    work = model.clone()
    names = FreshNames.of(work.graph)
    for _, graph in work.graphs():
        # All at first: a weight must be read as it was to tell whether its neighbor has to change, too.
        large = [value for value in _weights(graph, readers) if _is_needed(value, readers)]
        for value in large:
            _shift(value, graph, names, readers)
        for node, ports in list(_computed(graph, readers)):
            _shift_at_run_time(node, ports, names)
    work.touch()
    return work


def saturates(model: Model, fuses: bool = True) -> bool:
    """Check whether sums of products of uint8 and int8 saturate where the CPU has no VNNI; see `with_unsigned_weights`.

    Weights are read one at a time.
    """
    readers = _readers(fuses)
    return any(
        any(_is_needed(value, readers) for value in _weights(graph, readers)) or any(_computed(graph, readers))
        for _, graph in model.graphs()
    )


def _readers(fuses: bool) -> _Readers:
    return {name: ports for name, ports in _READERS.items() if fuses or ports is not _DEQUANTIZE}


def _weights(graph: ir.Graph, readers: _Readers) -> list[ir.Value]:
    """Return the int8 weights of a graph that some node multiplies, or dequantizes with a constant zero point."""
    return [
        value
        for value in graph.initializers.values()
        if value.const_value is not None and value.const_value.dtype.name == "INT8" and _uses(value, readers)
    ]


def _uses(value: ir.Value, readers: _Readers) -> list[tuple[ir.Node, _Ports]]:
    """Return the nodes that read `value` as a weight and can read it as uint8, with the ports."""
    found = []
    for node, index in value.uses():
        every = _ports_of(node, readers)
        if any(ports.weight == index for ports in every) and all(_is_constant(node, ports) for ports in every):
            found += [(node, ports) for ports in every if ports.weight == index]
    return found


def _ports_of(node: ir.Node, readers: _Readers) -> tuple[_Ports, ...]:
    """Return the ports of a node whose products saturate if the weight is int8."""
    every = readers.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type), ())
    for ports in every:
        # A zero point has the type of what it belongs to, which may be unknown behind operators of ONNX Runtime.
        others = [_input(node, port) for port in (ports.activation, ports.activation_zero) if port is not None]
        if any(other is not None and other.dtype is not None and other.dtype.name != "UINT8" for other in others):
            return ()  # two signed operands
    return every


def _is_constant(node: ir.Node, ports: _Ports) -> bool:
    """Check whether a node has a constant int8 weight, with a zero point that is constant or left out."""
    weight, zero = _input(node, ports.weight), _input(node, ports.zero_point)
    if weight is None or weight.const_value is None or weight.const_value.dtype.name != "INT8":
        return False
    return (zero is None or zero.const_value is not None) and _zero_shape(node, ports) is not None


def _computed(graph: ir.Graph, readers: _Readers) -> Iterator[tuple[ir.Node, _Ports]]:
    """Yield the nodes of a graph that multiply uint8 with an int8 weight that is computed, with the ports."""
    for node in graph:
        every = _ports_of(node, readers)
        if not every or all(_is_constant(node, ports) for ports in every):
            continue
        if every is _DEQUANTIZE and not _multiplies_unsigned(node):
            continue
        for ports in every:
            weight = _input(node, ports.weight)
            signed = weight is not None and weight.dtype is not None and weight.dtype.name == "INT8"
            if signed and _zero_shape(node, ports) is not None:
                yield node, ports


def _multiplies_unsigned(node: ir.Node) -> bool:
    """Check whether what a DequantizeLinear gives is multiplied with a dequantized uint8."""
    for reader, index in node.outputs[0].uses():
        other = reader.inputs[0].producer() if reader.op_type in ("Gemm", "MatMul") and reader.inputs[0] else None
        if index != 1 or other is None or other.op_type != "DequantizeLinear" or other.inputs[0] is None:
            continue
        if other.inputs[0].dtype is not None and other.inputs[0].dtype.name == "UINT8":
            return True
    return False


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _zero_shape(node: ir.Node, ports: _Ports) -> tuple[int, ...] | None:
    """Return the shape that the zero point must have; None if it is unknown."""
    zero = _input(node, ports.zero_point)
    value = zero if zero is not None else _input(node, ports.scale) if ports.scale is not None else None
    if value is None:
        return ()
    if value.const_value is not None:
        return tuple(value.const_value.shape.numpy())
    return tuple(value.shape.numpy()) if value.shape is not None and value.shape.is_static() else None


def _is_needed(value: ir.Value, readers: _Readers) -> bool:
    """Check whether a weight, or another one of the same node, which must have the same type, has large integers."""
    weights = {value: None}
    for node, _ in _uses(value, readers):
        weights.update((weight, None) for ports in _ports_of(node, readers) if (weight := _input(node, ports.weight)))
    return any(map(_is_large, weights))


def _is_large(value: ir.Value) -> bool:
    import numpy as np

    assert value.const_value is not None
    array = value.const_value.numpy()
    return bool(array.size) and max(-int(np.min(array)), int(np.max(array))) > _SMALL


def _shift(value: ir.Value, graph: ir.Graph, names: FreshNames, readers: _Readers) -> None:
    import numpy as np
    import onnx_ir as ir

    signed = value.const_value
    assert signed is not None

    def unsigned() -> ir.Tensor:
        return ir.Tensor(np.bitwise_xor(signed.numpy().view(np.uint8), np.uint8(_OFFSET)))

    tensor = ir.LazyTensor(unsigned, dtype=ir.DataType.UINT8, shape=ir.Shape(signed.shape.numpy()), cache=False)
    found = _uses(value, readers)
    weight = _initializer(names.fresh(f"{value.name}/uint8"), tensor, graph)
    for node, ports in found:
        node.replace_input_with(ports.weight, weight)
        _shift_zero_point(node, ports, names)
    if not value.uses() and not value.is_graph_output():
        del graph.initializers[value.name or ""]


def _shift_zero_point(node: ir.Node, ports: _Ports, names: FreshNames) -> None:
    """Add the offset to the zero point of a node; one that is left out is zero."""
    import numpy as np
    import onnx_ir as ir

    shape, zero = _zero_shape(node, ports), _input(node, ports.zero_point)
    assert shape is not None
    if len(node.inputs) <= ports.zero_point:
        node.resize_inputs(ports.zero_point + 1)
    if zero is not None and zero.const_value is None:
        node.replace_input_with(ports.zero_point, _shifted(zero, node, names))
        return
    array = np.full(shape, _OFFSET, np.int16)
    if zero is not None and zero.const_value is not None:
        array += zero.const_value.numpy()
    graph = graph_of(node)
    name = names.fresh(f"{node.name}/zero_point")
    node.replace_input_with(ports.zero_point, _initializer(name, ir.Tensor(array.astype(np.uint8)), graph))


def _shift_at_run_time(node: ir.Node, ports: _Ports, names: FreshNames) -> None:
    """Give a node its weight as uint8, computed before it."""
    weight = _input(node, ports.weight)
    assert weight is not None
    _shift_zero_point(node, ports, names)
    node.replace_input_with(ports.weight, _shifted(weight, node, names))


def _shifted(value: ir.Value, reader: ir.Node, names: FreshNames) -> ir.Value:
    """Return an int8 value plus the offset, as uint8, computed before `reader`."""
    import numpy as np
    import onnx_ir as ir

    graph = graph_of(reader)
    offset = _initializer(names.fresh(f"{value.name}/offset"), ir.Tensor(np.array(_OFFSET, np.int32)), graph)
    current = value
    for operator, kind in (("Cast", ir.DataType.INT32), ("Add", ir.DataType.INT32), ("Cast", ir.DataType.UINT8)):
        made = ir.Value(name=names.fresh(f"{value.name}/{kind.name.lower()}"), type=ir.TensorType(kind))
        made.shape = value.shape
        inputs = [current, offset] if operator == "Add" else [current]
        attributes = {} if operator == "Add" else {"to": ir.AttrInt64("to", int(kind))}
        node = ir.Node(
            "", operator, inputs, attributes.values(), outputs=[made], name=names.fresh(f"{value.name}/shift")
        )
        graph.insert_before(reader, node)
        current = made
    return current


def _initializer(name: str, tensor: ir.TensorProtocol, graph: ir.Graph) -> ir.Value:
    import onnx_ir as ir

    value = ir.Value(
        name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor
    )
    graph.register_initializer(value)
    return value
