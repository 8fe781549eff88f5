"""Values that callers feed, as engines take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def in_native_order(feed: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert arrays of another byte order, which ONNX Runtime reads as if they were of this one."""
    foreign = [name for name, value in feed.items() if isinstance(value, np.ndarray) and not value.dtype.isnative]
    if not foreign:
        return feed
    return {**feed, **{name: feed[name].astype(feed[name].dtype.newbyteorder("=")) for name in foreign}}


def as_arrays(feed: Mapping[str, Any]) -> dict[str, Any]:
    """Replace values of ONNX Runtime by the arrays in them."""
    return {name: value.numpy() if _is_ort_value(value) else value for name, value in feed.items()}


def _is_ort_value(value: object) -> bool:
    return type(value).__name__ == "OrtValue" and type(value).__module__.startswith("onnxruntime")
