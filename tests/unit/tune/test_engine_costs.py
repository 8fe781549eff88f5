"""`dovetail profile`: a table that the solver min-cut reads."""

import dovetail
import onnx
import onnx.parser
import pytest
import yaml
from dovetail.cli.main import main

MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,8] x) => (float[4,8] y) <float[8,8] w = {W}> {
  a = MatMul (x, w)  b = Neg (a)  c = Exp (b)  d = Neg (c)  y = MatMul (d, w) }"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("dovetail_tune.engine_costs._SECONDS", 0)
    monkeypatch.setattr("dovetail_tune.engine_costs._ELEMENTS", 1 << 14)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(MODEL.replace("{W}", "{" + ", ".join(["0.5"] * 64) + "}")), path)
    return path


def test_a_measured_table_is_what_min_cut_takes(tmp_path, model, capsys):
    target = tmp_path / "costs.yaml"
    assert main(["profile", "gpu-fp16", "-o", str(target)]) == 0
    assert f"--costs {target}" in capsys.readouterr().err
    table = yaml.safe_load(target.read_text())
    assert table["bytes"].keys() == table["operations"].keys() == {"float32", "float16", "other"}
    assert {"Exp", "Softmax"} <= table["operators"].keys()
    assert all(isinstance(table[key], float) and table[key] > 0 for key in ("start", "casts"))
    assert table["borders"].keys() == {"quantize", "dequantize", "transpose", "call"}
    result = dovetail.compile(model, ["gpu-fp16"], solver="min-cut", costs=target, verify=False)
    assert len(result.plan.nodes) == 5


@pytest.mark.parametrize(("start", "low"), [(1e9, False), (1, True)])
def test_the_table_decides(tmp_path, model, start, low):
    """What lies beside Exp, which is float32, goes low or stays with it, whatever is faster."""
    target = tmp_path / "costs.yaml"
    half = 1e9 if low else 1e-4
    rates = {"start": start, "bytes": {"float16": half, "other": 1e-3}, "operations": {"other": 1}, "casts": 1e9}
    target.write_text(yaml.safe_dump(rates))
    result = dovetail.compile(model, ["gpu-fp16"], solver="min-cut", costs=target, verify=False)
    chosen = {node.output: str(node.precision) for node in result.plan.nodes}
    assert (chosen["b"], chosen["d"]) == (("float16", "float16") if low else ("float32", "float32"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("start: fast\n", "costs.yaml:1: start: a positive number is expected"),
        ("start: 1\ncasts: 1\nbytes: {float61: 2, other: 1}\n", "costs.yaml:3: unknown key 'float61' in bytes"),
        ("start: 1\ncasts: 1\nbytes: {float32: 2}\noperations: {other: 1}\n", "costs.yaml:3: key 'other' is missing"),
        ("start: 1\nbytes: {other: 1}\n", "key 'casts' is missing"),
        ("starts: 1\n", "costs.yaml:1: unknown key 'starts' in cost table"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path, model, capsys, text, message):
    target = tmp_path / "costs.yaml"
    target.write_text(text)
    arguments = ["compile", str(model), "--backend", "gpu-fp16", "--solver", "min-cut", "--costs", str(target)]
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


def test_a_table_that_is_not_there(model, capsys):
    arguments = ["compile", str(model), "--backend", "gpu-fp16", "--solver", "min-cut", "--costs"]
    assert main([*arguments, "none.yaml"]) == 1
    assert "none.yaml: cannot be read" in capsys.readouterr().err
    assert main([*arguments, "none"]) == 1
    assert "unknown cost_table 'none'" in capsys.readouterr().err


@pytest.mark.parametrize(("backend", "kinds"), [("host", {"float32"}), ("cpu-int8", {"float32", "int8"})])
def test_a_backend_without_a_low_float(backend, kinds, tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_PROFILES", str(tmp_path))
    assert main(["profile", backend]) == 0
    table = yaml.safe_load((tmp_path / f"{backend}.costs.yaml").read_text())
    assert table["bytes"].keys() == table["operations"].keys() == {*kinds, "other"}
    assert table["operators"]["Exp"].keys() == {"float32", "other"}


def test_a_table_of_another_machine_is_not_used_and_says_so(tmp_path, model):
    target = tmp_path / "costs.yaml"
    rates = {"start": 1e9, "bytes": {"float16": 1e-4, "other": 1e-3}, "operations": {"other": 1}, "casts": 1e9}
    target.write_text(yaml.safe_dump({"machine": {"processor": "another"}, **rates}))
    result = dovetail.compile(model, ["gpu-fp16"], solver="min-cut", costs=target, verify=False)
    plain = dovetail.compile(model, ["gpu-fp16"], solver="min-cut", verify=False)
    assert [node.precision for node in result.plan.nodes] == [node.precision for node in plain.plan.nodes]
    (why,) = [remark.why for remark in result.remarks if remark.rule == "costs"]
    assert "is a table of another machine, another processor" in why and "`dovetail profile` measures one" in why


def test_the_table_of_this_machine_is_kept_with_its_profiles(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DOVETAIL_PROFILES", str(tmp_path))
    assert main(["profile", "gpu-fp16"]) == 0
    out = capsys.readouterr().out
    assert (tmp_path / "gpu-fp16.costs.yaml").read_text() == out


def test_quantizing_costs_what_the_table_says(tmp_path):
    from dovetail.ir import FLOAT32, Format
    from dovetail_precision.costs import CostTable

    int8 = Format.of("int8[symmetric]")
    table = CostTable(casts=10, borders={"quantize": 4, "dequantize": 6})
    assert [table.converting(*pair) for pair in ((FLOAT32, int8), (int8, FLOAT32), (FLOAT32, FLOAT32))] == [4, 6, 10]
