"""A result in integers is timed beside floats in the fastest engine here, and a note says which is faster."""

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail_verify import float_comparison
from onnx import numpy_helper, parser, save

GRAPH = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,16] x) => (float[4,16] y) <float[16,16] w> { y = MatMul (x, w) }"""
NUMBERS = np.random.default_rng(0)
DATA = {"x": NUMBERS.standard_normal((48, 16)).astype(np.float32)}


@pytest.fixture
def product():
    model = parser.parse_model(GRAPH)
    weight = NUMBERS.standard_normal((16, 16)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


@pytest.fixture
def timed(monkeypatch):
    """Every result is played to take as long as its place among those that have turns says."""

    def play(ours, *floats):
        seconds = (ours, *floats)

        def times(runs, feeds):
            for run in runs.values():
                assert run(feeds)["y"].shape == (4, 16)
            return {name: [seconds[min(at, len(seconds) - 1)]] * 5 for at, name in enumerate(runs)}

        monkeypatch.setattr(float_comparison, "_times", times)

    return play


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ((1.5, 2.0, 1.0), "integers do not pay here: this result takes 1.50 of the time of floats in "),
        ((0.5, 1.0, 2.0), "this result takes 0.50 of the time of floats on the host, the fastest here"),
        ((1.01, 1.0, 2.0), "integers make this result no faster here: it takes as long as floats on the host"),
    ],
)
def test_a_plan_that_meets_a_goal_is_compared_with_the_fastest_floats(product, timed, seconds, said):
    timed(*seconds)
    compiled = dovetail.compile(product, "cpu-int8", data=DATA, min_snr=20)
    assert compiled.verification.pace.startswith(said) and compiled.verification.pace in compiled.verification.notes


def test_it_is_measured_here(product):
    compiled = dovetail.compile(product, "cpu-int8", data=DATA, min_snr=20)
    assert "floats" in compiled.verification.pace and "the fastest here" in compiled.verification.pace


@pytest.mark.parametrize(
    ("backend", "more"),
    [
        ("cpu-bf16", {"min_snr": 20}),  # no integers
        ("ppl-int8", {"min_snr": 20}),  # computes elsewhere; its time here says nothing
        ("cpu-int8", {"min_snr": 20, "high": "*"}),  # nothing is in integers
        ("cpu-int8", {"min_snr": 20, "compare_floats": False}),
        ("cpu-int8", {}),
    ],
)
def test_what_is_not_compared(product, backend, more):
    assert dovetail.compile(product, backend, data=DATA, **more).verification.pace == ""


def test_the_command_compares_without_a_goal_too(product, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save(product, "m.onnx")
    np.savez("x.npz", **DATA)
    command = ["compile", "m.onnx", "--backend", "cpu-int8", "--data", "x.npz"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "the fastest here" in said.out + said.err
    assert main([*command, "--no-compare-floats"]) == 0
    said = capsys.readouterr()
    assert "the fastest here" not in said.out + said.err
