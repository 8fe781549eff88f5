"""Linters for numbers: errors of layers, scales that do not fit their range, and weights that use few integers."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail_report.linters.finding import Finding, Subject

_NOISY = 20.0  # dB
_CLIPPED = 0.3
_WIDE = 8.0  # times the measured range
_FEW_LEVELS = 16
_SHOWN = 20


def noisy_layers(subject: Subject) -> Iterator[Finding]:
    """Find layers whose own error is above a hundredth of their output."""
    noisy = [row for row in subject.layers if row.get("alone", _NOISY) < _NOISY]
    for row in sorted(noisy, key=lambda row: row["alone"])[:_SHOWN]:
        node = subject.graph.index.get(row["node"])
        text = f"'{row['node']}' alone has an SNR of {row['alone']:.1f} dB"
        advice = f"compute it in a higher precision: --high '{row['node']}'"
        yield Finding("noisy-layer", "warning", text, () if node is None else (node,), advice)


def ill_fitting_scales(subject: Subject) -> Iterator[Finding]:
    """Find values that are clipped by much, and values that use a small part of their integers."""
    for row in [row for row in subject.ranges if "low" in row][:10_000]:
        span, held = row["max"] - row["min"], row["high"] - row["low"]
        if row["clipped"] > _CLIPPED:
            text = f"{100 * row['clipped']:.0f} % of the measured range of '{row['value']}' is clipped"
            yield Finding("clipped", "note", text, advice="look at its observer: outliers may be meant to be clipped")
        elif 0 < span * _WIDE < held:
            text = f"'{row['value']}' uses {100 * span / held:.0f} % of the interval that its integers hold"
            yield Finding("wide-scale", "note", text, advice="it shares its scale with a wider value, or has no data")


def few_levels(subject: Subject) -> Iterator[Finding]:
    """Find weights that use few of the 256 integers."""
    for row in subject.histograms:
        if row["levels"] <= _FEW_LEVELS and row["elements"] > 8 * _FEW_LEVELS:
            text = f"weight '{row['weight']}' uses {row['levels']} of 256 integers"
            yield Finding("few-levels", "note", text, advice="one outlier may stretch its scale; scales per axis help")
