"""Nodes that alone in integers leave less than the floor of their backend are computed in floats."""

from types import SimpleNamespace

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail_cpu_int8 import observers
from dovetail_verify.accuracy import floor
from onnx import numpy_helper, parser, save

GRAPH = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,16] x) => (float[4,16] y) <float[16,16] v, float[16,16] w, float[1,16] spread> {
  [fine] a = MatMul (x, v)  [half] b = Mul (a, spread)  [costly] y = MatMul (b, w) }"""
NUMBERS = np.random.default_rng(0)
DATA = {"x": NUMBERS.standard_normal((48, 16)).astype(np.float32)}


@pytest.fixture
def net():
    """A product whose input has a channel that is a thousand times as large as the others, and hardly counts."""
    model = parser.parse_model(GRAPH)
    spread = np.ones((1, 16), np.float32)
    spread[0, 3] = 1000
    weight = NUMBERS.standard_normal((16, 16)).astype(np.float32)
    weight[3] /= 1e6
    arrays = {"v": NUMBERS.standard_normal((16, 16)).astype(np.float32), "w": weight, "spread": spread}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    return model


def said(compiled):
    return [remark.why for remark in compiled.remarks if remark.rule == "costly-nodes"]


def precision(compiled, name):
    return str(compiled.plan.named(name).precision)


@pytest.mark.slow
def test_a_costly_node_stays_in_floats_with_a_remark(net):
    whole = dovetail.compile(net, "cpu-int8:floor=none", data=DATA, refine="none")
    assert whole.verification.worst_snr_db < 25 and not said(whole) and "int" in precision(whole, "costly")
    compiled = dovetail.compile(net, "cpu-int8", data=DATA, refine="none")
    (why,) = said(compiled)
    assert "'costly'" in why and "stayed in float32" in why and "on samples that calibrate" in why
    assert precision(compiled, "costly") == "float32" and "int" in precision(compiled, "fine")
    (remark,) = [remark for remark in compiled.remarks if remark.rule == "costly-nodes"]
    assert remark.source.startswith("cpu_int8.yaml:") and "--backend cpu-int8:floor=none" in remark.advice
    assert compiled.verification.worst_snr_db > whole.verification.worst_snr_db + 10
    assert "held out from calibration" in compiled.verification.held_back


def test_a_poor_result_that_no_node_explains_has_a_remark(net, monkeypatch):
    monkeypatch.setattr(floor, "_worst", lambda *_: 20.0)  # whatever is raised
    (why,) = said(dovetail.compile(net, "cpu-int8", data=DATA, refine="none"))
    assert why.startswith("20.0 dB on samples that calibrate, and no node stayed in float32 for that: ")
    assert why.endswith("1 node in float32 would leave 20.0 dB")
    monkeypatch.setattr(floor, "layers_of_request", lambda *_, **__: SimpleNamespace(layers=[]))
    (why,) = said(dovetail.compile(net, "cpu-int8", data=DATA, refine="none"))
    assert why.endswith("no node alone leaves less than 25 dB: the errors of many add up")


@pytest.mark.slow
def test_activations_with_zero_points_where_they_are_clearly_better(net, monkeypatch):
    """Nearly all inputs are positive, so integers around zero are wasted, if the zero point must be in the middle."""
    monkeypatch.setattr(observers, "_WORTH_IT", 0.0)
    data = {"x": np.abs(DATA["x"]) - np.float32(0.05)}
    default, asymmetric = "activations=signed-symmetric", "activations=asymmetric"
    least = {
        option: dovetail.compile(net, f"cpu-int8:floor=none,{option}", data=data).verification.worst_snr_db
        for option in (default, asymmetric)
    }
    assert least[asymmetric] > least[default] + 1
    monkeypatch.setattr(floor, "floors_of", lambda job: {"cpu-int8": (60.0, "")})
    compiled = dovetail.compile(net, "cpu-int8", data=data)
    (why,) = [remark.why for remark in compiled.remarks if remark.rule == "better-scales"]
    assert why.startswith(f"{asymmetric}: ")
    asked = dovetail.compile(net, f"cpu-int8:{default}", data=data)
    assert not [remark for remark in asked.remarks if remark.rule == "better-scales"]


def test_the_default_covers_one_sided_ranges(net):
    data = {"x": np.abs(DATA["x"]) - np.float32(0.05)}
    held = dovetail.compile(net, "cpu-int8", data=data, refine="none").plan.values["x"][0]
    covering = dovetail.compile(net, "cpu-int8:activations=asymmetric", data=data, refine="none")
    assert held["zero_point"] < 20 and held["scale"] == covering.plan.values["x"][0]["scale"]


def test_a_result_with_scaled_channels_is_looked_at_without_them(net):
    """`smooth` scales the channels of the spread value, which another layer cannot take up."""
    compiled = dovetail.compile(net, "cpu-int8", data=DATA, refine="smooth,bias")
    assert not [why for why in said(compiled) if "no node is named" in why]


@pytest.mark.parametrize("more", [{"pins": "costly=cpu-int8"}, {"low": "costly"}, {"verify": False}])
def test_who_says_where_nodes_are_computed_is_obeyed(net, more):
    compiled = dovetail.compile(net, "cpu-int8", data=DATA, refine="none", **more)
    assert not said(compiled) and "int" in precision(compiled, "costly")


def test_a_result_without_floor_is_left_as_it_is(net):
    (spread,) = [one for one in net.graph.initializer if one.name == "spread"]
    spread.CopyFrom(numpy_helper.from_array(np.ones((1, 16), np.float32), "spread"))
    assert not said(dovetail.compile(net, "cpu-int8", data=DATA))


def test_the_command_takes_another_floor(net, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save(net, "m.onnx")
    np.savez("x.npz", **DATA)
    for backend, stays in (("cpu-int8", True), ("cpu-int8:floor=none", False)):
        assert main(["compile", "m.onnx", "--backend", backend, "--data", "x.npz", "--refine", "none"]) == 0
        said = capsys.readouterr()
        assert ("stayed in float32" in said.out + said.err) == stays


def test_a_result_that_cannot_be_looked_at_node_by_node_is_kept(net, monkeypatch):
    def refuses(*_, **__):
        raise DovetailError("a refinement gave channels other scales", "compile without it")

    monkeypatch.setattr(floor, "layers_of_request", refuses)
    compiled = dovetail.compile(net, "cpu-int8", data=DATA, refine="none")
    (why,) = said(compiled)
    assert "no node is named that costs them: a refinement gave channels other scales" in why
