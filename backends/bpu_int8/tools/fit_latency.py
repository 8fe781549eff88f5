"""Fit the model of latency and memory traffic to the figures of the vendor's logs, and write its parameters.

    python backends/bpu_int8/tools/fit_latency.py

reads `latency_facts.yaml` beside it, prints predictions of every net, with and without it in the fit, and writes
`latency.yaml` of the package. Traffic has four parameters: sizes up to which values that are computed row by row, and
values that move as a whole, stay on the chip, for which a grid is tried, and how often what is larger moves. Latency
has five: multiply-adds, those of products of two computed operands, bytes, operators and elements of Softmaxes in 16
bits in a microsecond. All are found by least squares on relative errors, none below zero. A net that is left out is
left out of all of them.

    python backends/bpu_int8/tools/fit_latency.py --facts NET=RESULT LOG ...

prints the facts of results (folders, compiled with `arithmetic=floats`) and logs, for `latency_facts.yaml`.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from dovetail import api
from dovetail_bpu_int8.vendor.latency import Rates, ddr_of, ddr_parts, latency_of
from dovetail_bpu_int8.vendor.traffic import SubgraphTraffic, traffic_of
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
    traffic: SubgraphTraffic
    disputes: str = ""  # the net with the same nodes and other figures


ON_CHIP = tuple(range(300_000, 2_100_000, 100_000))
LARGE = (300_000, 500_000, 700_000, 1_000_000, 1_200_000)


def main() -> None:
    """Fit, print, and write; or print facts."""
    if sys.argv[1:2] == ["--facts"]:
        print_facts(sys.argv[2:])
        return
    every = read_facts()
    nets = in_fit(every)
    rates = fit(nets)
    left_out = list(outside(nets))
    print(f"{'net':20}{'latency':>10}{'fitted':>10}{'left out':>10}{'DDR MB':>10}{'fitted':>10}{'left out':>10}")
    for (name, net), (latency, ddr) in zip(nets.items(), left_out, strict=True):
        print(
            f"{name:20}{net.latency:10.0f}{latency_of(net.traffic, rates):10.0f}{latency:10.0f}"
            f"{net.ddr / 1e6:10.1f}{ddr_of(net.traffic, rates) / 1e6:10.1f}{ddr / 1e6:10.1f}"
        )
    for name, net in every.items():
        if net.disputes:
            latency, ddr = latency_of(net.traffic, rates), ddr_of(net.traffic, rates) / 1e6
            print(f"{name:20}{net.latency:10.0f}{'':10}{latency:10.0f}{net.ddr / 1e6:10.1f}{'':10}{ddr:10.1f}")
    written = entry(rates, spreads(nets, left_out))
    print({name: written[name] for name in ("latency_spread", "ddr_spread")})
    text = yaml.safe_dump({"bayes": written}, sort_keys=False, default_flow_style=None)
    WRITTEN.write_text(HEAD + text, encoding="utf-8")


def print_facts(arguments: list[str]) -> None:
    """Print the facts of results and logs, given as `NET=RESULT LOG` pairs."""
    for named, log in zip(arguments[::2], arguments[1::2], strict=True):
        name, _, folder = named.partition("=")
        latency, ddr = re.findall(r"latency = ([0-9.]+) us, DDR = ([0-9]+) bytes", Path(log).read_text())[-1]
        (traffic,) = traffic_of(api.load(folder)).values()
        assert traffic is not None, f"{name} has open extents"
        facts = {"latency": float(latency), "ddr": int(ddr), "traffic": traffic.as_dict()}
        print(yaml.safe_dump({name: facts}, sort_keys=False, default_flow_style=None, width=120), end="")


def read_facts(path: Path = FACTS) -> dict[str, Net]:
    """The nets of a table of facts."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {
        name: Net(one["latency"], one["ddr"], SubgraphTraffic.from_dict(one["traffic"]), one.get("disputes", ""))
        for name, one in data.items()
    }


def in_fit(nets: Mapping[str, Net]) -> dict[str, Net]:
    """The nets without those that dispute another one: one work cannot have two times."""
    return {name: net for name, net in nets.items() if not net.disputes}


def fit(nets: Mapping[str, Net]) -> Rates:
    """The parameters with the least squares of relative errors."""
    _, on_chip, large, (excess, whole) = min(_traffic(nets, *sizes) for sizes in itertools.product(ON_CHIP, LARGE))
    rates = Rates(DEVICE, on_chip, excess, large, whole, 0, 0, 0, 0, 0, len(nets), (1.0, 1.0), (1.0, 1.0))
    work = [
        (one.traffic.macs, one.traffic.matrices, ddr_of(one.traffic, rates), one.traffic.operators, one.traffic.wide)
        for one in nets.values()
    ]
    rows = np.array(work) / np.array([[net.latency] for net in nets.values()])
    times, _ = nnls(rows, np.ones(len(rows)))
    per = [1 / time if time else np.inf for time in times]
    return Rates(DEVICE, on_chip, excess, large, whole, *per, len(nets), (1.0, 1.0), (1.0, 1.0))


def _traffic(nets: Mapping[str, Net], on_chip: int, large: int) -> tuple[float, int, int, tuple[float, float]]:
    """Squares of relative errors of the traffic for two sizes, and how often larger values move."""
    parts = np.array([ddr_parts(net.traffic, on_chip, large) for net in nets.values()], float)
    parts /= np.array([[net.ddr] for net in nets.values()])
    (excess, whole), error = nnls(parts[:, 1:], 1 - parts[:, 0])
    return float(error**2), on_chip, large, (float(excess), float(whole))


def outside(nets: Mapping[str, Net]) -> Iterator[tuple[float, int]]:
    """Latency and traffic of every net, as predicted from all others."""
    for name, net in nets.items():
        rates = fit({other: nets[other] for other in nets if other != name})
        yield latency_of(net.traffic, rates), ddr_of(net.traffic, rates)


def spreads(nets: Mapping[str, Net], left_out: list[tuple[float, int]]) -> list[list[float]]:
    """Smallest and largest ratio of logged to predicted figures, of latency and of traffic, rounded outward."""
    ratios = np.array([(net.latency / one[0], net.ddr / one[1]) for net, one in zip(nets.values(), left_out)])
    low, high = np.floor(ratios.min(0) * 100) / 100, np.ceil(ratios.max(0) * 100) / 100
    return [[float(low[at]), float(high[at])] for at in (0, 1)]


def entry(rates: Rates, spread: list[list[float]]) -> dict[str, object]:
    """The parameters as plain data, rounded."""
    return {
        "device": rates.device,
        "on_chip": rates.on_chip,
        "excess": round(rates.excess, 3),
        "large": rates.large,
        "whole": round(rates.whole, 3),
        "macs": round(float(rates.macs)),
        "matrices": round(float(rates.matrices)),
        "bytes": round(float(rates.bytes)),
        "operators": round(float(rates.operators), 4),
        "wide": round(float(rates.wide), 1),
        "nets": rates.nets,
        "latency_spread": spread[0],
        "ddr_spread": spread[1],
    }


if __name__ == "__main__":
    main()
