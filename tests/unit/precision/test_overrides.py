"""`--low` and `--high`: what a user wants low or high, whatever the policies say."""

import json
from pathlib import Path

import pytest
from dovetail import api
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail.passes import Request

NAMES = ("fixpoint", "forward", "min-cut")
LOW, HIGH = "float16", "float32"
TEXT = """g (float[4,8] x, bool c) => (float[4,8] y) <float[8,8] w, float[8,8] u> {
  [first] a = MatMul (x, w)
  [exp] b = Exp (a)
  [second] d = MatMul (b, u)
  [branch] y = If (c) <
    then_branch = t () => (float[4,8] p) { [inner] p = MatMul (d, w) },
    else_branch = e () => (float[4,8] q) { [other] q = Neg (d) }
  >
}"""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("lists", "node", "kind"),
    [
        ({}, "b", HIGH),
        ({"low": ("type:Exp",)}, "b", LOW),
        ({"low": ("exp",)}, "b", LOW),
        ({"high": ("type:MatMul",)}, "a", HIGH),
        ({"high": ("fir*",)}, "a", HIGH),
        ({"high": ("fir*",)}, "d", LOW),
        ({"high": ("branch",)}, "p", HIGH),  # a control-flow node stands for its bodies
        ({"high": ("inner",), "low": ("second",)}, "p", HIGH),
    ],
)
def test_every_solver_obeys(solved, name, lists, node, kind):
    _, types = solved(name, TEXT, **lists)
    assert types[node] == kind


@pytest.mark.parametrize("name", NAMES)
def test_the_remarks_name_the_option(typed, name):
    remarks, _ = typed(name, TEXT, low=("type:Exp",), high=("first",))
    assert remarks["exp"].why == "computed in float16, as --low type:Exp says"
    assert remarks["exp"].kind == "passed"
    assert remarks["first"].why == "computed in float32, as --high first says"
    assert remarks["first"].kind == "passed"  # nothing was missed: it is what the user asked for


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_low_says_why(typed, name):
    text = """g (float[4,8] x, double[4,8] e) => (float[4,8] y, double[4,8] z) <float[8,8] w, float big = {1e9}> {
      [product] a = MatMul (x, w)
      [sum] y = Add (a, big)
      [double] z = Neg (e)
    }"""
    remarks, _ = typed(name, text, low=("sum", "double"))
    assert remarks["sum"].why == (
        "computed in float32 despite --low sum: its constant 'big' reaches 1e+09, beyond the 65504 of float16"
    )
    assert remarks["double"].kind == "missed"
    assert "the source model uses float64 here" in remarks["double"].why or "host" in remarks["double"].why


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"low": ("type:Exp",), "high": ("ex*",)}, "'exp' (Exp) cannot be both: --low type:Exp and --high ex*"),
        (
            {"high": ("first",), "pins": ("first=test-fp16/float16",)},
            "'first' (MatMul) cannot be both: --high first and pin 'first=test-fp16/float16'",
        ),
        (
            {"low": ("first",), "pins": ("first=test-fp16/float32",)},
            "'first' (MatMul) cannot be both: --low first and pin 'first=test-fp16/float32'",
        ),
        ({"low": ("type:Expp",)}, "no node matches 'type:Expp'"),
    ],
)
def test_what_contradicts_or_matches_nothing_is_an_error(solved, request_, said):
    with pytest.raises(DovetailError) as caught:
        solved("forward", TEXT, **request_)
    assert caught.value.message == said


@pytest.mark.parametrize("name", NAMES)
def test_what_the_backend_has_only_low_goes_elsewhere(tmp_path, monkeypatch, fp16, name):
    monkeypatch.chdir(tmp_path)
    Path("m.onnxtxt").write_text("""<ir_version: 10, opset_import: ["": 22]>
      g (float[4,8] x) => (float[4,8] y) <float[8,8] w> {
        a = MatMul (x, w)  [sinh] b = Sinh (a)  y = MatMul (b, w) }""")
    without = api.compile("m.onnxtxt", ["test-some"], solver=name, plugins=fp16)
    listed = api.compile("m.onnxtxt", ["test-some"], solver=name, plugins=fp16, high=["sinh"], verify=True)
    (before,) = [node for node in without.plan.nodes if node.name == "sinh"]
    (after,) = [node for node in listed.plan.nodes if node.name == "sinh"]
    assert (before.backend, str(before.precision)) == ("test-some", LOW)
    assert (after.backend, str(after.precision)) == ("host", HIGH)
    said = [remark.why for remark in listed.remarks if remark.node == "sinh"]
    assert said == ["not on test-some: test-some does not compute it in float32, as --high sinh says"]
    assert listed.verification.worst_snr_db > 50


def test_a_pin_that_says_the_same_is_fine(solved):
    _, types = solved("forward", TEXT, high=("first",), pins=("first=test-fp16/float32",))
    assert types["a"] == HIGH


def test_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("m.onnxtxt").write_text('<ir_version: 10, opset_import: ["": 22]>\n' + TEXT)
    command = ["plan", "m.onnxtxt", "--backend", "gpu-fp16", "--json"]
    assert main([*command, "--low", "type:Exp", "--high", "second"]) == 0
    nodes = {node["name"]: node["precision"] for node in json.loads(capsys.readouterr().out)["nodes"]}
    assert (nodes["first"], nodes["exp"], nodes["second"]) == (LOW, LOW, HIGH)
    assert main([*command, "--low", "exp", "--high", "exp"]) == 1
    assert "'exp' (Exp) cannot be both" in capsys.readouterr().err
    assert main([*command, "--low", "expp"]) == 1
    assert "did you mean 'exp'" in capsys.readouterr().err


def test_a_request_with_lists_is_another_request(tmp_path):
    text = '<ir_version: 10, opset_import: ["": 22]>\n' + TEXT.replace("<float[8,8] w, float[8,8] u>", "").replace(
        "bool c)", "bool c, float[8,8] w, float[8,8] u)"
    )
    (tmp_path / "m.onnxtxt").write_text(text)
    cache_keys = set()
    for lists in ({}, {"low": ["type:Exp"]}, {"high": ["type:Exp"]}):
        result = api.compile(tmp_path / "m.onnxtxt", ["gpu-fp16"], verify=False, **lists)
        cache_keys.add(result.model.ir.metadata_props["dovetail.request"])
    assert len(cache_keys) == 3
    request = Request.of("gpu-fp16", low=("a",), high=("b",))
    assert Request.from_dict(json.loads(json.dumps(request.as_dict()))) == request
