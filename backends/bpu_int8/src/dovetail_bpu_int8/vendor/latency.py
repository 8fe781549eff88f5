"""Predicted latency, frame rate and memory traffic of subgraphs, from a model fitted to the vendor's figures.

A subgraph moves its weights, inputs and outputs once. Of a value that is computed row by row, a part of what exceeds
the memory on the chip is written out and read back; large values that are read or written as a whole move each time.
Its time is the sum of multiply-adds, those of products of two computed operands once more, bytes, operators, and
elements of Softmaxes in 16 bits, at one rate each. The rates are in `latency.yaml`, which `tools/fit_latency.py` writes
together with the spread of nets that are left out of the fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from dovetail_bpu_int8.vendor.traffic import SubgraphTraffic


@dataclass(frozen=True)
class Rates:
    """Model parameters of a BPU.

    Attributes:
        device: The vendor's name for it.
        on_chip: Size in bytes up to which a value that is computed row by row stays on the chip.
        excess: How often the bytes above that move.
        large: Size in bytes above which a value that is read or written as a whole moves.
        whole: How often its bytes move, each time.
        macs: Multiply-adds per microsecond.
        matrices: Multiply-adds of products of two computed operands per microsecond, in addition to `macs`.
        bytes: Bytes to or from memory per microsecond.
        operators: Operators per microsecond.
        wide: Elements of a Softmax in 16 bits per microsecond, in addition to what one in 8 bits takes.
        nets: Number of nets in the fit.
        latency_spread: Smallest and largest ratio of the vendor's latency to a prediction that leaves out the net.
        ddr_spread: The same for memory traffic.
    """

    device: str
    on_chip: int
    excess: float
    large: int
    whole: float
    macs: float
    matrices: float
    bytes: float
    operators: float
    wide: float
    nets: int
    latency_spread: tuple[float, float]
    ddr_spread: tuple[float, float]


@dataclass(frozen=True)
class Prediction:
    """Prediction for a subgraph.

    Attributes:
        subgraph: `id(n)`.
        latency: Microseconds; None if an extent is unknown.
        ddr: Bytes from and to memory; None if an extent is unknown.
        latency_range: Microseconds that the spread of nets outside of the fit allows.
        ddr_range: Bytes that it allows.
    """

    subgraph: str
    latency: float | None = None
    ddr: int | None = None
    latency_range: tuple[float, float] | None = None
    ddr_range: tuple[int, int] | None = None

    @property
    def fps(self) -> float | None:
        """Frames per second of back-to-back runs with nothing else running."""
        return None if not self.latency else 1e6 / self.latency

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "fps": self.fps}

    def line(self) -> str:
        """Format the prediction as one line, each figure with its range."""
        if self.latency is None or self.latency_range is None or self.ddr is None or self.ddr_range is None:
            return f"{self.subgraph}: not predicted, because extents of its values are not known"
        fast, slow = self.latency_range
        least, most = self.ddr_range
        return (
            f"{self.subgraph}: {self.latency / 1000:.2f} ms ({fast / 1000:.2f} to {slow / 1000:.2f}), "
            f"{1e6 / self.latency:.1f} frames per second ({1e6 / slow:.1f} to {1e6 / fast:.1f}), "
            f"{self.ddr / 1e6:.1f} MB ({least / 1e6:.1f} to {most / 1e6:.1f}) from and to memory"
        )


@cache
def known_rates() -> Mapping[str, Rates]:
    """Return the parameters of all BPUs with known figures, by the option `march`."""
    text = resources.files("dovetail_bpu_int8").joinpath("latency.yaml").read_text(encoding="utf-8")
    return {march: _rates(entry) for march, entry in yaml.safe_load(text).items()}


def _rates(entry: dict[str, Any]) -> Rates:
    spreads = {name: tuple(entry[name]) for name in ("latency_spread", "ddr_spread")}
    return Rates(**{**entry, **spreads})


def ddr_parts(traffic: SubgraphTraffic, on_chip: float, large: float) -> tuple[int, float, int]:
    """Return the bytes that move once, those above what stays on the chip, and those of large whole values."""
    excess = sum(max(0, size - on_chip) for size in traffic.held)
    whole = sum(size for size in traffic.whole if size > large)
    return traffic.weights + traffic.read + traffic.written, excess, whole


def ddr_of(traffic: SubgraphTraffic, rates: Rates) -> int:
    """Return the bytes from and to memory."""
    once, excess, whole = ddr_parts(traffic, rates.on_chip, rates.large)
    return round(once + rates.excess * excess + rates.whole * whole)


def latency_of(traffic: SubgraphTraffic, rates: Rates) -> float:
    """Return the microseconds of a run."""
    work = traffic.macs / rates.macs + traffic.matrices / rates.matrices + traffic.operators / rates.operators
    return work + traffic.wide / rates.wide + ddr_of(traffic, rates) / rates.bytes


def predict(traffic: Mapping[int, SubgraphTraffic | None], rates: Rates) -> list[Prediction]:
    """Predict latency and traffic of every subgraph of a result."""
    found = []
    for number, one in traffic.items():
        if one is None:
            found.append(Prediction(f"id({number})"))
            continue
        moved, time = ddr_of(one, rates), latency_of(one, rates)
        (fast, slow), (least, most) = rates.latency_spread, rates.ddr_spread
        ranges = (time * fast, time * slow), (round(moved * least), round(moved * most))
        found.append(Prediction(f"id({number})", time, moved, *ranges))
    return found


def caveats(traffic: Mapping[int, SubgraphTraffic | None], rates: Rates) -> list[str]:
    """Return sentences about the reliability of predictions."""
    (fast, slow), (least, most) = rates.latency_spread, rates.ddr_spread
    said = [
        f"predicted for {rates.device} by a model of {rates.nets} nets in the vendor's logs; of nets that are left out "
        f"of the fit, the log's latency is {fast:.2f} to {slow:.2f} times the predicted one, and its memory traffic "
        f"{least:.2f} to {most:.2f} times, which gives the ranges; what the CPU computes is not counted"
    ]
    known = [one for one in traffic.values() if one is not None]
    if any(one.matrices / rates.matrices > latency_of(one, rates) / 2 for one in known):
        said.append(
            "most of this is products of two computed operands, about which the logs disagree: two exports of YOLO12n "
            "whose nodes differ in one Transpose of each attention have 35.6 and 18.4 ms, and 149.5 and 69.1 MB; the "
            "lower end of the ranges may be half as much"
        )
    return said
