"""Histograms of 8-bit activations, measured by running a result on data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import DovetailError
from dovetail.ir import is_onnx
from dovetail.passes import Context, Request
from dovetail.plugin import Format

from dovetail_report.collect.histograms import BINS, MOST
from dovetail_report.collect.texts import short

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import CompiledModel, PluginSet

_FORMATS = {"INT8": ("int8", -128), "UINT8": ("uint8", 0)}


def activation_histograms(compiled: CompiledModel, data: object, plugins: PluginSet) -> list[dict[str, Any]]:
    """Return a row for each value that is quantized to 8 bits with one scale, as `histograms` does for weights.

    `ends` is the share of the numbers that have the least or the largest integer, `clipped` of those beyond them. At
    most 2000 values are measured. The result runs on the host once over all data, a part of its graph at a time.

    Args:
        compiled: The result.
        data: As for `dovetail.verify`.
        plugins: The plugins.

    Raises:
        DovetailError: The data does not fit, dovetail-quantize is not installed, or the host cannot run the result.
    """
    try:
        from dovetail_quantize.observing import observe
        from dovetail_runtime.nested_graphs import with_nodes
    except ImportError as error:
        why = "histograms of activations need dovetail-quantize"
        raise DovetailError(why, "pip install 'dovetail-report[data]'") from error
    model = with_nodes(compiled).clone()
    counters = _counters(model)
    if not counters:
        return []
    ctx = Context(Request(data=data), plugins=plugins)
    observe(model, {name: [counter] for name, counter in counters.items()}, ctx)
    return [counter.row(name) for name, counter in counters.items() if counter.total]


class _Scale(NamedTuple):
    kind: str
    lowest: int
    scale: float
    zero_point: int


class _Counter:
    """Counts how often each of the 256 integers of a value occurs."""

    extrema: Callable[[np.ndarray, np.ndarray], None] | None = None  # it needs all numbers

    def __init__(self, scale: _Scale):
        import numpy as np

        self._scale = scale
        self._counts = np.zeros(256, np.int64)
        self._clipped = self.total = 0

    @property
    def format(self) -> Format:
        """The format of the value."""
        return Format.of(f"{self._scale.kind}[asymmetric]")

    def update(self, array: np.ndarray) -> None:
        """Count the numbers of a batch."""
        import numpy as np

        offset = np.rint(array.astype(np.float64).reshape(-1) / self._scale.scale) + self._scale.zero_point
        offset = np.nan_to_num(offset) - self._scale.lowest
        self._clipped += int(((offset < 0) | (offset > 255)).sum())
        self._counts += np.bincount(np.clip(offset, 0, 255).astype(np.int64), minlength=256)
        self.total += offset.size

    def row(self, name: str) -> dict[str, Any]:
        """Return the row of the table."""
        return {
            "value": short(name), "type": self._scale.kind, "elements": self.total,
            "bins": self._counts.reshape(BINS, -1).sum(axis=1).tolist(), "levels": int((self._counts > 0).sum()),
            "ends": round(float(self._counts[[0, 255]].sum()) / self.total, 4),
            "clipped": round(self._clipped / self.total, 6), "scale": self._scale.scale, "scales": 1,
            "zero_point": self._scale.zero_point,
        }  # fmt: skip


def _counters(model: Model) -> dict[str, _Counter]:
    """Return a counter for each float value of the main graph that a QuantizeLinear reads, by name."""
    counters: dict[str, _Counter] = {}
    for node in model.graph:
        scale = _scale_of(node) if node.op_type == "QuantizeLinear" and is_onnx(node) else None
        value = node.inputs[0] if scale is not None else None
        if scale is not None and value is not None and value.const_value is None and len(counters) < MOST:
            counters.setdefault(value.name or "", _Counter(scale))
    return counters


def _scale_of(node: ir.Node) -> _Scale | None:
    """Return type, scale and zero point of a QuantizeLinear; None unless it has one constant scale and 8 bits."""
    kind = node.outputs[0].dtype
    scale, zero = (node.inputs[index] if len(node.inputs) > index else None for index in (1, 2))
    if kind is None or kind.name not in _FORMATS or scale is None or scale.const_value is None:
        return None
    if scale.const_value.size != 1 or zero is not None and zero.const_value is None:
        return None
    number = 0 if zero is None or zero.const_value is None else int(zero.const_value.numpy().reshape(-1)[0])
    name, lowest = _FORMATS[kind.name]
    return _Scale(name, lowest, float(scale.const_value.numpy().reshape(-1)[0]), number)
