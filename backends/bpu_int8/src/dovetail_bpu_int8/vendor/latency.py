"""Predicted latency, frames per second and memory traffic of subgraphs, by a model fitted to the vendor's figures.

A subgraph moves its weights, what it reads and what it gives once; values that are larger than the memory on the chip
leave it and come back. Its time is that of its multiply-adds and that of its bytes, at one rate each. The rates are in
`latency.yaml`, which `tools/fit_latency.py` writes together with the error of the fit.
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
    """The parameters of a BPU.

    Attributes:
        device: The vendor's name of it.
        on_chip: Bytes that a value may have to stay on the chip.
        attention: How often each matrix of attention that is larger than that moves, beside what other values do.
        macs: Multiply-adds in a microsecond.
        bytes: Bytes to or from memory in a microsecond.
        nets: The number of nets to whose figures these were fitted.
        latency_error: The largest error of a latency, as a share of it, of a net that was left out of the fit.
        ddr_error: The same of the traffic.
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
    """What a subgraph takes.

    Attributes:
        subgraph: `id(n)`.
        latency: Microseconds; None where an extent of it is not known.
        ddr: Bytes from and to memory; None where an extent is not known.
        attention: Whether it has matrices of attention that are larger than the memory on the chip: the cost of those
            is known from one net alone.
    """

    subgraph: str
    latency: float | None = None
    ddr: int | None = None
    attention: bool = False

    @property
    def fps(self) -> float | None:
        """Frames per second, where one follows another and nothing else runs."""
        return None if not self.latency else 1e6 / self.latency

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "fps": self.fps}

    def line(self) -> str:
        """The prediction as one line."""
        if self.latency is None or self.ddr is None or self.fps is None:
            return f"{self.subgraph}: not predicted, because extents of its values are not known"
        return (
            f"{self.subgraph}: {self.latency / 1000:.2f} ms, {self.fps:.1f} frames per second, {self.ddr / 1e6:.1f} MB "
            "from and to memory"
        )


@cache
def known_rates() -> Mapping[str, Rates]:
    """The parameters of all BPUs of which there are figures, by the option `march`."""
    text = resources.files("dovetail_bpu_int8").joinpath("latency.yaml").read_text(encoding="utf-8")
    return {march: Rates(**entry) for march, entry in yaml.safe_load(text).items()}


def ddr_of(traffic: Traffic, on_chip: float, attention: float) -> int:
    """Bytes from and to memory.

    Args:
        traffic: The work of a subgraph.
        on_chip: See `Rates`.
        attention: See `Rates`.
    """
    spilled = 2 * sum(size for size in traffic.held if size > on_chip)
    matrices = attention * sum(size for size in traffic.attention if size > on_chip)
    return round(traffic.weights + traffic.read + traffic.written + spilled + matrices)


def predict(traffic: Mapping[int, Traffic | None], rates: Rates) -> list[Prediction]:
    """Predict every subgraph of a result."""
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
    """How far predictions can be trusted, as sentences."""
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
