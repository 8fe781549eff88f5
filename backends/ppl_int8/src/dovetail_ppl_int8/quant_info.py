"""Content of PPL's file: the parameters of values by name, and the int8 nodes.

The keys are those of OpenPPL's quantizer PPQ. The numbers are for int8 without a zero point, which is equivalent to
uint8 with a zero point of 128 in Dovetail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from dovetail.ir import name_of
from dovetail.planning import get_placement
from dovetail.plugin import EngineError

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.planning import Parameters
    from dovetail.plugin import EmittedRegion, QuantizedValue


_BITS = 8
_LOWEST, _HIGHEST = -128, 127
_PRODUCTS, _ACTIVATIONS = ("Conv", "Gemm"), ("Clip", "LeakyRelu", "Relu", "Sigmoid")


def quant_info(region: EmittedRegion) -> dict[str, dict[str, Any]]:
    """Return the entry of every value that is held in 8 bits.

    There is no entry for biases, which PPL quantizes to 32 bits itself, and for values between a product and a fused
    activation. `hash` is unique for each value, and `dominator` is the hash of the first value with the same
    parameters.

    Raises:
        EngineError: A value has two scales, which the file cannot represent; names a reader of it.
    """
    found: dict[str, QuantizedValue] = {}
    fused = _fused_values(region)
    for quantized in region.quantized_values:
        if quantized.format.dtype.bitwidth != _BITS or quantized.value in fused:
            continue
        other = found.setdefault(quantized.value, quantized)
        if _numbers(other) != _numbers(quantized):
            why = f"'{quantized.value}' has two scales, and PPL takes one per value"
            raise EngineError(why, node=_reader(quantized, region))
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


def _reader(quantized: QuantizedValue, region: EmittedRegion) -> str:
    """Return a reader of a quantized value on the backend, which can be placed elsewhere."""
    own = set(region.nodes)
    readers = (reader.rpartition(":")[0] for reader in quantized.readers)
    return next((reader for reader in readers if reader in own), "")
