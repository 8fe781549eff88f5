"""Predicted latency and memory traffic: what is counted, and how far from the vendor's figures it is."""

import sys
from dataclasses import replace
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail_bpu_int8.vendor.latency import Rates, caveats, ddr_of, known_rates, predict
from dovetail_bpu_int8.vendor.traffic import SubgraphTraffic, traffic_of

from .vendor_files import model_of

TOOLS = Path(__file__).parents[3] / "backends" / "bpu_int8" / "tools"
sys.path.insert(0, str(TOOLS))
from fit_latency import entry, fit, in_fit, outside, read_facts, spreads  # noqa: E402 - a tool, which no distribution has

RATES = known_rates()["bayes"]
EVERY = read_facts()
NETS = in_fit(EVERY)
PIXELS = 16 * 16

HEAD = """(float[1,8,16,16] x) => (float[1,8,16,16] y)
  <float[8,8,3,3] w, float[8,8,1,1] v, float[8] b, int64[4] shape = {1, 8, 16, 16}> """


def traffic(body, extents=(1, 8, 16, 16), head=HEAD):
    data = [{"x": np.random.default_rng(0).standard_normal(extents).astype(np.float32)}]
    options = {"data": data, "verify": False, "refine": "none"}  # a corrected bias would count where there was none
    return traffic_of(dovetail.compile(model_of(body, head), "bpu-int8:march=bayes,arithmetic=floats", **options))


def test_work_of_a_convolution_with_its_activation():
    """The activation lies where the sums are; the last value leaves in 32 bits."""
    body = """{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b) [act] r = Relu (a)  [two] y = Conv (r, v) }"""
    assert traffic(body) == {
        0: SubgraphTraffic(
            macs=8 * PIXELS * 8 * 9 + 8 * PIXELS * 8,
            matrices=0,
            operators=3,
            wide=0,
            weights=8 * 8 * 9 + 4 * 8 + 8 * 8,
            read=8 * PIXELS,
            written=4 * 16 * PIXELS,  # channels of outputs are padded to 16
            held=(8 * PIXELS,),
        )
    }


def test_a_gate_and_what_it_gates_lie_in_one_place():
    """SiLU is one table on the BPU, and what moves numbers makes none."""
    body = """{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b) [s] g = Sigmoid (a) [m] r = Mul (a, g)
      [t] q = Reshape (r, shape) [two] y = Conv (q, v) }"""
    assert traffic(body)[0].held == (8 * PIXELS,)


def test_products_of_two_computed_operands_move_whole_values():
    """So do operators between them, and a Softmax is several operators, as in the vendor's logs."""
    body = """{ [one] a = Conv (x, v) [turn] t = Transpose <perm = [0,1,3,2]> (a) [qk] m = MatMul (a, t)
      [less] s = Sub (m, a) [pv] p = MatMul (s, a) [two] y = Conv (p, v) }"""
    found = traffic(body)[0]
    size = 8 * PIXELS
    assert found.matrices == 2 * size * 16
    assert found.whole == (size,) * (2 + 3 + 3 + 3)
    assert (found.held, found.operators) == ((size,), 6)


def test_a_softmax_is_several_operators():
    body = "{ [one] a = Conv (x, v) [soft] p = Softmax <axis = 3> (a) [two] y = Conv (p, v) }"
    data = [{"x": np.random.default_rng(0).standard_normal((1, 8, 16, 16)).astype(np.float32)}]
    result = dovetail.compile(
        model_of(body, HEAD), "bpu-int8:march=bayes,arithmetic=floats", data=data, verify=False, pins=["soft=bpu-int8"]
    )
    (found,) = traffic_of(result).values()
    assert (found.operators, found.whole, found.wide) == (1 + 6 + 1, (8 * PIXELS,) * 8, 0)


@pytest.mark.parametrize("format_", ["input:int16[symmetric]", "int16[symmetric]"])
def test_a_softmax_in_16_bits_takes_more_than_one_in_8(format_):
    """The vendor computes it by two tables; what it reads and writes has two bytes."""
    body = """{ [one] a = Conv (x, v) [unit] m = Mul (a, half) [soft] p = Softmax <axis = 3> (m)
      [again] n = Mul (p, half) [two] y = Conv (n, v) }"""
    head = HEAD.replace("float[8] b", "float half = {0.5}, float[8] b")
    data = [{"x": np.random.default_rng(0).standard_normal((1, 8, 16, 16)).astype(np.float32)}]
    backend, pins = "bpu-int8:march=bayes,arithmetic=floats", [f"soft=bpu-int8/{format_}"]
    result = dovetail.compile(model_of(body, head), backend, data=data, verify=False, pins=pins)
    (found,) = traffic_of(result).values()
    assert (found.wide, found.whole[:8]) == (8 * PIXELS, (2 * 8 * PIXELS,) * 8)
    (narrow,) = predict({0: replace(found, wide=0)}, RATES)
    (wide,) = predict({0: found}, RATES)
    assert wide.latency - narrow.latency == pytest.approx(8 * PIXELS / RATES.wide)


def rates(**given):
    spread = {"latency_spread": (0.5, 2.0), "ddr_spread": (0.9, 1.1)}
    speed = {"macs": 1.0, "matrices": 1.0, "bytes": 1.0, "operators": 1.0, "wide": 1.0}
    return Rates(
        "a device", **{"on_chip": 50, "excess": 3, "large": 40, "whole": 2, "nets": 1, **speed, **spread, **given}
    )


def test_what_does_not_stay_on_the_chip_moves():
    once = {"macs": 0, "matrices": 0, "operators": 0, "wide": 0, "weights": 10, "read": 100, "written": 1000}
    assert ddr_of(SubgraphTraffic(**once, held=(50, 50), whole=(40,)), rates()) == 1110
    assert ddr_of(SubgraphTraffic(**once, held=(60, 50), whole=(40,)), rates()) == 1110 + 3 * 10
    assert ddr_of(SubgraphTraffic(**once, held=(50,), whole=(41, 41, 40)), rates()) == 1110 + 2 * 82


def test_every_figure_has_a_range():
    work = SubgraphTraffic(macs=1000, matrices=500, operators=10, wide=40, weights=100, read=200, written=150)
    (one,) = predict({0: work}, rates())
    assert (one.latency, one.latency_range, one.ddr, one.ddr_range) == (2000, (1000, 4000), 450, (405, 495))
    assert one.line() == (
        "id(0): 2.00 ms (1.00 to 4.00), 500.0 frames per second (250.0 to 1000.0), "
        "0.0 MB (0.0 to 0.0) from and to memory"
    )


@pytest.fixture(scope="module")
def left_out():
    return list(outside(NETS))


@pytest.mark.parametrize("name", NETS)
def test_logs_are_within_the_ranges_of_predictions_that_did_not_see_them(name, left_out):
    """The fit without the net, with the spread that is printed: what an unseen net may expect."""
    at = list(NETS).index(name)
    latency, ddr = left_out[at]
    net = NETS[name]
    assert RATES.latency_spread[0] <= net.latency / latency <= RATES.latency_spread[1]
    assert RATES.ddr_spread[0] <= net.ddr / ddr <= RATES.ddr_spread[1]
    (one,) = predict({0: net.traffic}, RATES)
    assert one.latency_range[0] <= net.latency <= one.latency_range[1]
    assert one.ddr_range[0] <= net.ddr <= one.ddr_range[1]


def test_the_parameters_are_those_that_the_tool_fits(left_out):
    fitted = entry(fit(NETS), spreads(NETS, left_out))
    assert fitted.pop("device") == RATES.device
    known = {name: getattr(RATES, name) for name in fitted}
    for name in ("latency_spread", "ddr_spread"):
        assert tuple(fitted.pop(name)) == known.pop(name)
    assert fitted == pytest.approx(known, rel=1e-3)


def test_what_left_out_nets_say_is_said():
    (said,) = caveats({0: NETS["yolo11n"].traffic}, RATES)
    assert f"a model of {len(NETS)} nets" in said and f"{RATES.ddr_spread[1]:.2f} times" in said


def test_logs_that_disagree_are_named_where_that_matters():
    """Two exports of one net have the same work, as far as nodes tell, and half the time."""
    for name, net in EVERY.items():
        if net.disputes:
            (one,) = predict({0: net.traffic}, RATES)
            assert not one.latency_range[0] <= net.latency <= one.latency_range[1]
            assert one.latency_range[0] / 2 <= net.latency and one.ddr_range[0] / 2 <= net.ddr
            _, said = caveats({0: net.traffic, 1: None}, RATES)
            assert f"{net.latency / 1000:.1f} ms" in said and f"{EVERY[net.disputes].latency / 1000:.1f}" in said, name


def test_what_is_not_known_is_not_predicted():
    (one,) = predict({0: None}, RATES)
    assert (one.latency, one.ddr, one.fps) == (None, None, None)
    assert "not predicted, because extents of its values are not known" in one.line()
