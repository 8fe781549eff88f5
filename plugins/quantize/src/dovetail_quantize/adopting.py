"""Parameters that a source model has already: as they are where its format is that of the plan, else their range."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir.required import dtype_of
from dovetail.planning.holdings import Parameters
from dovetail_precision.source_quantisation import QdqNode, dequantising, quantising

from dovetail_quantize.integers import parameters_of_range
from dovetail_quantize.slices import number_of_scales

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.formats import Format
    from dovetail_precision.held import Held


def repeated(parameters: Parameters, format_: Format, shape: ir.Shape | None) -> Parameters:
    """One scale of the source model as the several equal ones of a format; others stay as they are."""
    if format_.axis is None or len(parameters.scale) != 1:
        return parameters
    number = number_of_scales(format_, shape)
    return Parameters(parameters.scale * number, parameters.zero_point * number)


def is_adopted(qdq: QdqNode | None, format_: Format, parameters: Parameters, shape: ir.Shape | None) -> bool:
    """Whether a conversion of the source model gives the integers of a holding.

    Scales that are products may differ in the last digits, as they were multiplied in another order.
    """
    if qdq is None or not qdq.fits(format_):
        return False
    own = repeated(qdq.parameters, format_, shape)
    return own.zero_point == parameters.zero_point and np.allclose(own.scale, parameters.scale, rtol=1e-5, atol=0)


def range_of_source(leaders: Iterable[Held]) -> Parameters | None:
    """Parameters that cover what the integers of the source model can express; None if some value has none there.

    Numbers beyond that range do not occur, so it needs no data.
    """
    low, high, format_ = np.inf, -np.inf, None
    for held in leaders:
        qdq = dequantising(held.value)
        if qdq is None and len(held.value.uses()) == 1:
            qdq = next(quantising(held.value), None)
        if qdq is None or held.format.axis is not None or qdq.axis is not None:
            return None
        smallest, largest = _bounds(qdq)
        low, high, format_ = min(low, smallest), max(high, largest), held.format
    return parameters_of_range(format_, np.float64(low), np.float64(high)) if format_ is not None else None


def _bounds(qdq: QdqNode) -> tuple[float, float]:
    bits = dtype_of(qdq.integers).bitwidth
    smallest = 0 if qdq.element.startswith("u") else -(1 << (bits - 1))
    (scale,), (zero,) = qdq.parameters
    return (smallest - zero) * scale, (smallest + (1 << bits) - 1 - zero) * scale
