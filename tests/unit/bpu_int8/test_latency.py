"""Predicted latency and memory traffic: what is counted, and how far from the vendor's figures it is."""

import sys
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail_bpu_int8.vendor.latency import caveats, ddr_of, known_rates, predict
from dovetail_bpu_int8.vendor.traffic import Traffic, traffic_of

from .vendor_files import model_of

TOOLS = Path(__file__).parents[3] / "backends" / "bpu_int8" / "tools"
sys.path.insert(0, str(TOOLS))
from fit_latency import entry, fit, read_facts  # noqa: E402 - a tool, which no distribution has

RATES = known_rates()["bayes"]
NETS = read_facts()
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
        0: Traffic(
            macs=8 * PIXELS * 8 * 9 + 8 * PIXELS * 8,
            weights=8 * 8 * 9 + 4 * 8 + 8 * 8,
            read=8 * PIXELS,
            written=4 * 8 * PIXELS,
            held=(8 * PIXELS,),
        )
    }


def test_a_gate_and_what_it_gates_lie_in_one_place():
    """SiLU is one table on the BPU, and what moves numbers makes none."""
    body = """{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b) [s] g = Sigmoid (a) [m] r = Mul (a, g)
      [t] q = Reshape (r, shape) [two] y = Conv (q, v) }"""
    assert traffic(body)[0].held == (8 * PIXELS,)


def test_values_that_do_not_stay_on_the_chip_move_twice():
    light = Traffic(macs=0, weights=10, read=100, written=1000, held=(50, 50))
    assert ddr_of(light, on_chip=50, attention=3) == 1110
    assert ddr_of(light, on_chip=49, attention=3) == 1110 + 2 * 100
    assert ddr_of(Traffic(0, 10, 100, 1000, (60,), (60,)), on_chip=50, attention=3) == 1110 + 2 * 60 + 3 * 60


@pytest.mark.parametrize("name", NETS)
def test_predictions_are_as_near_to_the_logs_as_is_said(name):
    net = NETS[name]
    (one,) = predict({0: net.traffic}, RATES)
    assert abs(one.latency / net.latency - 1) <= RATES.latency_error
    assert abs(one.ddr / net.ddr - 1) <= RATES.ddr_error
    assert one.attention == (name == "yolo12n")


def test_the_parameters_are_those_that_the_tool_fits():
    fitted = entry(fit(NETS), [RATES.latency_error, RATES.ddr_error])
    assert fitted.pop("device") == RATES.device
    assert fitted == pytest.approx({name: getattr(RATES, name) for name in fitted}, rel=1e-3)


def test_large_attention_is_known_from_one_net_alone():
    said = caveats(predict({0: NETS["yolo12n"].traffic}, RATES), RATES)
    assert "in one net of those alone" in said[-1]
    assert len(caveats(predict({0: NETS["yolov8n"].traffic}, RATES), RATES)) == 1


def test_what_is_not_known_is_not_predicted():
    (one,) = predict({0: None}, RATES)
    assert (one.latency, one.ddr, one.fps) == (None, None, None)
    assert "not predicted, because extents of its values are not known" in one.line()
