"""Bits of weights within a size: more of them where the error falls most for the bytes."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from dovetail.errors import DovetailError
from dovetail.text import pluralize
from dovetail_onnx import saved_size
from dovetail_quantize import LeastSquares, MinMax, dequantize_array, quantize_array, scale_shape

from dovetail_cpu_int8.max_size import BYTES, OPTION, RESERVED, RESULT, RULE
from dovetail_cpu_int8.packed_weights import packed_block

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx_ir as ir
    from dovetail.ir import Format, Model
    from dovetail.passes import Context
    from dovetail.plugin import View


_SAMPLED = 1 << 17  # numbers of a weight whose error is measured
_PER_NODE = 64  # bytes that a placement adds to a saved node


@dataclass(eq=False)
class BudgetedWeight:
    """A weight with the formats that its readers take.

    Attributes:
        value: The weight.
        formats: Its formats, fewest bits first.
        node: Its first reader.
        scale_bytes: Bytes of a stored scale.
        packed: Whether it is stored in the order of MatMulNBits (`packed_weights.py`), which repeats a scale per
            channel for every block, and fills up rows of zero points to whole bytes.
        level: Index of the chosen format.
        energy: Relative energy of each channel that the product reads, if there is data.
    """

    value: ir.Value
    formats: tuple[Format, ...]
    node: ir.Node
    scale_bytes: int = 4
    packed: bool = False
    level: int = 0
    energy: np.ndarray | None = None
    _errors: dict[int, float] = field(default_factory=dict)

    @property
    def chosen(self) -> Format:
        """The chosen format."""
        return self.formats[self.level]

    def size(self, level: int) -> int:
        """Return the bytes of integers, scales and zero points in a format."""
        assert self.value.shape is not None, "a weight has a shape"
        format_, shape = self.formats[level], self.value.shape.numpy()
        scales, bits = math.prod(scale_shape(format_, shape)), format_.dtype.bitwidth
        zeros = (scales * bits + 7) // 8 if format_.scheme == "asymmetric" or format_.group is None else 0
        if self.packed and format_.axis is not None:
            inner = shape[format_.axis % len(shape) if format_.group is not None else 1 - format_.axis % len(shape)]
            rows = math.prod(shape) // inner
            blocks = inner // (format_.group or packed_block(inner))
            scales, zeros = rows * blocks, rows * math.ceil(blocks * bits / 8) if format_.scheme == "asymmetric" else 0
        return math.prod(shape) * bits // 8 + self.scale_bytes * scales + zeros

    def error(self, level: int) -> float:
        """Return the squared error of a sample of the weight in a format, relative to its squares; measured once.

        With energies of channels, squares count by these: that is the noise of the product, if channels do not
        correlate.
        """
        assert self.value.const_value is not None, "a weight is a constant"
        if level not in self._errors:
            self._errors[level] = _relative_error(self.value.const_value.numpy(), self.formats[level], self.energy)
        return self._errors[level]


def _relative_error(array: np.ndarray, format_: Format, energy: np.ndarray | None) -> float:
    """Return the relative squared error of a sample: rows of the scales' slabs, evenly spread."""
    assert format_.axis is not None, "weights have a scale per channel or block"
    axis = format_.axis % array.ndim
    others = [at for at in range(array.ndim) if at != axis]
    sums = axis if format_.group is not None else others[0]  # the axis of the channels that are read
    by = np.ones(array.shape[sums]) if energy is None or len(energy) != array.shape[sums] else energy
    if format_.group is None:
        # Whole channels, since a channel has one scale.
        kept = max(1, _SAMPLED // max(1, array.size // array.shape[axis]))
        array = np.take(array, _spread(array.shape[axis], kept), axis=axis)
    else:
        kept = max(1, _SAMPLED // max(1, array.shape[axis]))
        for other in others:  # some rows of some experts, where there are several
            some = _spread(array.shape[other], max(1, math.isqrt(kept)) if other != others[-1] else kept)
            array, kept = np.take(array, some, axis=other), max(1, kept // len(some))
    observer = (LeastSquares if format_.group is not None else MinMax)(format_)
    observer.update(array)
    parameters = observer.parameters()
    held = dequantize_array(quantize_array(array, format_, parameters), format_, parameters)
    exact = array.astype(np.float32)
    by = by.reshape([-1 if at == sums else 1 for at in range(array.ndim)])
    total = float((np.square(exact, dtype=np.float64) * by).sum())
    error = np.square(held - exact, dtype=np.float64) * by
    return float(error.sum()) / total if total else 0.0


def _spread(extent: int, count: int) -> np.ndarray:
    return np.unique(np.linspace(0, extent - 1, min(count, extent)).astype(int))


@dataclass(frozen=True)
class WeightBudget:
    """Analysis: the size that the request allows for the result.

    Attributes:
        limit: The size in bytes; None if none is requested.
        held: The bytes of all initializers of the model as it is, and of its graph.
        measure: Measures the energies of values on the data of the request; None if there is none.
    """

    limit: int | None
    held: int
    measure: Callable[[Sequence[ir.Value]], Mapping[ir.Value, np.ndarray]] | None = None

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> WeightBudget:
        """Read the request and add up what is written, without reading weights."""
        record = ctx.request.options.get(OPTION, {})
        limit = record.get(BYTES)
        if limit is None:
            return cls(None, 0)
        held = saved_size(model) + _PER_NODE * sum(1 for _ in model.nodes()) + record.get(RESERVED, 0)
        if ctx.request.data is None:
            return cls(limit, held)
        from dovetail_quantize import energies_of

        return cls(limit, held, lambda values: energies_of(model, values, ctx))

    def choose(self, groups: Sequence[Sequence[BudgetedWeight]], view: View) -> None:
        """Choose the formats of weights, one level per group; without a limit, the first format of each.

        Every group begins with its first format. The step to a later one that takes away most of the error for its
        bytes is made first; a group whose best step no longer fits stays as it is. The error is that of the weights,
        relative to their squares: noise that a product adds to its result, where its inputs are alike. With data,
        channels of inputs count by their energy.

        Raises:
            DovetailError: The limit is too small for the fewest bits.
        """
        weights = [weight for group in groups for weight in group]
        if self.limit is None or not weights:
            return
        floats = sum(_bytes(weight.value) for weight in weights)
        size = self.held - floats + sum(weight.size(0) for weight in weights)
        if size > self.limit:
            raise DovetailError(
                f"--max-size allows {self.limit:,} bytes, and the weights need {size:,} with the fewest bits",
                "allow more, or larger blocks (block=128)",
            )
        if self.measure is not None:
            products = {
                weight: weight.node.inputs[0] for weight in weights if weight.node.op_type in ("Gemm", "MatMul")
            }
            energies = self.measure([value for value in dict.fromkeys(products.values()) if value is not None])
            for weight, value in products.items():
                weight.energy = energies.get(value) if value is not None else None
            # The factors by which channels are made alike may become constants of the graph.
            size += sum(4 * len(energy) for energy in energies.values())
        steps = [step for index, group in enumerate(groups) if (step := _next_step(group, index))]
        heapq.heapify(steps)
        while steps:
            step = heapq.heappop(steps)
            if size + step.more > self.limit:
                continue
            size += step.more
            group = groups[step.group]
            for weight in group:
                weight.level = step.level
            if (following := _next_step(group, step.group)) is not None:
                heapq.heappush(steps, following)
        for weight in weights:
            if weight.level:
                why = f"'{weight.value.name}' has {weight.chosen}, because --max-size has room for it"
                view.remark("passed", weight.node, RULE, why)
        wide = sum(weight.level > 0 for weight in weights)
        why = f"{pluralize(wide, 'weight')} of {len(weights)} with more bits, {size:,} of {self.limit:,} bytes"
        view.remark("analysis", "", RULE, why, facts={RESULT: size, "allowed": self.limit})


class _Step(NamedTuple):
    """Further formats for the weights of a group; the least one takes away most error for its bytes.

    Attributes:
        gain: The negative error per byte that it takes away.
        group: Index of the group.
        level: Index of the formats.
        more: The bytes that it adds.
    """

    gain: float
    group: int
    level: int
    more: int


def _next_step(group: Sequence[BudgetedWeight], index: int) -> _Step | None:
    """Return the best step of a group from its formats to later ones; None if there are none."""
    level = group[0].level
    size, error = (sum(weight.size(level) for weight in group), sum(weight.error(level) for weight in group))
    steps = []
    for further in range(level + 1, min(len(weight.formats) for weight in group)):
        more = sum(weight.size(further) for weight in group) - size
        gain = error - sum(weight.error(further) for weight in group)
        steps.append(_Step(-gain / max(1, more), index, further, more))
    return min(steps, default=None)


def _bytes(value: ir.Value) -> int:
    return 0 if value.const_value is None else value.const_value.nbytes
