"""The comparison of two runs, as data and as lines."""

import numpy as np
import pytest
from dovetail_onnx.opening import open_text
from dovetail_verify.accuracy.goals import Goals
from dovetail_verify.compare import verify

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,2] x) => (float[4,2] y, int64[4] best) { y = Relu (x)  best = ArgMax <axis = 1, keepdims = 0> (x) }"""


def run(offset, best):
    return lambda feeds: {"y": feeds["x"] + np.float32(offset), "best": np.array(best)}


def compared(data=None, offset=0.0, best=(0, 1, 0, 1)):
    return verify(open_text(MODEL, "test"), run(0, [0, 1, 0, 1]), run(offset, best), data)


def test_equal_runs():
    result = compared()
    y, best = result.outputs
    assert (y.name, y.snr_db, y.top1, best.set_agreement, best.equal) == ("y", np.inf, 1.0, 1.0, 1.0)
    assert result.random
    assert result.short() == "SNR exact"
    assert result.as_dict()["outputs"][0]["snr_db"] == "inf"
    assert result.lines()[0] == "verified on one batch of random inputs (x 4x2):"


def test_runs_that_differ():
    data = {"x": np.full((8, 2), 10.0, np.float32), "labels": np.zeros(8, np.int64)}
    result = compared(data, offset=1.0, best=(0, 1, 2, 1))
    y, best = result.outputs
    assert (result.batches, result.random) == (2, False)
    assert y.snr_db == pytest.approx(20.0)
    assert y.hits == (1.0, 1.0)
    assert best.equal == 0.75
    assert best.set_agreement < 1
    assert result.worst_snr_db == pytest.approx(20.0)
    assert result.short() == "SNR 20.0 dB; 'best': 25.0 % of the elements differ; 1 warning"
    assert best.agreement_db == pytest.approx(-20 * np.log10(0.25))
    assert "SNR 20.0 dB" in result.lines()[1]
    assert "of the findings agree" in result.lines()[2]
    assert "75.0 % of the elements" in result.lines()[2]


def test_what_broke_is_said():
    result = compared(offset=np.nan)
    assert result.worst_snr_db == -np.inf
    assert result.short() == "SNR broken"
    assert result.as_dict()["outputs"][0]["snr_db"] == "-inf"
    assert "8 elements are infinite or NaN, and not in both" in result.lines()[1]


ZEROS = {"x": np.zeros((4, 2), np.float32)}


@pytest.mark.parametrize("offset", [1e-30, 1e-9, 5e-7])
def test_a_tiny_difference_against_zeros_is_none(offset):
    """There is no signal to compare it with, and beside numbers near one float32 has nothing between it and zero."""
    result = compared(ZEROS, offset=offset)
    assert (result.outputs[0].snr_db, result.outputs[0].cosine, result.broken) == (np.inf, 1.0, False)
    assert (result.short(), result.warnings) == ("SNR exact", [])


def test_a_difference_against_zeros_is_a_warning_and_not_broken():
    result = compared(ZEROS, offset=0.25)
    assert not result.broken
    assert result.outputs[0].snr_db == -np.inf
    assert result.warnings == ["'y': the original is zero, the result differs from it by up to 0.25"]
    assert result.short() == "SNR none (the original is zero); 1 warning"
    assert "SNR none (the original is zero)" in result.lines()[1]


def test_a_difference_against_zeros_misses_an_snr():
    result = compared(ZEROS, offset=0.25)
    assert [miss.figure for miss in Goals(min_snr=30).missed(result)] == ["SNR none (the original is zero)"]
    assert Goals(max_abs=0.5).missed(result) == []


def test_numbers_for_nan_of_the_original_are_said():
    text = """<ir_version: 10, opset_import: ["": 22]> g (float[N,2] x) => (float[N,2] y) { y = Sqrt (x) }"""
    data = {"x": np.float32([[-1, 4], [-9, 1]])}
    right = np.float32([[np.nan, 2], [np.nan, 1]])
    model = open_text(text, "test")
    found = verify(model, lambda feeds: {"y": right}, lambda feeds: {"y": np.nan_to_num(right)}, data)
    assert "2 elements are NaN in the original alone" in found.lines()[1]
    assert found.broken and "the original computes NaN in 'y' for these inputs" in found.way_out
    same = verify(model, lambda feeds: {"y": right}, lambda feeds: {"y": right}, data)
    assert not same.broken


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (np.ones((3, 2), np.float32), "has the shape 3x2, and 2x2 in the original: a length or a count is computed"),
        (np.full((2, 2), np.inf, np.float32), "has elements that are infinite or NaN: --data lets ranges be measured"),
    ],
)
def test_what_is_no_approximation_has_a_way_out(result, said):
    text = """<ir_version: 10, opset_import: ["": 22]> g (float[N,2] x) => (float[M,2] y) { y = Relu (x) }"""
    data = {"x": np.ones((2, 2), np.float32)}
    found = verify(open_text(text, "test"), lambda feeds: {"y": feeds["x"]}, lambda feeds: {"y": result}, data)
    assert found.broken and said in found.way_out and "--high" in found.way_out
    exact = verify(open_text(text, "test"), lambda feeds: {"y": feeds["x"]}, lambda feeds: {"y": feeds["x"]}, data)
    assert exact.way_out == ""
