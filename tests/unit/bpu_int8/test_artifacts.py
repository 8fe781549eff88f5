"""The files for the vendor's tools: what stands in them, and that they bring every node where it was settled."""

import json
import os
from pathlib import Path

import dovetail
import numpy as np
import onnx
import pytest
import yaml as pyyaml
from dovetail.ir import Format
from dovetail.planning import Parameters, QuantizedValue
from dovetail_bpu_int8.vendor.hb_yaml import read_hb_yaml
from dovetail_bpu_int8.vendor.settled import threshold

from .vendor_files import NET, bpu, model_of, yaml

RESIDUAL = """{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b) [act] r = Relu (a) [two] c = Conv (r, v)
                [add] d = Add (c, r) [sig] e = Sigmoid (d) [three] y = Conv (e, v) }"""
CONCAT = """{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b) [two] c = Conv (a, v) [join] y = Concat <axis = 1> (a, c) }"""
TURNED = """{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b) [turn] t = Transpose <perm = [0,2,3,1]> (a)
              [soft] s = Softmax <axis = 3> (t) [back] u = Transpose <perm = [0,3,1,2]> (s) [two] y = Conv (u, v) }"""
NETS = {"net": NET, "residual": RESIDUAL, "concat": CONCAT, "turned": TURNED}

ASKED = {  # what is asked for: keyword arguments of compile
    "nothing": {},
    "a softmax": {"pins": ("soft=bpu-int8",)},
    "int16": {"int16": ("type:Conv",)},
    "one node in int16": {"int16": ("one",)},
    "the CPU": {"pins": ("two=host",)},
    "an edit": {"edits": ("bpu-unit-conv=one:after",)},
}
DATA = [{"x": np.random.default_rng(n).standard_normal((1, 8, 16, 16)).astype(np.float32)} for n in range(3)]


def emitted(folder, body, march, **request):
    compiled = dovetail.compile(
        model_of(body), f"bpu-int8:march={march},observer=kl", data=DATA, verify=False, **request
    )
    compiled.save(folder / "out")
    return compiled, folder / "out" / "artifacts" / "bpu-int8" / "model"


def settled(plan):
    return {
        node.name: (node.backend, str(node.precision), {port: str(format_) for port, format_ in node.ports.items()})
        for node in plan.nodes
        if node.backend == "bpu-int8"
    }


CASES = [
    (net, march, case)
    for net in NETS
    for march in ("bernoulli2", "bayes", "nash")
    for case in ASKED
    if not ("int16" in case and march == "bernoulli2")
    and not (case == "a softmax" and ("soft" not in NETS[net] or march == "bernoulli2"))
]
SOME = CASES if os.environ.get("DOVETAIL_SLOW") == "1" else [*CASES[::7], ("net", "bayes", "a softmax")]


@pytest.mark.generated
@pytest.mark.parametrize(("net", "march", "case"), SOME)
def test_the_written_files_read_back_give_the_same_placements_and_formats(tmp_path, net, march, case):
    compiled, folder = emitted(tmp_path, NETS[net], march, **ASKED[case])
    again = dovetail.plan(folder / "model.onnx", hb_yaml=folder / "config.yaml")
    assert settled(again) == settled(compiled.plan)
    assert bpu(again)
    assert not [remark.why for remark in compiled.remarks if remark.rule == "artifact"]


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("word", ["set_model_output_int8", "set_model_output_int16"])
@pytest.mark.parametrize("net", ["net", "concat"])
def test_outputs_in_integers_read_back(tmp_path, net, word):
    path = yaml(tmp_path, calibration=f"optimization: {word}\ncalibration_type: max")
    compiled = dovetail.compile(model_of(NETS[net]), hb_yaml=path, data=DATA, verify=False)
    compiled.save(tmp_path / "out")
    folder = tmp_path / "out/artifacts/bpu-int8/model"
    assert word in (folder / "config.yaml").read_text()
    again = dovetail.plan(folder / "model.onnx", hb_yaml=folder / "config.yaml")
    assert settled(again) == settled(compiled.plan)


def test_a_node_where_the_tool_puts_it_by_itself_is_not_mentioned(tmp_path):
    _, folder = emitted(tmp_path, NET, "bayes")
    assert "node_info" not in pyyaml.safe_load((folder / "config.yaml").read_text())["model_parameters"]


NODE_INFO = {  # what is asked for: node_info that is written
    "a pin": ({"pins": ("soft=bpu-int8",)}, {"soft": {"ON": "BPU"}}),
    "the CPU": ({"pins": ("mid=host",)}, {name: {"ON": "CPU"} for name in ("act", "mid", "pool")}),
    "int16": (
        {"int16": ("act",)},
        {"one": {"OutputType": "int16"}, "act": {"InputType": "int16", "OutputType": "int16"},
         "mid": {"InputType": "int16"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NODE_INFO)
def test_node_info(tmp_path, case):
    request, expected = NODE_INFO[case]
    _, folder = emitted(tmp_path, NET, "bayes", **request)
    assert pyyaml.safe_load((folder / "config.yaml").read_text())["model_parameters"]["node_info"] == expected


def test_the_tool_of_x3_knows_lists_of_nodes_alone(tmp_path):
    request = {"pins": ("one=host", "tail=bpu-int8")}
    _, folder = emitted(tmp_path, NET, "bernoulli2", **request)
    document = pyyaml.safe_load((folder / "config.yaml").read_text())
    assert "node_info" not in document["model_parameters"]
    assert document["calibration_parameters"].items() >= {"run_on_cpu": "one", "run_on_bpu": "tail"}.items()


@pytest.mark.parametrize(
    ("march", "written", "other"),
    [("bernoulli2", "bernoulli2", ""), ("bayes", "bayes", "bayes-e"), ("nash", "nash-e", "nash-m")],
)
def test_the_march_is_one_that_the_tool_takes(tmp_path, march, written, other):
    _, folder = emitted(tmp_path, CONCAT, march)
    text = (folder / "config.yaml").read_text()
    assert pyyaml.safe_load(text)["model_parameters"]["march"] == written
    assert other in text.splitlines()[1]


def test_quant_config_says_the_same_for_hb_compile(tmp_path):
    request = {"pins": ("soft=bpu-int8", "one=host"), "int16": ("mid",)}
    compiled, folder = emitted(tmp_path, NET, "nash", **request)
    document = json.loads((folder / "quant_config.json").read_text())
    assert document["model_config"]["all_node_type"] == "int8"
    assert document["node_config"]["one"] == {"ON": "CPU"}
    assert document["node_config"]["mid"] == {"qtype": "int16"}
    again = dovetail.plan(folder / "model.onnx", "bpu-int8:march=nash", quant_config=folder / "quant_config.json")
    assert settled(again) == settled(compiled.plan)


def test_quant_config_is_for_hb_compile_alone(tmp_path):
    _, folder = emitted(tmp_path, NET, "bayes")
    assert sorted(path.name for path in folder.iterdir()) == ["config.yaml", "model.onnx", "thresholds.json"]


@pytest.mark.parametrize(("march", "opset"), [("bernoulli2", 11), ("bayes", 11), ("nash", 19)])
def test_the_model_is_in_float32_at_an_opset_that_the_tool_reads_and_computes_the_same(tmp_path, march, opset):
    import onnxruntime
    from dovetail_onnx.opening import open_text

    text = """<ir_version: 10, opset_import: ["": 21]>
      g (float[1,8,16,16] x) => (float[1,8,16,16] y) <float[8,8,1,1] v>
      { [one] a = Conv (x, v) [hard] h = HardSwish (a) [two] c = Conv (h, v)
        [soft] s = Softmax <axis = 1> (c) [three] y = Conv (s, v) }"""
    model = open_text(text, "m")
    import onnx_ir as ir

    weight = np.random.default_rng(2).standard_normal((8, 8, 1, 1)).astype(np.float32)
    model.graph.initializers["v"].const_value = ir.tensor(weight, name="v")
    compiled = dovetail.compile(model.clone(), f"bpu-int8:march={march},observer=kl", data=DATA, verify=False)
    compiled.save(tmp_path / "out")
    written = onnx.load(tmp_path / "out/artifacts/bpu-int8/model/model.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert [entry.version for entry in written.opset_import if entry.domain == ""][0] <= opset
    assert {node.op_type for node in written.graph.node}.isdisjoint({"QuantizeLinear", "DequantizeLinear"})
    session = onnxruntime.InferenceSession(written.SerializeToString())
    expected = dovetail.compile(model, "host").run(DATA[0])["y"]
    np.testing.assert_allclose(session.run(None, DATA[0])[0], expected, rtol=1e-4, atol=1e-5)


def test_a_model_without_a_form_at_that_opset_is_written_as_it_is_with_a_note(tmp_path):
    body = """{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b) [grid] g = GridSample (a, at) [two] y = Conv (g, v) }"""
    from dovetail_onnx.opening import open_text

    text = f"""<ir_version: 10, opset_import: ["": 20]>
      g (float[1,8,16,16] x, float[1,16,16,2] at) => (float[1,8,16,16] y)
      <float[8,8,3,3] w, float[8,8,1,1] v, float[8] b> {body}"""
    data = {**DATA[0], "at": np.zeros((1, 16, 16, 2), np.float32)}
    compiled = dovetail.compile(open_text(text, "m"), "bpu-int8:march=bayes,observer=kl", data=data, verify=False)
    (note,) = [remark.why for remark in compiled.remarks if remark.rule == "artifact"]
    assert "reads opset 11 at the highest, and model.onnx has opset" in note


def test_thresholds_are_the_largest_magnitudes_that_the_integers_hold(tmp_path):
    compiled, folder = emitted(tmp_path, NET, "bayes", pins=("soft=bpu-int8",), int16=("soft",))
    nodes = json.loads((folder / "thresholds.json").read_text())["nodes"]
    scales = {value: entries[0]["scale"] for value, entries in compiled.plan.values.items() if "scale" in entries[0]}
    assert nodes["one"]["inputs"]["0"] == pytest.approx(scales["x"] * 127)
    assert nodes["mid"]["inputs"] == nodes["act"]["outputs"]
    assert nodes["pool"]["inputs"] == nodes["pool"]["outputs"]  # a passive node has the threshold of what reads it
    assert nodes["soft"]["inputs"]["0"] == pytest.approx(scales["c"] * 32767)
    assert "1" not in nodes["one"]["inputs"]  # no weights


@pytest.mark.parametrize(("element", "highest"), [("int8", 127), ("int16", 32767)])
def test_scales_are_found_again_from_thresholds_bit_for_bit(element, highest):
    scales = np.random.default_rng(0).uniform(1e-6, 2, 300).astype(np.float32)
    numbers = Parameters(tuple(scales.tolist()), (0,) * 300)
    held = QuantizedValue("x", Format.of(f"{element}[symmetric,axis=1]"), "x", parameters=numbers)
    assert np.array_equal(np.float32(np.asarray(threshold(held)) / highest), scales)


def test_a_node_on_the_cpu_has_no_threshold_for_the_floats_that_it_gives(tmp_path):
    _, folder = emitted(tmp_path, RESIDUAL, "bernoulli2", pins=("one=host", "act=host"))
    nodes = json.loads((folder / "thresholds.json").read_text())["nodes"]
    assert "act" not in nodes
    assert nodes["two"]["inputs"]["0"] > 0, "its reader makes the integers"


def test_what_was_given_is_passed_on_and_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("cal").mkdir()
    np.save("cal/0.npy", DATA[0]["x"])
    path = yaml(
        tmp_path,
        march="bayes-e",
        model="working_dir: 'there'\nnode_info: {'soft': {'ON': 'BPU'}}",
        inputs="input_type_rt: 'featuremap'\ninput_type_train: 'featuremap'\nnorm_type: 'no_preprocess'",
        calibration="cal_data_dir: ./cal\ncal_data_type: float32\ncalibration_type: kl\n"
        "optimization: asymmetric,set_all_nodes_int16",
        rest="compiler_parameters:\n  optimize_level: 'O2'\n  jobs: 4\n",
    )
    compiled = dovetail.compile(model_of(), hb_yaml=path)
    compiled.save("out")
    document = pyyaml.safe_load(Path("out/artifacts/bpu-int8/model/config.yaml").read_text())
    assert document["model_parameters"].items() >= {
        "march": "bayes-e", "onnx_model": "./model.onnx", "working_dir": "there",
    }.items()  # fmt: skip
    assert document["input_parameters"].items() >= {
        "input_type_rt": "featuremap", "input_name": "x", "input_shape": "1x8x16x16", "input_layout_train": "NCHW",
    }.items()  # fmt: skip
    assert document["calibration_parameters"] == {
        "cal_data_dir": str(tmp_path / "cal"), "cal_data_type": "float32", "optimization": "asymmetric",
        "calibration_type": "kl",
    }  # fmt: skip
    assert document["compiler_parameters"] == {"optimize_level": "O2", "jobs": 4, "compile_mode": "latency"}
    assert read_hb_yaml(Path("out/artifacts/bpu-int8/model/config.yaml")).march.name == "bayes-e"


OBSERVERS = {
    "kl": {"calibration_type": "kl"},
    "minmax": {"calibration_type": "max"},
    "percentile,observer.percentile=99.995": {"calibration_type": "max", "max_percentile": 0.99995},
}


@pytest.mark.parametrize("observer", OBSERVERS)
def test_the_way_of_calibrating(tmp_path, observer):
    compiled = dovetail.compile(
        model_of(RESIDUAL), f"bpu-int8:march=bayes,observer={observer}", data=DATA, verify=False
    )
    compiled.save(tmp_path / "out")
    text = (tmp_path / "out/artifacts/bpu-int8/model/config.yaml").read_text()
    found = pyyaml.safe_load(text)["calibration_parameters"]
    assert found.items() >= OBSERVERS[observer].items()
    for before, name in (("out", "replayed"), ("replayed", "once-more")):
        dovetail.compile(model_of(RESIDUAL), plan=tmp_path / before / "plan.yaml", verify=False).save(tmp_path / name)
        assert (tmp_path / name / "artifacts/bpu-int8/model/config.yaml").read_text() == text


@pytest.mark.parametrize("march", ["bayes", "nash"])
def test_activations_with_a_zero_point_are_read_back(tmp_path, march):
    compiled, folder = emitted(tmp_path, NET, f"{march},activations=asymmetric")
    again = dovetail.plan(folder / "model.onnx", hb_yaml=folder / "config.yaml", quant_config=_quant_config(folder))
    assert settled(again) == settled(compiled.plan)
    assert any("int8[asymmetric]" in str(node) for node in settled(again).values())


def _quant_config(folder):
    path = folder / "quant_config.json"
    return path if path.is_file() else None


def test_names_that_yaml_reads_otherwise_are_quoted(tmp_path):
    body = NET.replace("[soft]", "[off]")
    _, folder = emitted(tmp_path, body, "bayes", pins=("off=bpu-int8",))
    again = dovetail.plan(folder / "model.onnx", hb_yaml=folder / "config.yaml")
    assert "off" in bpu(again).split()
    assert list(pyyaml.safe_load((folder / "config.yaml").read_text())["model_parameters"]["node_info"]) == ["off"]
