"""Predicted latency, frame rate and memory traffic of subgraphs, from a model fitted to the vendor's figures.

A subgraph moves its weights, inputs and outputs once; values larger than the on-chip memory are written out and read
back. Its time is the sum of multiply-adds and bytes, at one rate each. The rates are in `latency.yaml`, which
`tools/fit_latency.py` writes together with the error of the fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from dovetail_bpu_int8.vendor.traffic import Traffic


@dataclass(frozen=True)
class Rates:
    """Model parameters of a BPU.

    Attributes:
        device: The vendor's name for it.
        on_chip: Largest size in bytes of a value that stays on the chip.
        attention: How often each larger attention matrix moves, in addition to the traffic of other values.
        macs: Multiply-adds per microsecond.
        bytes: Bytes to or from memory per microsecond.
        nets: Number of nets in the fit.
        latency_error: Largest relative latency error in leave-one-out cross-validation.
        ddr_error: The same for memory traffic.
    """

    device: str
    on_chip: int
    attention: float
    macs: float
    bytes: float
    nets: int
    latency_error: float
    ddr_error: float


@dataclass(frozen=True)
class Prediction:
    """Prediction for a subgraph.

    Attributes:
        subgraph: `id(n)`.
        latency: Microseconds; None if an extent is unknown.
        ddr: Bytes from and to memory; None if an extent is unknown.
        attention: Whether it has attention matrices larger than the on-chip memory, whose cost is known from a single
            net.
    """

    subgraph: str
    latency: float | None = None
    ddr: int | None = None
    attention: bool = False

    @property
    def fps(self) -> float | None:
        """Frames per second of back-to-back runs with nothing else running."""
        return None if not self.latency else 1e6 / self.latency

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "fps": self.fps}

    def line(self) -> str:
        """Format the prediction as one line."""
        if self.latency is None or self.ddr is None or self.fps is None:
            return f"{self.subgraph}: not predicted, because extents of its values are not known"
        return (
            f"{self.subgraph}: {self.latency / 1000:.2f} ms, {self.fps:.1f} frames per second, {self.ddr / 1e6:.1f} MB "
            "from and to memory"
        )


@cache
def known_rates() -> Mapping[str, Rates]:
    """Return the parameters of all BPUs with known figures, by the option `march`."""
    text = resources.files("dovetail_bpu_int8").joinpath("latency.yaml").read_text(encoding="utf-8")
    return {march: Rates(**entry) for march, entry in yaml.safe_load(text).items()}


def ddr_of(traffic: Traffic, on_chip: float, attention: float) -> int:
    """Return the bytes from and to memory.

    Args:
        traffic: The work of a subgraph.
        on_chip: See `Rates`.
        attention: See `Rates`.
    """
    spilled = 2 * sum(size for size in traffic.held if size > on_chip)
    matrices = attention * sum(size for size in traffic.attention if size > on_chip)
    return round(traffic.weights + traffic.read + traffic.written + spilled + matrices)


def predict(traffic: Mapping[int, Traffic | None], rates: Rates) -> list[Prediction]:
    """Predict latency and traffic of every subgraph of a result."""
    found = []
    for number, one in traffic.items():
        if one is None:
            found.append(Prediction(f"id({number})"))
            continue
        moved = ddr_of(one, rates.on_chip, rates.attention)
        large = any(size > rates.on_chip for size in one.attention)
        found.append(Prediction(f"id({number})", one.macs / rates.macs + moved / rates.bytes, moved, large))
    return found


def caveats(predictions: list[Prediction], rates: Rates) -> list[str]:
    """Return sentences about the reliability of predictions."""
    said = [
        f"predicted for {rates.device} by a model of {rates.nets} nets in the vendor's logs; a net that is left out of "
        f"the fit is missed by up to {rates.latency_error:.0%} (memory traffic {rates.ddr_error:.0%}); what the CPU "
        "computes is not counted"
    ]
    if any(one.attention for one in predictions):
        said.append(
            f"matrices of attention of more than {rates.on_chip} bytes are in one net of those alone, so nothing "
            "checks what is predicted for them"
        )
    return said
