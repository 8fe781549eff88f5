"""The report of a result in the vendor's columns."""

import json

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail_bpu_int8.vendor import commands
from dovetail_bpu_int8.vendor.latency import known_rates
from dovetail_bpu_int8.vendor.report import hb_report

from .vendor_files import NET, model_of

DATA = [{"x": np.random.default_rng(n).standard_normal((1, 8, 16, 16)).astype(np.float32)} for n in range(3)]
COLUMNS = ["Node", "ON", "Subgraph", "Type", "Cosine Similarity", "Threshold", "In/Out DataType", "Reason"]


def compiled(body=NET, march="bayes", layers=True, backends=(), **request):
    return dovetail.compile(
        model_of(body),
        [f"bpu-int8:march={march},observer=kl", *backends],
        data=DATA,
        layers=layers,
        verify=False,
        **request,
    )


def test_where_every_node_is_and_why():
    rows = {row.node: (row.on, row.subgraph, row.type, row.types, row.reason) for row in hb_report(compiled()).nodes}
    assert rows == {
        "one": ("BPU", "id(0)", "Conv", "int8/int8", ""),
        "act": ("BPU", "id(0)", "Relu", "int8/int8", ""),
        "mid": ("BPU", "id(0)", "Conv", "int8/int8", ""),
        "pool": ("BPU", "id(0)", "MaxPool", "int8/int8", ""),
        "two": ("BPU", "id(0)", "Conv", "int8/int32", ""),  # the last of its region: its sums leave whole
        "soft": ("CPU", "--", "Softmax", "float/float", "Softmax is quantized only where somebody asks for it"),
        "three": ("BPU", "id(1)", "Conv", "int8/int32", ""),
        "tail": ("CPU", "--", "Relu", "float/float",
                 "it gives an output of the model, and only products (Conv, ConvTranspose, Gemm, MatMul), sums of two "
                 "computed images (Add, Sum), an image times a number (Mul), tables (Abs, Atan, Ceil, Cos and 14 more) "
                 "and what gives indices may end a region"),
    }  # fmt: skip


def test_conversions_at_the_borders_are_what_the_cpu_pays():
    report = hb_report(compiled())
    elements = 8 * 16 * 16
    # Into both regions integers of one byte, out of both floats of four.
    assert (report.conversions, report.converted_bytes) == (4, 2 * elements * 1 + 2 * elements * 4)
    assert report.border_line() == "Quantize and Dequantize at the borders, on the CPU: 4 values, 20.0 KiB"


def test_every_node_that_is_elsewhere_has_a_reason():
    body = """{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b) [size] n = Shape (a) [first] k = Slice (n, zero, one_)
                [rest] q = Concat <axis = 0> (k, minus) [flat] f = Reshape (a, q) [erf] e = Erf (f)
                [image] g = Reshape (e, shape) [two] y = Conv (g, v) }"""
    header = """(float[1,8,16,16] x) => (float[1,8,16,16] y) <float[8,8,3,3] w, float[8,8,1,1] v, float[8] b,
      int64[1] zero = {0}, int64[1] one_ = {1}, int64[1] minus = {-1}, int64[4] shape = {1, 8, 16, 16}> """
    for march in ("bernoulli2", "bayes", "nash"):
        result = dovetail.compile(
            model_of(body, header), [f"bpu-int8:march={march},observer=minmax"], data=DATA, verify=False,
            pins=("two=host",),
        )  # fmt: skip
        elsewhere = {row.node: row.reason for row in hb_report(result).nodes if row.on != "BPU"}
        assert {"erf", "two"} <= set(elsewhere)
        assert not [node for node, reason in elsewhere.items() if not reason]


def test_other_backends_have_their_names():
    rows = {row.node: (row.on, row.subgraph) for row in hb_report(compiled(backends=["cpu-bf16"])).nodes}
    assert rows["soft"] == ("cpu-bf16", "--")


def test_int16_in_the_types():
    rows = {row.node: row.types for row in hb_report(compiled(int16=["act"])).nodes}
    assert (rows["one"], rows["act"], rows["mid"]) == ("int8/int16", "int16/int16", "int16/int8")


def test_thresholds_are_those_of_the_first_input():
    result = compiled()
    rows = {row.node: row.threshold for row in hb_report(result).nodes}
    scales = {value: entries[0].get("scale") for value, entries in result.plan.values.items()}
    assert rows["one"] == pytest.approx(scales["x"] * 127)
    assert rows["pool"] == rows["two"]  # a passive node has the threshold of what reads it
    assert rows["soft"] is None


def test_cosine_similarities_are_those_of_the_layers():
    report = hb_report(compiled())
    rows = {row.node: row.cosine for row in report.nodes}
    assert all(0.99 < rows[name] <= 1 for name in ("one", "act", "mid", "two", "three", "tail"))
    (output,) = report.outputs
    assert (output.output, output.cosine, output.verdict) == ("y", rows["tail"], "fine")
    assert not any("cosine" in note for note in report.notes)


def test_without_them_the_column_is_left_out_and_a_line_says_how_to_get_them():
    report = hb_report(compiled(layers=False))
    assert list(report.table_rows()[0]) == [column for column in COLUMNS if column != "Cosine Similarity"]
    assert "compile ... --layers --data FILE" in report.notes[0]


def test_outputs_of_a_result_that_was_compared():
    result = dovetail.compile(model_of(), "bpu-int8:march=bayes,observer=kl", data=DATA)
    (output,) = hb_report(result).outputs
    assert output.cosine == result.verification.outputs[0].cosine


@pytest.mark.parametrize(
    ("cosine", "verdict"), [(0.995, "fine"), (0.99, "fine"), (0.9, "some loss"), (0.79, "clear loss")]
)
def test_verdicts(cosine, verdict):
    from dataclasses import replace

    result = dovetail.compile(model_of(), "bpu-int8:march=bayes,observer=kl", data=DATA)
    only = replace(result.verification.outputs[0], cosine=cosine)
    result.verification = replace(result.verification, outputs=[only])
    assert hb_report(result).outputs[0].verdict == verdict


def test_the_command(tmp_path, capsys):
    compiled().save(tmp_path / "out")
    assert main(["bpu", "report", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "Node"
    assert [title.strip() for title in lines[0].split("  ") if title.strip()] == COLUMNS
    assert lines[1].split()[:4] == ["one", "BPU", "id(0)", "Conv"]
    assert "The quantify model output:" in lines
    assert lines[lines.index("The quantify model output:") + 2].split()[0] == "y"
    assert lines[-3].endswith("fine")
    assert lines[-1].startswith("Quantize and Dequantize at the borders, on the CPU: 4 values")
    assert main(["bpu", "report", str(tmp_path / "out"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["nodes"][5]["reason"] == "Softmax is quantized only where somebody asks for it"


def test_long_names_are_cut_in_front_on_a_terminal_alone(tmp_path, capsys, monkeypatch):
    name = "backbone_stage_four_block_seven_convolution"
    compiled(NET.replace("[one]", f"[{name}]"), layers=False).save(tmp_path / "out")
    assert main(["bpu", "report", str(tmp_path / "out")]) == 0
    assert name in capsys.readouterr().out
    monkeypatch.setattr(commands.sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["bpu", "report", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert name not in shown
    assert f"...{name[-27:]}" in shown


def test_a_result_for_something_else(tmp_path, capsys):
    dovetail.compile(model_of(), "host").save(tmp_path / "out")
    assert main(["bpu", "report", str(tmp_path / "out")]) == 1
    assert "the result is for host, and not for bpu-int8" in capsys.readouterr().err
    assert main(["bpu", "report", str(tmp_path / "nowhere")]) == 1
    assert "no such file or folder" in capsys.readouterr().err


def test_python_users_have_it_beside_the_other_functions(tmp_path):
    compiled(layers=False).save(tmp_path / "out")
    assert dovetail.hb_report(tmp_path / "out").nodes[0].on == "BPU"


def test_latency_is_predicted_for_every_subgraph():
    report = hb_report(compiled(march="bayes,arithmetic=floats", layers=False))
    rates = known_rates()["bayes"]
    one, two = report.predictions
    assert [prediction.subgraph for prediction in report.predictions] == ["id(0)", "id(1)"]
    assert one.fps == pytest.approx(1e6 / one.latency) and one.latency > two.latency > 0
    assert one.line().startswith("id(0): 0.0") and one.line().endswith(") from and to memory")
    assert any(f"predicted for {rates.device} by a model of {rates.nets} nets" in note for note in report.notes)
    assert report.as_dict()["predictions"][0]["ddr"] == one.ddr


def test_a_march_without_figures_has_no_prediction():
    report = hb_report(compiled(march="nash", layers=False))
    assert not report.predictions
    assert any("no public figures with logs of nash" in note for note in report.notes)


def test_operators_in_several_nodes_are_not_predicted():
    report = hb_report(compiled(layers=False))
    assert not report.predictions
    assert any("--backend bpu-int8:march=bayes,arithmetic=floats" in note for note in report.notes)
