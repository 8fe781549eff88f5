"""Values that callers feed, as engines take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from dovetail_runtime.texts import as_texts


def as_read_natively(feed: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert arrays that ONNX Runtime misreads: those of another byte order, and bytes for texts."""
    misread = {
        name: converted
        for name, value in feed.items()
        if isinstance(value, np.ndarray) and (converted := _converted(value, name)) is not value
    }
    return {**feed, **misread} if misread else feed


def _converted(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind in "SO":
        return as_texts(array, name)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def as_arrays(feed: Mapping[str, Any]) -> dict[str, Any]:
    """Replace values of ONNX Runtime by the arrays in them."""
    return {name: value.numpy() if _is_ort_value(value) else value for name, value in feed.items()}


def _is_ort_value(value: object) -> bool:
    return type(value).__name__ == "OrtValue" and type(value).__module__.startswith("onnxruntime")
