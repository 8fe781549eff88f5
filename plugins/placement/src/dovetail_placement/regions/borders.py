"""The borders of regions: for each input and output of a region's model, the source model's value, and its format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dovetail.ir import constant_of, format_of, name_of
from dovetail.planning import BorderValue, decided_key

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.planning import QuantizedValue


class Borders:
    """Borders of regions of one model.

    Args:
        decided: The model with all decisions, before any of them was carried out; None for a model that is its own
            source.
        quantized_values: The quantized values of the compilation.
    """

    def __init__(self, decided: Model | None, quantized_values: Iterable[QuantizedValue]):
        nodes = decided.graph if decided is not None else ()
        self._source = {key: node for node in nodes if (key := decided_key(node))}
        self._quantized: dict[str, list[QuantizedValue]] = {}
        for one in quantized_values:
            self._quantized.setdefault(one.value, []).append(one)

    def of(self, values: Iterable[ir.Value]) -> tuple[BorderValue, ...]:
        """Return the border of each of the inputs or outputs of a region, in order."""
        return tuple(map(self._border, values))

    def _border(self, value: ir.Value) -> BorderValue:
        source = self._source_name(value)
        found = [one for one in self._quantized.get(source, ()) if one.format.dtype == value.dtype]
        if len(found) > 1:
            scales = _scales(value)
            found = [one for one in found if one.parameters is not None and one.parameters.scale in scales] or found
        if found:
            return BorderValue(name_of(value), source, found[0].format, found[0].parameters)
        return BorderValue(name_of(value), source, format_of(value.dtype))

    def _source_name(self, value: ir.Value) -> str:
        """Follow a value back to the value of the source model that it represents.

        Only conversions come between the two. They are in no plan, so they have no key.
        """
        while (node := value.producer()) is not None and self._source:
            key = decided_key(node)
            if key in self._source:
                outputs, at = self._source[key].outputs, value.index() or 0
                return name_of(outputs[at if at < len(outputs) else 0])
            if key or not node.inputs or node.inputs[0] is None:
                break
            value = node.inputs[0]
        return name_of(value)


def _scales(value: ir.Value) -> set[Sequence[float]]:
    """Return the scales with which the conversions next to a value compute or read it."""
    beside = [node for node, port in value.uses() if port == 0]
    if (producer := value.producer()) is not None:
        beside.append(producer)
    scales = [node.inputs[1] for node in beside if len(node.inputs) > 1 and node.inputs[1] is not None]
    return {tuple(map(float, constant_of(one).numpy().ravel())) for one in scales if one.const_value is not None}
