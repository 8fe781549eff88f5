"""What PPL's file says: the parameters of values by name, and the nodes in int8.

The keys are those that OpenPPL's quantizer PPQ writes. The numbers are of int8 without a zero point: the integers of
what is held here as uint8 with a zero point of 128.
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
    """The entry of every value that is held in 8 bits.

    Biases have none, for PPL makes their 32 bits itself, nor has what a product hands to an activation that PPL
    computes together with it. `hash` is a number of its own for each value, `dominator` that of the first value with
    these parameters.

    Raises:
        EngineError: A value has two scales, for which there is no place in the file; names a node that reads it.
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
    """The nodes of a model that `backend` computes in int8; all others are left out."""
    found: dict[str, dict[str, str]] = {}
    for node in model.graph:
        placement = get_placement(node)
        if placement is not None and placement.backend == backend:
            found[name_of(node)] = {"data_type": "INT8"}
    return found


def _fused_values(region: EmittedRegion) -> set[str]:
    """The results of products that are read by nothing but an activation in int8."""
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
    """The scales of a value, which one in 8 bits has."""
    return cast("Parameters", quantized.parameters).scale


def _numbers(quantized: QuantizedValue) -> Mapping[str, Any]:
    return {"scale": _scale(quantized), "axis": quantized.format.axis}


def _reader(quantized: QuantizedValue, region: EmittedRegion) -> str:
    """A node of the backend that reads a quantized value, which can be placed elsewhere."""
    own = set(region.nodes)
    readers = (reader.rpartition(":")[0] for reader in quantized.readers)
    return next((reader for reader in readers if reader in own), "")
