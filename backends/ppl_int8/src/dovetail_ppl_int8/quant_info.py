"""Content of PPL's file: the parameters of values by name, and the int8 nodes.

The keys are those of OpenPPL's quantizer PPQ. The numbers are for int8 without a zero point, which is equivalent to
uint8 with a zero point of 128 in Dovetail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import onnx_ir as ir
from dovetail.ir import FreshNames, name_of
from dovetail.planning import get_placement
from dovetail.plugin import EngineError
from dovetail_onnx import Signatures, input_name

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.planning import Parameters
    from dovetail.plugin import EmittedRegion, QuantizedValue


_BITS = 8
_LOWEST, _HIGHEST = -128, 127
_PRODUCTS, _ACTIVATIONS = ("Conv", "Gemm"), ("Clip", "LeakyRelu", "Relu", "Sigmoid")


def values_by_name(region: EmittedRegion) -> dict[str, QuantizedValue]:
    """Return what each value of PPL's model is quantized to, by its name there.

    Biases are left out, which PPL quantizes to 32 bits itself, and so are values between a product and a fused
    activation. PPL takes one scale per value, so a constant that is read with several gets a name for each; see
    `with_copies`.

    Raises:
        EngineError: A value that is not a constant has two scales; it names the nodes that would have to be elsewhere.
    """
    found: dict[str, QuantizedValue] = {}
    lost: dict[str, list[str]] = {}
    fused, constants = _fused_values(region), region.source.graph.initializers
    names = FreshNames.of(region.source.graph)
    for quantized in region.quantized_values:
        if quantized.format.dtype.bitwidth != _BITS or quantized.value in fused:
            continue
        other = found.setdefault(quantized.value, quantized)
        if _numbers(other) == _numbers(quantized):
            continue
        if quantized.value in constants:
            found[names.fresh(f"{quantized.value}_again")] = quantized
        else:
            lost.setdefault(quantized.value, []).extend(_users(quantized, region) or _users(other, region))
    if lost:
        which = ", ".join(map(repr, lost))
        why = f"{which} {'has' if len(lost) == 1 else 'have'} two scales, and PPL takes one per value"
        raise EngineError(why, nodes=[node for nodes in lost.values() for node in nodes])
    return found


def with_copies(source: Model, found: Mapping[str, QuantizedValue]) -> Model:
    """Return a model in which every constant with several names in `found` is there once under each of them."""
    again = {name: quantized for name, quantized in found.items() if name != quantized.value}
    if not again:
        return source
    model = source.clone()
    signatures = Signatures(model.ir.opset_imports)
    by_name = {node.name: node for node in model.graph}
    for name, quantized in again.items():
        constant = model.graph.initializers[quantized.value]
        copy = ir.Value(name=name, type=constant.type, shape=constant.shape, const_value=constant.const_value)
        model.graph.register_initializer(copy)
        for reader in quantized.readers:
            node_name, _, port = reader.rpartition(":")
            node = by_name[node_name]
            for index, value in enumerate(node.inputs):
                if value is constant and input_name(index, signatures(node)) == port:
                    node.replace_input_with(index, copy)
    return model


def quant_info(found: Mapping[str, QuantizedValue]) -> dict[str, dict[str, Any]]:
    """Return the entry of every value that is held in 8 bits.

    `hash` is unique for each value, and `dominator` is the hash of the first value with the same parameters.
    """
    first: dict[str, int] = {}
    return {
        name: _entry(quantized, number, first.setdefault(quantized.group, number))
        for number, (name, quantized) in enumerate(found.items(), start=1)
    }


def op_info(model: Model, backend: str) -> dict[str, dict[str, str]]:
    """Return the nodes of a model that `backend` computes in int8."""
    found: dict[str, dict[str, str]] = {}
    for node in model.graph:
        placement = get_placement(node)
        if placement is not None and placement.backend == backend:
            found[name_of(node)] = {"data_type": "INT8"}
    return found


def _fused_values(region: EmittedRegion) -> set[str]:
    """Return the results of products whose only reader is an int8 activation."""
    own = set(region.nodes)
    found = set()
    for node in region.source.graph:
        if node.op_type in _PRODUCTS and node.name in own:
            result = node.outputs[0]
            readers = [reader for reader, _ in result.uses()]
            if len(readers) == 1 and readers[0].op_type in _ACTIVATIONS and readers[0].name in own:
                found |= set() if result.is_graph_output() else {name_of(result)}
    return found


def _entry(quantized: QuantizedValue, number: int, dominator: int) -> dict[str, Any]:
    per_channel = quantized.format.axis is not None
    scale = list(_scale(quantized))

    def one_or_all(numbers: Iterable[float]) -> float | list[float]:
        numbers = list(numbers)
        return numbers if per_channel else numbers[0]

    return {
        "bit_width": _BITS,
        "per_channel": per_channel,
        "quant_flag": True,
        "sym": True,
        "scale": one_or_all(scale),
        "zero_point": one_or_all(0 for _ in scale),
        "tensor_min": one_or_all(one * _LOWEST for one in scale),
        "tensor_max": one_or_all(one * _HIGHEST for one in scale),
        "q_min": _LOWEST,
        "q_max": _HIGHEST,
        "hash": number,
        "dominator": dominator,
    }


def _scale(quantized: QuantizedValue) -> tuple[float, ...]:
    """Return the scales of a quantized 8-bit value."""
    return cast("Parameters", quantized.parameters).scale


def _numbers(quantized: QuantizedValue) -> Mapping[str, Any]:
    return {"scale": _scale(quantized), "axis": quantized.format.axis}


def _users(quantized: QuantizedValue, region: EmittedRegion) -> list[str]:
    """Return the nodes on the backend that read a value in this form, or else the one that computes it."""
    own = set(region.nodes)
    readers, maker = ([use.rpartition(":")[0] for use in uses] for uses in (quantized.readers, [quantized.made_by]))
    return [node for node in readers if node in own] or [node for node in maker if node in own]
