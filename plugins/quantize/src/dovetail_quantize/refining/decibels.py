"""Signal to noise, in decibels."""

from __future__ import annotations

import math


def decibels(signal: float, error: float) -> float:
    """The ratio of two energies in dB: infinite without an error, minus infinite with nothing but errors."""
    if error <= 0:
        return math.inf
    return 10 * math.log10(signal / error) if signal > 0 else -math.inf
