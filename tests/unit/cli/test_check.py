"""`dovetail check`, and the backend file that the plugin page shows."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODEL = """<ir_version: 10, opset_import: ["": 17]>
agraph (float[1, 3, 8, 8] x, float[4, 3, 3, 3] w) => (float[1, 4, 6, 6] y, float[1, 4, 6, 6] z) {
  t = Conv(x, w)
  y = Relu(t)
  z = Sin(t)
}
"""


@pytest.fixture
def documented(cli):
    """The example of the page on backends as a file, in a folder with a model."""
    Path("m.onnxtxt").write_text(MODEL)
    text = (ROOT / "docs/kinds/backends.md").read_text()
    Path("npu.backend.yaml").write_text(re.search(r"```yaml\n(backend: acme-npu.*?)```", text, re.DOTALL)[1])


def test_the_documented_backend_is_valid_and_judges_models(documented, cli):
    code, out, _ = cli("check", "npu.backend.yaml", "m.onnxtxt")
    assert code == 0
    rows = [line.split(None, 4) for line in out.splitlines()]
    assert rows[0] == ["m.onnxtxt"]
    assert rows[2:4] == [["Conv", "1", "0", "0"], ["Relu", "1", "0", "0"]]
    assert rows[4][:4] == ["Sin", "0", "1", "0"]
    assert rows[4][4].startswith("1 x ")
    assert out.splitlines()[-1] == "npu.backend.yaml: valid"


def test_as_json(documented, cli):
    document = json.loads(cli("check", "npu.backend.yaml", "m.onnxtxt", "--json")[1])
    assert document["valid"]
    assert [item["operator"] for item in document["models"][0]["operators"]] == ["Conv", "Relu", "Sin"]
    assert list(document["models"][0]["operators"][2]["reasons"].values()) == [1]


def test_what_open_extents_cost_is_said_with_the_option_that_fixes_them(documented, cli):
    Path("m.onnxtxt").write_text(MODEL.replace("float[1, 3, 8, 8] x", "float[N, 3, H, 8] x"))
    text = Path("npu.backend.yaml").read_text()
    Path("npu.backend.yaml").write_text(
        text.replace("ops:", "ops:\n  Sin: {shape: {input: N C H W}, limits: {H: ..32}}")
    )
    _, out, _ = cli("check", "npu.backend.yaml", "m.onnxtxt")
    assert "note: the model leaves extents of 'x' ([N, 3, H, 8]) open, and 1 node is refused for that alone: " in out
    assert "--fix-shape x:1x3xNx8" in out
    assert "note" not in cli("check", "npu.backend.yaml", "m.onnxtxt", "--fix-shape", "x:1x3x8x8")[1]


QUANTIZED = """backend: acme-q
device: npu
opset: 13..22
precision: {low: int8, high: float32}
types: {q8: {dtype: int8, scheme: symmetric}}
ops: {"Add, Relu, Reshape": {types: q8}, Sin: {types: {input: q8, output: q8}}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""
INTEGERS = """<ir_version: 10, opset_import: ["": 17]>
agraph (float[4] x, int64[4] i, int64[2] s) => (float[2, 2] y, int64[4] z, int64[2, 2] w) {
  y = Reshape(x, s)
  t = Add(i, i)
  z = Relu(t)
  w = Reshape(z, s)
}
"""


def test_a_table_that_takes_integers_by_accident_is_noted_until_it_says(cli):
    path = Path("acme-q.backend.yaml")
    path.write_text(QUANTIZED)
    Path("m.onnxtxt").write_text(INTEGERS.replace("Relu", "Add").replace("(t)", "(t, t)"))
    out = cli("check", str(path))[1].splitlines()
    assert out[0].startswith("note: Add, Relu, Reshape also take nodes of integers, such as int64, because ")
    assert cli("check", str(path), "m.onnxtxt")[1].splitlines()[-2].strip() == (
        "note: 3 accepted nodes compute in integers that no type of the file lists (2 x Add, 1 x Reshape); "
        "`integers: refuse` leaves such nodes to others, `integers: accept` says that they are meant"
    )
    for said, accepted in (("refuse", "Add       0         2"), ("accept", "Add       2         0")):
        path.write_text(QUANTIZED + f"integers: {said}\n")
        out = cli("check", str(path), "m.onnxtxt")[1]
        assert "note" not in out
        assert accepted in out
    assert json.loads(cli("check", str(path), "--json")[1])["notes"] == []


def test_a_mistake_is_named_with_its_line(documented, cli):
    path = Path("npu.backend.yaml")
    path.write_text(path.read_text().replace("  Conv,", "  Conv2d,"))
    code, _, err = cli("check", "npu.backend.yaml")
    assert code == 1
    assert re.match(r"error: npu.backend.yaml:\d+: unknown operator 'Conv2d'", err)


BROKEN = {
    "engine": ("engines: [onnxruntime-cpu]", "engines: [onnxruntime-cup]", "(did you mean 'onnxruntime-cpu'?)"),
    "strategy": ("strategy: autocast", "strategy: autocsat", "unknown strategy 'autocsat' (did you mean 'autocast'?)"),
    "partitioner": (
        "strategy: autocast",
        "strategy: autocast, regions: topologic",
        "unknown partitioner 'topologic' (did you mean 'topological'?)",
    ),
    "range": ("{policy: lower}", "{shape: {X: N C KH KW}, limits: {KH: 1-7}}", "'1-7' is no range; did you mean 1..7?"),
    "word": ("{policy: lower}", "{shape: {X: N C KH KW}, limits: {KH: 7x}}", "'7x' is neither a number nor a range"),
    "observer": (
        "place:",
        "types: {q: {dtype: int8, observer: percntile}}\nplace:",
        "unknown observer 'percntile' (did you mean 'percentile'?)",
    ),
    "option of an observer": (
        "place:",
        "types: {q: {dtype: int8, observer: {name: percentile, precentile: 99}}}\nplace:",
        "observer 'percentile' of dovetail-quantize has no option 'precentile' (did you mean 'percentile'?)",
    ),
    "opset": ("opset: 13..22", "opset: 13..99", "opset 99 does not exist; onnx "),
    "fusion": ("place:", "prepare: [fuse-gelo]\nplace:", "unknown fusion 'fuse-gelo' (did you mean 'fuse-gelu'"),
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_what_no_compilation_would_notice_is_named_with_its_line(mistake, documented, cli):
    before, after, says = BROKEN[mistake]
    path = Path("npu.backend.yaml")
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after).replace("Conv, Relu, Add, MaxPool:", "Conv:"))
    code, out, err = cli("check", "npu.backend.yaml")
    assert (code, out) == (1, "")
    assert re.match(r"error: npu.backend.yaml:\d+: ", err)
    assert says in err


@pytest.mark.parametrize("broken", ["ops: {Conv2d: {}}", "emit: {engines: [onxruntime-cpu]}", "opset: 13..99"])
def test_every_variant_is_checked_also_one_that_is_not_selected(broken, documented, cli):
    path = Path("npu.backend.yaml")
    variant = f"options: {{march: [one, two]}}\nvariants:\n  - {{when: {{march: two}}, {broken}}}\n"
    path.write_text(path.read_text() + variant)
    code, _, err = cli("check", "npu.backend.yaml")
    assert code == 1
    assert re.match(r"error: npu.backend.yaml:\d+: ", err)
