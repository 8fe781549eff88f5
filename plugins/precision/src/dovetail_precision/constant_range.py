"""Whether a constant is representable in a narrower float type."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


LARGEST_FINITE = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}
# Values from here on are sentinels (no limit, or a masked attention score), not quantities. The largest finite values
# of float32 and bfloat16 are both above it.
SENTINEL = 3.38e38
# Half of float16's smallest subnormal: magnitudes up to here round to zero.
LARGEST_FLUSHED = 2.0**-25
# Larger constants are weights. Their range is checked while they are converted, which reads them anyway.
_MAX_ELEMENTS = 65536  # elements


def fits(tensor: ir.TensorProtocol, name: str) -> bool:
    """Whether the finite values of `tensor` stay finite in float type `name`, and not all of them round to zero.

    Always true for bfloat16: it has the range of float32, and values in its last half step are clamped.
    """
    return not misfit(tensor, name)


def magnitude_fits(magnitude: float, name: str) -> bool:
    """Whether a constant with this largest magnitude fits, whatever its other elements are. False for NaN."""
    return LARGEST_FLUSHED < magnitude <= LARGEST_FINITE[name]


def misfit(tensor: ir.TensorProtocol, name: str) -> str:
    """Return why `tensor` does not fit float type `name`, with its largest magnitude; empty if it fits.

    A constant that rounds to zero entirely is an epsilon and does not fit; single elements may round to zero. Sentinels
    such as +-FLT_MAX fit: they are clamped to the narrower type.
    """

    if name != "float16" or tensor.size > _MAX_ELEMENTS:
        return ""
    array = tensor.numpy()
    if array.size and magnitude_fits(max(array.max(), -array.min()), name):
        return ""
    largest = largest_magnitude(tensor)
    if largest > LARGEST_FINITE[name]:
        return f"reaches {largest:.4g}, beyond the {LARGEST_FINITE[name]:.0f} of {name}"
    if 0 < largest <= LARGEST_FLUSHED:
        return f"is at most {largest:.4g}, which rounds to zero in {name}"
    return ""


def largest_magnitude(tensor: ir.TensorProtocol) -> float:
    """Return the largest finite magnitude in `tensor` that is no sentinel; 0 for tensors above 65536 elements."""
    import numpy as np

    if tensor.size > _MAX_ELEMENTS or tensor.dtype.numpy().kind != "f":
        return 0.0
    array = np.abs(tensor.numpy().astype(np.float64))
    array = array[array < SENTINEL]
    return float(array.max()) if array.size else 0.0
