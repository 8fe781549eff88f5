"""Comparison of results with expected values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.ir import dtype_of, float_name, input_of, name_of
from dovetail.plugin.loading import nodes_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """Difference between two values.

    Attributes:
        exact: Whether all elements are equal after rounding the expected ones to the result's format.
        share: The largest difference of two elements, relative to the largest expected magnitude (or to 1, if that is
            zero); 0 if all are equal.
        broken: Why the two cannot be compared: different shape, type or count, or elements that are finite in only one
            of them. Empty if they can.
    """

    exact: bool = True
    share: float = 0.0
    broken: str = ""


def compared(result: Any, expected: Any, narrow: NarrowFormat | None = None) -> ValueDifference:
    """Compare a result with the expected one: a tensor, a sequence, or None for an optional that is empty.

    Args:
        result: The computed result.
        expected: The result of the reference.
        narrow: The narrower format of the result, if any.
    """
    if result is None or expected is None:
        return ValueDifference() if result is expected else _broken("only one of both results is there")
    if isinstance(expected, Sequence) and not isinstance(expected, (str, bytes)):
        return _sequences(result, expected)
    a, b = _readable(np.asarray(result)), _readable(np.asarray(expected))
    if a.shape != b.shape:
        return _broken(f"its shape is {list(a.shape)}, the reference gives {list(b.shape)}")
    if b.dtype.kind in "OSU":
        same = a.astype(str) == b.astype(str)
        return ValueDifference() if same.all() else _broken(f"{int(np.count_nonzero(~same))} texts differ")
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":
        # float64 cannot represent all 64-bit integers, nor their differences.
        exact = bool(np.array_equal(a, b))
        return (
            ValueDifference() if exact else ValueDifference(False, _share(a.astype(np.float64), b.astype(np.float64)))
        )
    wide = np.complex128 if "c" in a.dtype.kind + b.dtype.kind else np.float64
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = b if narrow is None else narrow.rounded(b)
        a, b, rounded = a.astype(wide), b.astype(wide), rounded.astype(wide)
    # An unrounded result is acceptable, too.
    if np.all((a == rounded) | (a == b) | (np.isnan(a) & np.isnan(b))):
        return ValueDifference()
    strange = ~np.isfinite(a) & (a != rounded) & ~(np.isnan(a) & np.isnan(b)) | np.isfinite(a) & ~np.isfinite(rounded)
    if strange.any():
        return _broken(f"{int(np.count_nonzero(strange))} elements are infinite or no number in one of both alone")
    return ValueDifference(False, _share(*_finite(a, b)))


def _sequences(result: Any, expected: Sequence[Any]) -> ValueDifference:
    if not isinstance(result, Sequence) or len(result) != len(expected):
        length = len(result) if isinstance(result, Sequence) else "no"
        return _broken(f"it has {length} elements, the reference gives {len(expected)}")
    parts = [compared(one, other) for one, other in zip(result, expected, strict=True)]
    broken = next((part.broken for part in parts if part.broken), "")
    return ValueDifference(all(part.exact for part in parts), max((part.share for part in parts), default=0.0), broken)


def _finite(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    both = np.isfinite(a) & np.isfinite(b)
    return a[both], b[both]


def _share(a: np.ndarray, b: np.ndarray) -> float:
    largest = float(np.abs(b).max(initial=0.0))
    return float(np.abs(a - b).max(initial=0.0)) / (largest or 1.0)


def _readable(array: np.ndarray) -> np.ndarray:
    """Convert narrow types of ml_dtypes to NumPy floats or integers."""
    if array.dtype.kind != "V":
        return array
    return array.astype(np.float32) if "float" in array.dtype.name else array.astype(np.int16)


def _broken(why: str) -> ValueDifference:
    return ValueDifference(False, 0.0, why)


class NarrowFormat(ABC):
    """A format that represents fewer numbers."""

    @abstractmethod
    def rounded(self, array: np.ndarray) -> np.ndarray:
        """Round an array to the format, keeping the array's type."""


@dataclass(frozen=True)
class _Narrow(NarrowFormat):
    """A narrower float format."""

    dtype: np.dtype

    def rounded(self, array: np.ndarray) -> np.ndarray:
        return array.astype(self.dtype).astype(array.dtype)


@dataclass(frozen=True)
class _Integers(NarrowFormat):
    """An integer format with one scale and zero point."""

    scale: float
    zero_point: int
    dtype: np.dtype

    def rounded(self, array: np.ndarray) -> np.ndarray:
        limits = np.iinfo(self.dtype)
        steps = np.rint(array.astype(np.float64) / self.scale) + self.zero_point
        return ((np.clip(steps, limits.min, limits.max) - self.zero_point) * self.scale).astype(array.dtype)


def narrow_inputs(model: Model) -> dict[str, NarrowFormat]:
    """Return the inputs of a compiled model that all readers take in one narrower format."""
    found: dict[str, NarrowFormat] = {}
    for value in model.graph.inputs:
        formats = {_of_reader(node, reader) for node, reader in _readers(model, value)}
        if len(formats) == 1 and (narrow := next(iter(formats))) is not None:
            found[name_of(value)] = narrow
        elif not formats and _is_narrow(value):
            found[name_of(value)] = _Narrow(dtype_of(value).numpy())
    return found


def narrow_outputs(model: Model) -> dict[str, NarrowFormat]:
    """Return the outputs of a compiled model that are computed in a narrower format than their type."""
    found: dict[str, NarrowFormat] = {}
    for value in model.graph.outputs:
        node, result = _maker(model, value)
        narrow = _of_maker(node) if node is not None else None
        if narrow is None and _is_narrow(result):
            narrow = _Narrow(dtype_of(result).numpy())
        if narrow is not None:
            found[name_of(value)] = narrow
    return found


def rounded_inputs(model: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Round inputs to the formats of a compiled model, keeping the source's types."""
    narrow = filter(_is_narrow, model.graph.inputs)
    formats: dict[str, NarrowFormat] = {name_of(value): _Narrow(dtype_of(value).numpy()) for value in narrow}
    formats |= narrow_inputs(model)
    return {
        name: formats[name].rounded(array)
        if name in formats and isinstance(array, np.ndarray) and array.dtype.kind == "f"
        else array
        for name, array in inputs.items()
    }


def _is_narrow(value: ir.Value) -> bool:
    return float_name(value) in ("float16", "bfloat16")


def _readers(model: Model, value: ir.Value) -> Iterator[tuple[ir.Node, ir.Value]]:
    """Yield every reader of a value, including those inside regions, with the value's name there."""
    for node, index in value.uses():
        inside = nodes_of(model, node)
        formal = _formal(inside, node, index)
        if formal is None:
            yield node, value
        else:
            yield from ((reader, formal) for reader, _ in formal.uses())


def _formal(inside: Any, node: ir.Node, index: int) -> ir.Value | None:
    """Return the function input that corresponds to an input of its call."""
    if not inside or tuple(inside) == (node,):
        return None
    graph = inside[0].graph
    inputs = list(graph.inputs) if graph is not None else []
    return inputs[index] if index < len(inputs) else None


def _maker(model: Model, value: ir.Value) -> tuple[ir.Node | None, ir.Value]:
    """Return the producer of a value, possibly inside a region, with the value's name there."""
    node = value.producer()
    if node is None:
        return None, value
    inside = nodes_of(model, node)
    if not inside or tuple(inside) == (node,):
        return node, value
    graph, index = inside[0].graph, list(node.outputs).index(value)
    outputs = list(graph.outputs) if graph is not None else []
    result = outputs[index] if index < len(outputs) else value
    return result.producer(), result


def _of_reader(node: ir.Node, value: ir.Value) -> NarrowFormat | None:
    if node.inputs[0] is not value:
        return None
    if node.op_type == "Cast" and _is_narrow(node.outputs[0]) and not _is_narrow(value):
        return _Narrow(dtype_of(node.outputs[0]).numpy())
    return _integers(node) if node.op_type == "QuantizeLinear" else None


def _of_maker(node: ir.Node) -> NarrowFormat | None:
    if node.op_type == "Cast" and _is_narrow(value := input_of(node, 0)):
        return _Narrow(dtype_of(value).numpy())
    return _integers(node) if node.op_type == "DequantizeLinear" else None


def _integers(node: ir.Node) -> NarrowFormat | None:
    """Return the integer format of a conversion with a single constant scale, or None."""
    scale, zero_point = (_constant(node, index) for index in (1, 2))
    stored = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    if scale is None or scale.size != 1 or stored is None or stored.dtype is None or not stored.dtype.is_integer():
        return None
    zero = int(zero_point.reshape(-1)[0]) if zero_point is not None else 0
    return _Integers(float(scale.reshape(-1)[0]), zero, np.dtype(stored.dtype.numpy()))


def _constant(node: ir.Node, index: int) -> np.ndarray | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    tensor = value.const_value if value is not None else None
    return tensor.numpy() if tensor is not None else None
