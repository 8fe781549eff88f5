"""Whether a constant survives in a narrower type."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["SENTINEL", "LARGEST_FINITE", "LARGEST_FLUSHED", "fits", "magnitude_fits", "largest_magnitude", "misfit"]

LARGEST_FINITE = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}
# From here on a value is no quantity: it says "no limit", or "never" as in the mask of an attention. The ends of
# float32 and bfloat16 both do.
SENTINEL = 3.38e38
# Half of float16's smallest subnormal: up to here everything rounds to zero.
LARGEST_FLUSHED = 2.0**-25
# Larger constants are weights. Their range is checked while they are converted, where one pass over them is enough.
_MAX_ELEMENTS = 65536  # elements


def fits(tensor: ir.TensorProtocol, name: str) -> bool:
    """Whether every finite value of `tensor` stays finite in float type `name`, and not everything becomes zero.

    bfloat16 has the range of float32 but for its last half step, where values are stored as the largest there is.
    """
    return not misfit(tensor, name)


def magnitude_fits(magnitude: float, name: str) -> bool:
    """Whether a constant with this largest magnitude fits whatever its elements are; nearly always. NaN does not."""
    return LARGEST_FLUSHED < magnitude <= LARGEST_FINITE[name]


def misfit(tensor: ir.TensorProtocol, name: str) -> str:
    """What is wrong with `tensor` in float type `name`, with its largest magnitude; empty if it fits.

    A constant that becomes zero as a whole is an epsilon. Weights may lose single values to zero. Values at the end of
    float32 become the end of the other type, or near it.
    """

    if name != "float16" or tensor.size > _MAX_ELEMENTS:
        return ""
    array = tensor.numpy()
    if array.size and magnitude_fits(max(array.max(), -array.min()), name):
        return ""
    largest = largest_magnitude(tensor)
    if largest > LARGEST_FINITE[name]:
        return f"reaches {largest:.4g}, and {name} ends at {LARGEST_FINITE[name]:.0f}"
    if 0 < largest <= LARGEST_FLUSHED:
        return f"is at most {largest:.4g}, which {name} takes for zero"
    return ""


def largest_magnitude(tensor: ir.TensorProtocol) -> float:
    """The largest magnitude in `tensor` that is neither the end of a type nor an infinity or NaN; 0 for weights."""
    import numpy as np

    if tensor.size > _MAX_ELEMENTS or tensor.dtype.numpy().kind != "f":
        return 0.0
    array = np.abs(tensor.numpy().astype(np.float64))
    array = array[array < SENTINEL]
    return float(array.max()) if array.size else 0.0
