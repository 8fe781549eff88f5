"""The data of a report."""

import json

import dovetail
import numpy as np
import onnx.parser
import pytest
import yaml
from dovetail.errors import DovetailError
from dovetail.plugin import load_plugins
from dovetail_report.collect.document import document
from dovetail_report.collect.histograms import histograms
from dovetail_report.collect.times import times
from dovetail_runtime.machine import fingerprint

DIGITS, DATA = "examples/digits/digits.onnx", "examples/digits/test.npz"


def test_nodes_regions_and_borders(compiled):
    found = document(compiled)
    assert found["nodes"]["name"].index("soft") >= 0
    assert [(region["number"], region["backend"]) for region in found["regions"]] == [
        (0, "cpu-bf16"), (1, "host"), (2, "cpu-bf16"),
    ]  # fmt: skip
    assert [(border["source"], border["target"], border["bytes"]) for border in found["borders"]] == [
        (0, 1, 1024), (1, 2, 1024),
    ]  # fmt: skip
    assert sum(row["nodes"] for row in found["backends"]) == len(found["nodes"]["name"])


def test_every_reason_is_in_the_table_once_and_names_the_rule(compiled):
    found = document(compiled)
    soft = found["nodes"]["name"].index("soft")
    rows = [found["reasons"][entry[0]] for entry in found["nodes"]["reasons"][soft]]
    assert any(row["rule"] == "pinned" for row in rows)
    conv = found["nodes"]["name"].index("conv")
    assert any("cpu_bf16.yaml:" in found["reasons"][entry[0]].get("source", "") for entry in
               found["nodes"]["reasons"][conv])  # fmt: skip


def test_a_remedy_is_a_command_that_repeats_the_request(model):
    data = {"x": np.ones((1, 4, 8, 8), "float32")}
    found = document(dovetail.compile(model, "bpu-int8:march=bayes", data=data))
    commands = [entry[3] for entries in found["nodes"]["reasons"].values() for entry in entries if len(entry) > 3]
    assert "dovetail compile MODEL --backend bpu-int8:march=bayes,observer=minmax --pin soft=bpu-int8" in commands


def test_ranges_and_accuracy_of_a_measured_result(measured):
    found = document(measured)
    assert {row["value"] for row in found["ranges"]} >= {"a", "b", "c"}
    assert found["accuracy"][0]["output"] == "y" and found["accuracy"][0]["SNR dB"] > 20


def test_histograms_of_8_bit_weights_with_their_scales():
    weight = ",".join(str(i % 256 - 128) for i in range(64 * 16))
    source = f"""<ir_version: 10, opset_import: ["": 21]>
    g (float[1,64] x) => (float[1,16] y) <int8[64,16] w = {{{weight}}}, float s = {{0.5}}> {{
      v = DequantizeLinear (w, s)
      y = MatMul (x, v)
    }}"""
    (row,) = histograms(dovetail.open(onnx.parser.parse_model(source)))
    assert (row["weight"], row["elements"], row["levels"], row["scale"]) == ("w", 1024, 256, 0.5)
    assert row["bins"] == [16] * 64
    assert row["ends"] == round(3 / 256, 4)  # -128, -127 and 127


def test_a_control_flow_body_is_part_of_the_graph():
    source = """<ir_version: 10, opset_import: ["": 21]>
    g (bool p, float[4] x) => (float[4] y) {
      [before] a = Relu (x)
      [choice] y = If (p) <
        then_branch = t () => (float[4] u) { [inside] u = Neg (a) },
        else_branch = e () => (float[4] v) { [other] v = Abs (a) }>
    }"""
    found = document(dovetail.compile(onnx.parser.parse_model(source), "host"))
    names = found["nodes"]["name"]
    edges = list(zip(found["edges"][::3], found["edges"][1::3]))
    assert (names.index("before"), names.index("inside")) in edges
    assert found["nodes"]["holder"] == {names.index(name): names.index("choice") for name in ("inside", "other")}


def test_the_comparison_lists_what_differs(model, compiled):
    other = dovetail.compile(model, "cpu-bf16")
    changes = {row["node"]: row for row in dovetail.report(compiled, other).document["comparison"]["changes"]}
    assert changes["soft"]["first"] == "host/float32" and changes["soft"]["second"].startswith("cpu-bf16/")
    assert "conv" not in changes


def test_a_trace_gives_times_of_regions(compiled, tmp_path):
    from dovetail_commands.plan_graph.result_graph import ResultGraph

    def event(backend, duration):
        return {"name": "region 1: 1 node of host", "cat": "region", "dur": duration,
                "args": {"backend": backend, "engine": "onnxruntime-cpu"}}  # fmt: skip

    graph, file = ResultGraph.of(compiled), tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": [event("host", 9000), event("host", 2000), event("host", 1000)]}))
    (row,) = times(file, graph)
    assert (row["ms"], row["runs"], row["engine"]) == (2, 2, "onnxruntime-cpu")
    file.write_text(json.dumps({"traceEvents": [event("npu", 1)]}))
    with pytest.raises(DovetailError, match="region 1 is not one of this result"):
        times(file, graph)
    for text in ("", "[]", '{"traceEvents": 3}', '{"traceEvents": []}'):
        file.write_text(text)
        with pytest.raises(DovetailError, match="trace.json"):
            times(file, graph)


def profile(folder, backend, **more):
    """A profile of this machine: every byte takes a nanosecond, every product a tenth, every call a million."""
    plugins = load_plugins()
    owned = [record.distribution for record in plugins.plugins if record.status == "ok" and record.distribution]
    table = {"machine": {**fingerprint(owned), **more}, "start": 1, "bytes": {"other": 1}, "operations": {"other": 10},
             "casts": 1, "borders": {"call": 1e6}}  # fmt: skip
    (folder / f"{backend}.costs.yaml").write_text(yaml.safe_dump(table))


def test_a_profile_of_this_machine_predicts_times_of_regions(compiled, tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_PROFILES", str(tmp_path))
    assert document(compiled)["predicted"] == []
    profile(tmp_path, "host")
    # 256 float32 are read and written.
    assert document(compiled)["predicted"] == [{"region": 1, "ms": round(1 + 2 * 256 * 4e-6, 4)}]
    profile(tmp_path, "cpu-bf16", processor="another")
    assert [row["region"] for row in document(compiled)["predicted"]] == [1]


def test_open_extents_other_than_the_first_are_not_predicted(tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_PROFILES", str(tmp_path))
    profile(tmp_path, "host")
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[N,{}] x) => (float[N,{}] y) {{ y = Exp (x) }}'
    for extent, rows in (("8", [{"region": 0, "ms": 1.0001}]), ("M", [])):
        compiled = dovetail.compile(onnx.parser.parse_model(text.format(extent, extent)), "host", verify=False)
        assert document(compiled)["predicted"] == rows


def test_a_profile_that_is_no_table_is_named(compiled, tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_PROFILES", str(tmp_path))
    (tmp_path / "host.costs.yaml").write_text("start: -1\n")
    with pytest.raises(DovetailError, match=r"host.costs.yaml"):
        document(compiled)


@pytest.mark.slow
def test_layers_are_listed_with_both_errors():
    compiled = dovetail.compile(DIGITS, "cpu-bf16", data=DATA, layers=True)
    rows = {row["node"]: row for row in document(compiled)["layers"]}
    assert rows["conv_3"]["alone"] > 20 and rows["conv_3"]["accumulated"] > 20


def test_the_document_is_json_without_infinities(measured):
    assert json.loads(json.dumps(document(measured), allow_nan=False))
    assert np.isfinite(document(measured)["accuracy"][0]["SNR dB"])


QUANTIZED = """<ir_version: 10, opset_import: ["": 21]>
g (float[N,64] x) => (float[N,64] y) <float s = {0.5}, int8 z = {0}, uint8 u = {10}> {
  a = QuantizeLinear (x, s, z)
  b = DequantizeLinear (a, s, z)
  c = Relu (b)
  d = QuantizeLinear (c, s, u)
  y = DequantizeLinear (d, s, u)
}"""


def test_histograms_of_8_bit_activations_on_data():
    """32 numbers are beyond 127 * 0.5; half of the others become 0 in the Relu, which is 10 in the next scale."""
    x = np.concatenate([np.arange(-64, 64) * 0.5, np.full(32, 100), np.zeros(32)]).astype(np.float32).reshape(3, 64)
    compiled = dovetail.compile(onnx.parser.parse_model(QUANTIZED), "host")
    first, second = document(compiled, data={"x": x})["activations"]
    assert (first["value"], first["type"], first["elements"], first["scale"]) == ("x", "int8", 192, 0.5)
    assert first["clipped"] == round(32 / 192, 6)
    assert first["levels"] == 128 + 1, "-64 to 63, and 127"
    assert sum(first["bins"]) == 192
    assert (second["value"], second["type"], second["zero_point"], second["clipped"]) == ("c", "uint8", 10, 0)
    assert document(compiled)["activations"] == [], "only where data is given"
