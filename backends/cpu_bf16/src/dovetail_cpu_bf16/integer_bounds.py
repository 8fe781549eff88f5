"""Bounds of 64-bit integers, derived from their producers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail.ir import dtype_of, input_of
from dovetail.plugin import is_onnx
from dovetail_placement import is_trip_number
from dovetail_precision import ARITHMETIC, MERGING, MOVEMENT, Range, integer_interval, is_integer
from dovetail_transforms import declared_range
from onnx_ir.convenience import get_const_tensor

from dovetail_cpu_bf16.extents import axes_of, largest_extent, product_of_extents

if TYPE_CHECKING:
    import onnx_ir as ir


# An axis of this many floats takes 2 GB; unknown extents, and products of extents of one tensor, count as this. The sum
# of two, such as the length of a cache and that of what is new, fits in 31 bits, and so does what such sums differ by.
_LARGEST_EXTENT = 2.0**29 - 1
# What extents and integers of unknown size count as where they only decide extents, positions and indices: large enough
# to find factors and products that leave 32 bits, small enough for the shape arithmetic of real models.
_USUAL_EXTENT, _USUAL_INTEGER = 2.0**10, 2.0**20
_MAX_ELEMENTS = 4096
"""Largest constant that is read; larger ones are not extents or offsets."""
_MAX_NODES = 64
"""Nodes visited per value, which keeps the cost of facts linear in the model's size."""
_MAX_STEPS, _FEW = 6, 8  # nodes between extents and what they are seen in at once, and numbers in a constant
_INT64 = 7  # onnx.TensorProto.INT64
_NUMBERS = "dovetail_cpu_bf16.numbers"
_MOVES = frozenset({"Concat", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"})
_INDICES = frozenset({"ArgMax", "ArgMin", "NonMaxSuppression", "NonZero"})
_COUNTS = frozenset({"CumSum", "ReduceSum"})
SELECTION = MOVEMENT | MERGING
_INTERVALS = SELECTION | frozenset(ARITHMETIC)
_LEAST, _LARGEST = -(2.0**31), 2.0**31 - 1
_UNKNOWN = Range(-math.inf, math.inf)


def fits(value: ir.Value, bits: int = 31) -> bool:
    """Check whether all elements of the integer `value` provably fit in `bits` bits and a sign.

    Indices, extents, comparisons and narrower integers are bounded, and so are results of selection, data movement and
    arithmetic on them. Model inputs are not, unless `--input-range` promises it, nor are products of extents of several
    tensors.
    """
    return _magnitude(value, bits, _MAX_STEPS) < 2.0**bits or _fits(_Bounds(bits).of(value), bits)


def _magnitude(value: ir.Value | None, bits: int, steps: int) -> float:
    """Return a rough bound of the magnitude of `value`, infinite if it is not seen at once.

    Most integers of a model are extents and small constants that few nodes collect, add and multiply.
    """
    node = value.producer() if value is not None else None
    if node is None or value is None:
        few = _few_numbers(value)
        return max(map(abs, few), default=0.0) if few is not None else math.inf
    operator, inputs = node.op_type, node.inputs
    if not steps or not is_onnx(node) or value.dtype != _INT64:
        return math.inf
    extent = min(_LARGEST_EXTENT, 2.0**bits - 1)
    if operator == "Shape":
        return largest_extent(node, extent)
    if operator == "Gather" and (found := _one_extent(node, extent)) is not None:
        return found
    if operator == "Concat":
        found = max((_magnitude(one, bits, steps - 1) for one in inputs), default=math.inf)
    elif operator in _MOVES:
        found = _magnitude(inputs[0], bits, steps - 1)
    elif operator in ("Add", "Sub"):
        found = _magnitude(inputs[0], bits, steps - 1) + _magnitude(inputs[1], bits, steps - 1)
    elif operator == "Mul":
        found = _magnitude(inputs[0], bits, steps - 1) * _magnitude(inputs[1], bits, steps - 1)
    elif operator == "Div" and _is_positive(inputs[1]):
        found = _magnitude(inputs[0], bits, steps - 1)
    else:
        return math.inf
    return found if found < 2.0**31 else math.inf  # what exceeds 32 bits has wrapped around


def _one_extent(gather: ir.Node, unknown: float) -> float | None:
    """Return the extent that a Gather takes from a whole Shape; None if it does something else."""
    source, index = gather.inputs[0], _few_numbers(gather.inputs[1])
    shape_of = source.producer() if source is not None else None
    if index is None or len(index) != 1 or shape_of is None or shape_of.op_type != "Shape" or shape_of.attributes.data:
        return None
    shape, (at,) = input_of(shape_of, 0).shape, index
    if shape is None or not -len(shape) <= at < len(shape):
        return None
    extent = shape[at]
    return float(extent) if isinstance(extent, int) else unknown


def _is_positive(value: ir.Value | None) -> bool:
    """Check whether a value is a small constant above zero."""
    few = _few_numbers(value)
    return few is not None and all(number > 0 for number in few)


def _few_numbers(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the numbers of a small constant of integers; None for other values.

    They are kept at the value, because decoding a constant takes longer than all else that bounds ask of it.
    """
    constant = value.const_value if value is not None else None
    if value is None or constant is None:
        return None
    kept = value.meta.get(_NUMBERS)
    if kept is None or kept[0] is not constant:
        is_few = constant.size <= _FEW and constant.dtype.is_integer()
        numbers = tuple(constant.numpy().reshape(-1).tolist()) if is_few else None
        kept = value.meta[_NUMBERS] = constant, numbers
    return None if value.is_graph_input() else kept[1]


def stays_in_type(node: ir.Node) -> bool:
    """Check whether the first result of `node`, before it wraps around, provably is within its own type."""
    value = node.outputs[0]
    return _is_within(_Bounds().before_wrapping(node), _of_type(value))


def fits_as_control(value: ir.Value, bits: int = 31) -> bool:
    """Check whether an integer that `only_controls` fits in `bits` bits and a sign, by its factors and terms.

    Its extents are those of tensors that memory holds, and a constant beyond 32 bits that is only selected or moved
    means "to the end": OpenVINO takes the largest number of 32 bits for it.
    """
    return _fits(_Bounds(bits, control=True).of(value), bits)


def bounds_of(value: ir.Value) -> Range:
    """Return the interval of the integer `value`; infinite where nothing bounds it."""
    return _Bounds().of(value)


def _is_within(found: Range, limits: Range) -> bool:
    return limits.low <= found.low and found.high <= limits.high


def _fits(found: Range, bits: int = 31) -> bool:
    return found.low >= -(2.0**bits) and found.high < 2.0**bits


class _Bounds:
    """Bounds of a value and of the values it is computed from.

    Args:
        bits: How large extents, indices and trip numbers may be at most.
        control: Whether the value only decides extents, positions and indices.
    """

    def __init__(self, bits: int = 31, control: bool = False) -> None:
        self._known: dict[int, Range] = {}
        self._left = _MAX_NODES
        self._control = control
        self._trips = 2.0**bits - 1
        self._extent = _USUAL_EXTENT if control else min(_LARGEST_EXTENT, 2.0**bits - 1)
        self._elements = min(_LARGEST_EXTENT, 2.0**bits - 1) if control else _LARGEST_EXTENT

    def of(self, value: ir.Value | None) -> Range:
        """Return the interval of `value`."""
        if value is None:
            return _UNKNOWN
        if id(value) not in self._known:
            self._known[id(value)] = _UNKNOWN  # breaks cycles in graphs that are not sorted
            self._known[id(value)] = self._computed(value)
        return self._known[id(value)]

    def before_wrapping(self, node: ir.Node) -> Range:
        """Return the interval of the first result of `node` as if its type had room for any integer."""
        if node.op_type in ("Cast", "CastLike"):
            return self.of(node.inputs[0])
        interval = ARITHMETIC.get(node.op_type)
        return _UNKNOWN if interval is None else interval(*map(self.of, node.inputs))

    def _computed(self, value: ir.Value) -> Range:
        if value.const_value is not None and value.producer() is None and not value.is_graph_input():
            return self._of_constant(value.const_value)
        typed = _of_type(value)
        node = value.producer()
        promised = declared_range(value) if node is None and value.is_graph_input() else None
        if promised is not None:
            return Range(float(promised.low), float(promised.high))
        self._left -= 1
        if typed.bounded and typed.magnitude < _LARGEST:
            return typed
        if is_trip_number(value):  # of a Loop whose trips fit, or all of it runs elsewhere
            return Range(0.0, self._trips - 1)
        if node is None or self._left < 0 or not is_onnx(node):
            found = self._unbounded()
        else:
            found = self._of_node(node, value)
        return typed if typed.bounded and not found.bounded else found

    def _unbounded(self) -> Range:
        return Range(-_USUAL_INTEGER, _USUAL_INTEGER) if self._control else _UNKNOWN

    def _of_node(self, node: ir.Node, value: ir.Value) -> Range:
        operator, inputs = node.op_type, node.inputs
        if operator == "Constant":
            tensor = get_const_tensor(value)
            return _UNKNOWN if tensor is None else self._of_constant(tensor)
        if operator in _INDICES or operator == "TopK" and value is node.outputs[1]:
            return Range(0.0, self._extent - 1)
        if axes := axes_of(value):
            return Range(0.0, product_of_extents(axes, self._extent, self._elements))
        if operator == "Shape":
            return Range(0.0, largest_extent(node, self._extent))
        if operator == "Range":
            return self._of_range(*map(self.of, inputs[:3]))
        if operator == "ConstantOfShape":
            filled = node.attributes.get_tensor("value")
            return Range(0.0, 0.0) if filled is None else self._of_constant(filled)
        if operator == "MaxPool" and value is not node.outputs[0]:
            return Range(0.0, _elements(input_of(node, 0), self._elements) - 1)
        if operator in ("Cast", "CastLike"):
            found = self.of(inputs[0]) if is_integer(inputs[0]) else self._unbounded()
            return found if not found.bounded or _is_within(found, _of_type(value)) else _UNKNOWN  # it wraps around
        if operator in _COUNTS:
            terms = self.of(inputs[0])
            count = _elements(input_of(node, 0), self._extent)
            return Range(min(terms.low, 0.0) * count, max(terms.high, 0.0) * count)
        if operator == "Mod" and not node.attributes.get_int("fmod", 0):
            divisor = self.of(inputs[1])
            # The result has the sign of the divisor and is smaller.
            return Range(min(divisor.low + 1, 0.0), max(divisor.high - 1, 0.0))
        if operator == "Div":
            return self._quotient(self.of(inputs[0]), self.of(inputs[1]))
        if not is_integer(node.outputs[0]) or value is not node.outputs[0] and operator != "Split":
            return self._unbounded()
        if self._control and operator not in SELECTION and any(map(_is_wide_constant, inputs)):
            return _UNKNOWN
        found = integer_interval(node, self.of)
        if not found.bounded and operator not in _INTERVALS and self._control:
            return self._unbounded()
        # A result that exceeds 32 bits, or an unsigned type, has wrapped around.
        wrapped = not _fits(found) or found.low < 0 and dtype_of(value).name in ("UINT32", "UINT64")
        return _UNKNOWN if wrapped else found

    def _of_constant(self, tensor: ir.TensorProtocol) -> Range:
        found = _of_constant(tensor)
        if not self._control or not found.bounded:
            return found
        return Range(max(min(found.low, _LARGEST), _LEAST), max(min(found.high, _LARGEST), _LEAST))

    def _of_range(self, start: Range, limit: Range, delta: Range) -> Range:
        """Return the interval of numbers from `start` towards `limit`, in steps of either sign, along one axis."""
        ends = Range(min(start.low, limit.low), max(start.high, limit.high))
        if ends.bounded or not (start.bounded and delta.bounded):
            return ends
        steps = Range(min(delta.low, 0.0) * self._extent, max(delta.high, 0.0) * self._extent)
        return Range(start.low + steps.low, start.high + steps.high)

    @staticmethod
    def _quotient(dividend: Range, divisor: Range) -> Range:
        if divisor.low < 1:
            return _UNKNOWN
        return Range(min(dividend.low, 0.0), max(dividend.high, 0.0))


def _of_type(value: ir.Value) -> Range:
    dtype = value.dtype
    if dtype is None or not is_integer(value):
        return _UNKNOWN
    if dtype.name == "BOOL":
        return Range(0.0, 1.0)
    if dtype.name.startswith("UINT"):
        return Range(0.0, 2.0**dtype.bitwidth - 1 if dtype.bitwidth < 32 else math.inf)
    return Range(-(2.0 ** (dtype.bitwidth - 1)), 2.0 ** (dtype.bitwidth - 1) - 1) if dtype.bitwidth <= 32 else _UNKNOWN


def _of_constant(tensor: ir.TensorProtocol) -> Range:
    if tensor.size > _MAX_ELEMENTS or not (tensor.dtype.is_integer() or tensor.dtype.name == "BOOL"):
        return _UNKNOWN
    elements = [int(number) for number in tensor.numpy().reshape(-1)]
    return Range(float(min(elements, default=0)), float(max(elements, default=0)))


def _is_wide_constant(value: ir.Value | None) -> bool:
    tensor = get_const_tensor(value) if value is not None and not value.is_graph_input() else None
    return tensor is not None and not _fits(_of_constant(tensor))


def _elements(value: ir.Value, unknown: float) -> float:
    """Return the number of elements of `value`, an upper bound of the terms of a sum."""
    if value.shape is None or not value.shape.is_static():
        return unknown
    return float(math.prod(value.shape.numpy()))
