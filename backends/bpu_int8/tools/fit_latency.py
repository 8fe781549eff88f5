"""Fit the model of latency and memory traffic to the figures of the vendor's logs, and write its parameters.

    python backends/bpu_int8/tools/fit_latency.py

reads `latency_facts.yaml` beside it, prints predictions and errors of every net, with and without it in the fit, and
writes `latency.yaml` of the package. Traffic has two parameters: the size up to which a value stays on the chip, for
which every size that occurs is tried, and how often large matrices of attention move. Latency has two: multiply-adds
and bytes in a microsecond, by least squares on relative errors, neither below zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from dovetail_bpu_int8.vendor.latency import Rates, ddr_of, predict
from dovetail_bpu_int8.vendor.traffic import Traffic
from scipy.optimize import nnls

HERE = Path(__file__).parent
FACTS = HERE / "latency_facts.yaml"
WRITTEN = HERE.parent / "src" / "dovetail_bpu_int8" / "latency.yaml"
DEVICE = "X5 (bayes-e)"
HEAD = """\
# Parameters of predicted latency, by the option `march`. tools/fit_latency.py writes them from
# tools/latency_facts.yaml, which names their source. Of X3, Ultra and S100 no logs with figures are public.
"""


class Net(NamedTuple):
    """The figures of a log, in microseconds and bytes, and the work of the net."""

    latency: float
    ddr: int
    traffic: Traffic


def main() -> None:
    """Fit, print, and write."""
    nets = read_facts()
    rates = fit(nets)
    print(f"{'net':14}{'latency':>10}{'fitted':>10}{'left out':>10}{'DDR MB':>10}{'fitted':>10}{'left out':>10}")
    worst = [0.0, 0.0]
    for name, net in nets.items():
        rest = {other: nets[other] for other in nets if other != name}
        inside, outside = (predict({0: net.traffic}, one)[0] for one in (rates, fit(rest)))
        print(
            f"{name:14}{net.latency:10.0f}{inside.latency:10.0f}{outside.latency:10.0f}"
            f"{net.ddr / 1e6:10.1f}{inside.ddr / 1e6:10.1f}{outside.ddr / 1e6:10.1f}"
        )
        # What one net alone says cannot be left out: the report says so of such nets instead.
        if not inside.attention:
            errors = (abs(outside.latency / net.latency - 1), abs(outside.ddr / net.ddr - 1))
            worst = [max(pair) for pair in zip(worst, errors)]
    print(f"largest errors of nets that are left out: latency {worst[0]:.0%}, traffic {worst[1]:.0%}")
    WRITTEN.write_text(HEAD + yaml.safe_dump({"bayes": entry(rates, worst)}, sort_keys=False), encoding="utf-8")


def read_facts(path: Path = FACTS) -> dict[str, Net]:
    """The nets of a table of facts."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {name: Net(one["latency"], one["ddr"], Traffic.from_dict(one["traffic"])) for name, one in data.items()}


def fit(nets: Mapping[str, Net]) -> Rates:
    """The parameters with the least squares of relative errors."""
    sizes = sorted({size for net in nets.values() for size in (*net.traffic.held, *net.traffic.attention)})
    _, on_chip, attention = min(_traffic(nets, size) for size in sizes)
    rows = [
        (net.traffic.macs / net.latency, ddr_of(net.traffic, on_chip, attention) / net.latency) for net in nets.values()
    ]
    (per_mac, per_byte), _ = nnls(np.array(rows), np.ones(len(rows)))
    return Rates(DEVICE, on_chip, attention, 1 / per_mac if per_mac else np.inf, 1 / per_byte, len(nets), 0.0, 0.0)


def _traffic(nets: Mapping[str, Net], on_chip: int) -> tuple[float, int, float]:
    """Squares of relative errors of the traffic for one size, with the best factor of attention."""
    bare = np.array([ddr_of(net.traffic, on_chip, 0.0) / net.ddr for net in nets.values()])
    matrices = np.array([ddr_of(net.traffic, on_chip, 1.0) / net.ddr for net in nets.values()]) - bare
    factor = float(nnls(matrices[:, None], np.maximum(1 - bare, 0))[0][0]) if matrices.any() else 0.0
    return float(((bare + factor * matrices - 1) ** 2).sum()), on_chip, factor


def entry(rates: Rates, worst: list[float]) -> dict[str, object]:
    """The parameters as plain data, rounded."""
    return {
        "device": rates.device,
        "on_chip": rates.on_chip,
        "attention": round(rates.attention, 2),
        "macs": round(float(rates.macs)),
        "bytes": round(float(rates.bytes)),
        "nets": rates.nets,
        "latency_error": round(float(worst[0]), 2),
        "ddr_error": round(float(worst[1]), 2),
    }


if __name__ == "__main__":
    main()
