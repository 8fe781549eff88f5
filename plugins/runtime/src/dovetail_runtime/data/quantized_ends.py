"""Inputs and outputs that a result has in integers where its original has floats, such as caches of keys and values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model

SCALE_KEY = "dovetail.scale"
"""Key of metadata of an input or an output: the name of a constant with its scales, which broadcast against it."""


def quantized_inputs(model: Model, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return floats as the integers that inputs of `model` take; others are returned unchanged."""
    scales = _scales(model, model.graph.inputs)
    return {
        name: _integers(array, *scales[name]) if name in scales and array.dtype.kind == "f" else array
        for name, array in feeds.items()
    }


def dequantized_outputs(model: Model, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return integers of outputs of `model` as the floats that they represent; others are returned unchanged."""
    scales = _scales(model, model.graph.outputs)
    return {
        name: array.astype(np.float32) * scales[name][0] if name in scales else array for name, array in outputs.items()
    }


def _scales(model: Model, values: Iterable[ir.Value]) -> dict[str, tuple[np.ndarray, np.dtype]]:
    found = {}
    for value in values:
        constant = model.graph.initializers.get(value.metadata_props.get(SCALE_KEY, ""))
        if constant is not None and constant.const_value is not None and value.dtype is not None:
            found[value.name or ""] = constant.const_value.numpy(), value.dtype.numpy()
    return found


def _integers(array: np.ndarray, scale: np.ndarray, kind: np.dtype) -> np.ndarray:
    bounds = np.iinfo(kind)
    return np.clip(np.rint(array / scale), bounds.min, bounds.max).astype(kind)
