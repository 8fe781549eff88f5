"""Float32 values of constants that were rounded, for engines that accumulate in float32.

An engine that adds a bias in float32 to a bfloat16 product loses precision if the bias was rounded, but ONNX requires
one type for both. So the graph has the rounded constant, valid for every tool, and the float32 elements are in the
`metadata_props` of its value.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from dovetail.ir import constant_of

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model


_KEY = "dovetail.float32"


def keep_exact(value: ir.Value, array: np.ndarray) -> None:
    """Store the elements of `array` (float32, same shape) in the metadata of the rounded constant `value`."""
    data = array.astype("<f4").tobytes()
    value.metadata_props[_KEY] = base64.b64encode(data).decode("ascii")


def exact_floats(model: Model) -> dict[str, np.ndarray]:
    """Return the stored float32 constants of `model` and its bodies, flattened, by name.

    A constant whose stored elements do not round to those in the graph was edited since, and is left out.
    """
    found = {}
    for _, graph in model.graphs():
        for name, value in graph.initializers.items():
            text = value.metadata_props.get(_KEY)
            array = _decoded(text, value) if text is not None and value.const_value is not None else None
            if array is not None:
                found[name] = array
    return found


def _decoded(text: str, value: ir.Value) -> np.ndarray | None:
    import numpy as np

    try:
        array = np.frombuffer(base64.b64decode(text, validate=True), "<f4")
    except (binascii.Error, ValueError):
        return None
    stored = constant_of(value).numpy().reshape(-1)
    if array.size != stored.size or not np.array_equal(array.astype(stored.dtype), stored):
        return None
    return array
