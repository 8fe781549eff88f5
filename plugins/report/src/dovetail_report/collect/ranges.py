"""Measured ranges of values, and the ranges of their formats; errors of layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dovetail.planning import parse_quantized_values

from dovetail_report.collect.files import json_file
from dovetail_report.collect.texts import short

if TYPE_CHECKING:
    from dovetail.planning import Parameters, Plan, QuantizedValue
    from dovetail.plugin import CompiledModel

RANGES = "ranges.json"


def ranges(compiled: CompiledModel) -> list[dict[str, Any]]:
    """Return a row for each value with a measured range: min, max, smallest magnitude, and its quantized format.

    Of a quantized value also `low` and `high`, the interval that its integers cover, and `clipped`, the share of the
    measured range outside of it.
    """
    held = {value.value: value for value in _quantized(compiled.plan) if value.format.axis is None}
    rows = []
    for name, found in json_file(compiled, RANGES).items():
        if not isinstance(found, Mapping) or not all(_is_finite(found.get(key)) for key in ("min", "max")):
            continue
        row: dict[str, Any] = {"value": short(name), "min": found["min"], "max": found["max"]}
        if _is_finite(found.get("smallest")):
            row["smallest"] = found["smallest"]
        quantized = held.get(name)
        if quantized is not None and quantized.parameters is not None and len(quantized.parameters.scale) == 1:
            row |= _interval(quantized, quantized.parameters, found["min"], found["max"])
        rows.append(row)
    return rows


def _interval(value: QuantizedValue, parameters: Parameters, least: float, most: float) -> dict[str, Any]:
    (scale, *_), (zero, *_) = parameters
    bounds = _integers(value)
    if bounds is None:
        return {"format": str(value.format), "scale": scale}
    low, high = ((bound - zero) * scale for bound in bounds)
    outside = max(0.0, low - least) + max(0.0, most - high)
    return {"format": str(value.format), "scale": scale, "zero_point": zero, "low": low, "high": high,
            "clipped": round(outside / (most - least), 4) if most > least else 0.0}  # fmt: skip


def _integers(value: QuantizedValue) -> tuple[int, int] | None:
    kind = str(value.format).partition("[")[0]
    sign, _, bits = kind.partition("int")
    if not bits.isdigit() or int(bits) > 16:
        return None
    return (0, 2 ** int(bits) - 1) if sign == "u" else (-(2 ** (int(bits) - 1)), 2 ** (int(bits) - 1) - 1)


def scales(plan: Plan) -> list[dict[str, Any]]:
    """Return a row for each quantized value: format, sharing group, source and scales."""
    rows = []
    for value in _quantized(plan):
        row: dict[str, Any] = {"value": short(value.value), "format": str(value.format), "group": short(value.group),
               "source": short(value.source), "readers": short(", ".join(value.readers))}  # fmt: skip
        if value.parameters is not None:
            row |= {"scale": min(value.parameters.scale), "largest": max(value.parameters.scale),
                    "scales": len(value.parameters.scale)}  # fmt: skip
        rows.append(row)
    return rows


def _quantized(plan: Plan) -> list[QuantizedValue]:
    return parse_quantized_values(plan.values) if plan.values else []


def layers(plan: Plan) -> list[dict[str, Any]]:
    """Return the errors of the layers that `compile --layers` measured: SNR alone and with what has accumulated."""
    rows = []
    for remark in plan.remarks:
        facts = remark.facts
        if remark.pass_ == "layers" and remark.rule == "layer-error" and not remark.because and facts:
            row: dict[str, Any] = {"node": short(remark.node)}
            for key in ("alone", "accumulated"):
                figures = facts.get(key)
                if isinstance(figures, Mapping):
                    row[key] = _number(figures.get("snr_db"))
                    row[f"{key} cosine"] = _number(figures.get("cosine"))
            row["at outputs"] = _number(facts.get("at_outputs_snr_db"))
            rows.append({key: value for key, value in row.items() if value is not None})
    return rows


def _number(value: Any) -> float | None:
    return float(value) if _is_finite(value) else None


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
