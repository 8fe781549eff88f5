"""Histograms of 8-bit weights, read one weight at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError

from dovetail_report.collect.texts import short

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model

_SIGNED = {"INT8": True, "UINT8": False}
_SMALLEST = 64  # elements: zero points and shapes have fewer
MOST = 2000
"""Maximum histograms on a page."""
BINS = 64
"""Bars of a histogram; each counts four integers."""


def histograms(model: Model) -> list[dict[str, Any]]:
    """Return a row for each 8-bit weight: counts in 64 bins from the least integer on, levels used, share at the ends.

    The scales are those of the node that dequantizes the weight: the smallest, the largest, and their number.

    Raises:
        DovetailError: A weight cannot be read.
    """
    rows: list[dict[str, Any]] = []
    for name, value in model.graph.initializers.items():
        signed = _SIGNED.get(value.dtype.name) if value.dtype is not None else None
        tensor = value.const_value
        if signed is None or tensor is None or tensor.size < _SMALLEST or len(rows) == MOST:
            continue
        counts = _counts(name, tensor, signed)
        total = int(counts.sum())
        ends = counts[[0, 1, 255]].sum() if signed else counts[[0, 255]].sum()  # symmetric weights end at -127
        rows.append({
            "weight": short(name), "type": "int8" if signed else "uint8", "elements": total,
            "bins": counts.reshape(BINS, -1).sum(axis=1).tolist(), "levels": int((counts > 0).sum()),
            "ends": round(float(ends) / total, 4), **_scales(value),
        })  # fmt: skip
    return rows


def _counts(name: str, tensor: ir.TensorProtocol, signed: bool) -> np.ndarray:
    """Return how often each of the 256 integers occurs, the least first."""
    import numpy as np

    try:
        array = tensor.numpy()
    except (OSError, ValueError, TypeError) as error:
        raise DovetailError(
            f"weight '{name}' cannot be read: {error}", "compile again; the file of weights changed or is gone"
        ) from error
    offset = 128 if signed else 0
    return np.bincount((array.reshape(-1).view(np.uint8) + np.uint8(offset)), minlength=256)


def _scales(value: ir.Value) -> dict[str, Any]:
    for reader in value.consumers():
        if reader.op_type == "DequantizeLinear" and len(reader.inputs) > 1 and reader.inputs[1] is not None:
            scale = reader.inputs[1].const_value
            if scale is not None and 0 < scale.size <= 1 << 20:
                array = scale.numpy().astype("float64")
                return {"scale": float(array.min()), "largest": float(array.max()), "scales": int(array.size)}
    return {}
