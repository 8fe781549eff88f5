"""Integers that nobody asked for and that would have a warning make way for formats that leave enough."""

import json

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail_verify import float_comparison
from dovetail_verify.accuracy import costly_nodes
from onnx import numpy_helper, parser, save

DATA = {"x": np.random.default_rng(0).standard_normal((48, 16)).astype(np.float32)}
FAR = """[far] c = Add (b, offset)  [wave] d = Sin (c)  [costly] y = MatMul (d, w)"""
GRAPH = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,16] x) => (float[4,16] y) <float[16,16] v, float[16,16] w, float[1,16] spread, float offset> {{
  [fine] a = MatMul (x, v)  [half] b = Mul (a, spread)  {rest} }}"""


def net(far=False):
    """Two products; a channel between them is large and hardly counts, so that eight bits are too few.

    Far from zero, a sine is taken of numbers that float16 hardly distinguishes.
    """
    model = parser.parse_model(GRAPH.format(rest=FAR if far else "[costly] y = MatMul (b, w)"))
    spread = (np.full(16, 10) if far else np.where(np.arange(16) == 3, 150, 1)).astype(np.float32)[None]
    first, second = np.random.default_rng(1).standard_normal((2, 16, 16)).astype(np.float32)
    second[3] /= 1 if far else 1e6
    arrays = {"v": first, "w": second, "spread": spread, "offset": np.float32(3000)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items())
    return model


@pytest.fixture(autouse=True)
def every_node_is_cheap(monkeypatch):
    """Stands for nets where no single node costs much, and the errors of many add up."""
    monkeypatch.setattr(costly_nodes, "_POOR", 0)


@pytest.fixture
def timed(monkeypatch):
    """Runs are played to take the given seconds: those of the result, and of floats by name; others take very long."""

    def play(seconds):
        monkeypatch.setattr(
            float_comparison, "_times", lambda runs, _: {name: [seconds.get(name, 1e3)] * 5 for name in runs}
        )

    return play


def said(compiled, rule="least-accuracy"):
    return [remark.why for remark in compiled.remarks if remark.rule == rule]


def precision(compiled, name):
    return str(compiled.plan.named(name).precision)


@pytest.mark.processor
def test_what_costs_nothing_stays_in_integers(timed):
    timed({"": 1, "host": 2})
    model = net()
    whole = dovetail.compile(model, "cpu-int8", data=DATA, refine="none", all_integers=True)
    assert whole.verification.worst_snr_db < 20 and not said(whole)
    compiled = dovetail.compile(model, "cpu-int8", data=DATA, refine="none")
    assert compiled.verification.worst_snr_db >= 20 and not compiled.verification.warnings
    assert "int" in precision(compiled, "fine") and precision(compiled, "costly") == "float32"
    (why,) = said(compiled)
    assert f"more of them leave SNR {whole.verification.worst_snr_db:.1f} dB at the worst output" in why
    assert "below the 20 dB where a result has a warning" in why and "which nothing was calibrated with" in why
    assert "which nothing was calibrated with" in compiled.verification.held_back
    assert "accuracy" not in compiled.plan.summary


def test_the_floats_are_those_of_the_request(timed):
    timed({"": 1, "host": 2, "cpu-bf16": 2})
    compiled = dovetail.compile(net(), ["cpu-int8", "cpu-bf16"], data=DATA, refine="none")
    assert compiled.plan.named("costly").backend == "cpu-bf16" and compiled.plan.named("fine").backend == "cpu-int8"
    assert compiled.verification.worst_snr_db >= 20 and said(compiled)


@pytest.mark.parametrize("seconds", [{"": 2, "host": 1}, {"": 1, "host": 1}])
def test_integers_that_are_no_faster_leave_nothing(timed, seconds):
    timed(seconds)
    compiled = dovetail.compile(net(), "cpu-int8", data=DATA, refine="none")
    assert {node.backend for node in compiled.plan.nodes} == {"host"}
    (why,) = said(compiled)
    assert why.startswith("nothing is in integers, because they leave SNR ")
    (why,) = said(compiled, "floats-instead")
    assert ("no faster here" in why) == (seconds[""] == seconds["host"])


@pytest.mark.processor
def test_float32_where_low_floats_leave_too_little(timed, fp16):
    timed({"": 2, "host": 3, "test-fp16": 1})
    model = net(far=True)
    assert dovetail.compile(model, "test-fp16", data=DATA, plugins=fp16).verification.worst_snr_db < 20
    compiled = dovetail.compile(model, ["cpu-int8", "test-fp16"], data=DATA, refine="none", plugins=fp16)
    assert compiled.verification.worst_snr_db >= 20 and said(compiled)


@pytest.mark.parametrize(
    "more", [{"all_integers": True}, {"min_snr": 0}, {"pins": "*=cpu-int8"}, {"low": "*"}, {"verify": False}]
)
def test_who_asks_for_integers_has_them(timed, more):
    timed({"": 1, "host": 2})
    compiled = dovetail.compile(net(), "cpu-int8", data=DATA, refine="none", **more)
    assert "int" in precision(compiled, "costly") and not said(compiled)


def test_weights_alone_have_their_size(timed):
    timed({"": 2, "host": 1})
    compiled = dovetail.compile(net(), "cpu-int8:weights=int2,kernel=nbits", data=DATA)
    assert not said(compiled)


def test_data_that_cannot_be_divided(timed):
    timed({"": 2, "host": 1})
    compiled = dovetail.compile(net(), "cpu-int8", data={"x": DATA["x"][:4]}, refine="none")
    (why,) = said(compiled)
    assert "which also calibrated, for want of more" in why


def test_a_search_that_fails_costs_no_result(timed, monkeypatch):
    def fails(*_, **__):
        raise dovetail.DovetailError("no engine of the host runs a part")

    monkeypatch.setattr("dovetail_verify.accuracy.raising.measure_baseline", fails)
    timed({"": 1, "host": 2})
    compiled = dovetail.compile(net(), "cpu-int8", data=DATA, refine="none")
    (why,) = said(compiled)
    assert "the search for better formats failed: no engine of the host runs a part" in why
    assert compiled.verification.worst_snr_db < 20 and compiled.verification.warnings


def test_the_command_prints_no_warning_but_a_note(timed, tmp_path, monkeypatch, capsys):
    timed({"": 1, "host": 2})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for name in ("m.onnx", "models/a.onnx"):
        save(net(), name)
    np.savez("x.npz", **DATA)
    command = ["--backend", "cpu-int8", "--data", "x.npz", "--refine", "none"]
    assert main(["compile", "m.onnx", *command, "-o", "out"]) == 0
    found = capsys.readouterr()
    assert "stayed in integers, because more of them leave SNR" in found.out + found.err
    assert "warning" not in found.err.lower().replace("has a warning", "")
    assert main(["compile", "m.onnx", *command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert not document["warnings"] and "least-accuracy" in [remark["rule"] for remark in document["remarks"]]
    assert main(["compile", "models", *command, "-o", "all"]) == 0
    assert said(dovetail.load("all/a"))
    assert main(["compile", "m.onnx", *command, "--all-integers"]) == 0
    found = capsys.readouterr()
    assert "below 20 dB" in found.out + found.err


def test_sessions_have_it_too(timed):
    timed({"": 2, "host": 1})
    session = dovetail.InferenceSession(net(), backend="cpu-int8", data=DATA, refine="none")
    assert said(session.compiled)
