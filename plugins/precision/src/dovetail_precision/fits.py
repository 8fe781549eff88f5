"""Whether a constant survives in a narrower type."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["LARGEST", "fits"]

LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}
# Larger constants are weights. Their range is checked while they are converted, where one pass over them is enough.
_LOOKED_AT = 65536  # elements


def fits(tensor: ir.TensorProtocol, name: str) -> bool:
    """Whether every finite value of `tensor` stays finite in float type `name`.

    bfloat16 has the range of float32 but for its last half step, where values are stored as the largest there is.
    """
    import numpy as np

    if name != "float16" or tensor.size > _LOOKED_AT:
        return True
    array = tensor.numpy().astype(np.float64)
    finite = np.abs(array[np.isfinite(array)])
    return not finite.size or float(finite.max()) <= LARGEST[name]
