"""What an hb_mapper YAML file does here, key by key and word by word, and what is said where it does nothing."""

from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.planning import assumed
from dovetail_bpu_int8.vendor.calibration import TYPES
from dovetail_bpu_int8.vendor.keys import KEYS
from dovetail_bpu_int8.vendor.marches import MARCHES
from dovetail_bpu_int8.vendor.optimization import WORDS

from .vendor_files import NET, asked, bpu, model_of, planned, yaml

DEFAULT = "one act mid pool two three"  # the Softmax is manual, and an activation ends no region

# word of `optimization`: march, and the requests that it becomes as selector, ports, format; or a part of the note
OPTIMIZATION = {
    "set_all_nodes_int16": [("*", "all", "int16")],
    "set_model_output_int8": [("*", "model_outputs", "int8")],
    "set_model_output_int16": [("*", "model_outputs", "int16")],
    "set_Conv_input_int16": [("type:Conv", "in", "int16")],
    "set_Conv_output_int16": [("type:Conv", "out", "int16")],
    "set_Softmax_input_int8": [("type:Softmax", "in", "int8"), ("type:Softmax", "on", "bpu")],
    "set_Softmax_output_int8": [("type:Softmax", "out", "int8"), ("type:Softmax", "on", "bpu")],
    "bias_correction": [],
    "run_fast": "random numbers",
    "asymmetric": [],
    "lstm_batch_last": "it changes how the BPU computes an LSTM, and no numbers",
}


def test_the_table_has_every_word():
    assert {word for word in OPTIMIZATION if not word.startswith(("set_Conv", "set_Softmax"))} == set(WORDS)


@pytest.mark.parametrize("word", OPTIMIZATION)
def test_words_of_optimization(tmp_path, word):
    plan = planned(yaml(tmp_path, calibration=f"optimization: {word}"))
    effect, found = OPTIMIZATION[word], asked(plan)
    requests = [
        (one["node"], one.get("ports", "on"), one.get("format", one.get("on"))) for one in found.get("requests", [])
    ]
    assert requests == (effect if isinstance(effect, list) else [])
    assert all(request["asked"] == f"config.yaml:4, optimization {word}" for request in found.get("requests", []))
    if isinstance(effect, str):
        assert any(effect in note for note, _ in found["notes"])


def test_bias_correction_is_a_refinement(tmp_path):
    path = yaml(tmp_path, calibration="optimization: bias_correction")
    assert planned(path).request.options["refine"] == {"steps": ["bias"]}


def test_asymmetric_activations_have_a_zero_point(tmp_path):
    path = yaml(tmp_path, calibration="calibration_type: max\noptimization: asymmetric")
    assert backend_options(planned(path))["activations"] == "asymmetric"
    body = "{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b) [act] r = Relu (a) [two] y = Conv (r, v) }"
    data = {"x": np.random.default_rng(0).standard_normal((1, 8, 16, 16)).astype(np.float32)}
    compiled = dovetail.compile(model_of(body), hb_yaml=path, data=data)
    (held,) = compiled.plan.values["r"]
    assert (held["format"], held["zero_point"]) == ("int8[asymmetric]", -128)
    assert compiled.verification.worst_snr_db > 20


def test_words_stand_between_commas_and_what_is_said_of_one_operator_wins(tmp_path):
    words = "set_Softmax_input_int8,set_Softmax_output_int8,set_all_nodes_int16"
    plan = planned(yaml(tmp_path, calibration=f"optimization: {words}"))
    assert [request["node"] for request in asked(plan)["requests"]] == [
        "*",
        "type:Softmax",
        "type:Softmax",
        "type:Softmax",
    ]
    assert [str(node.precision) for node in plan.nodes if node.name == "soft"] == ["int8[symmetric]"]
    assert [str(node.precision) for node in plan.nodes if node.name == "act"] == ["int16[symmetric]"]


PLACED = {  # what a file says: nodes on the BPU
    "nothing": ({}, DEFAULT),
    "softmax by its words": (
        {"calibration": "optimization: set_Softmax_input_int8"},
        "one act mid pool two soft three",
    ),
    "softmax by name": ({"calibration": "run_on_bpu: 'soft'"}, "one act mid pool two soft three"),
    "softmax in node_info": ({"model": "node_info: {'soft': {'ON': 'BPU'}}"}, "one act mid pool two soft three"),
    "ON without quotes, which is a word of YAML": (
        {"model": "node_info:\n  soft:\n    ON: BPU"},
        "one act mid pool two soft three",
    ),
    "a list of names": ({"calibration": "run_on_cpu: 'one; act'"}, "mid pool two three"),
    "node_info wins over run_on_cpu": (
        {"calibration": "run_on_cpu: soft;act", "model": "node_info: {soft: {'ON': 'BPU'}}"},
        "one mid pool two soft three",
    ),
    "node_info wins over run_on_bpu": (
        {"calibration": "run_on_bpu: soft", "model": "node_info: {soft: {'ON': 'CPU'}}"},
        DEFAULT,
    ),
    "selectors by operator": ({"calibration": "run_on_bpu: 'type:Softmax'"}, "one act mid pool two soft three"),
    "a pattern": ({"calibration": "run_on_cpu: 't*'"}, "one act mid"),
    "the activation at the end": (
        {"calibration": "optimization: set_model_output_int8"},
        "one act mid pool two three tail",
    ),
}


@pytest.mark.parametrize("case", PLACED)
def test_placements_that_a_file_asks_for(tmp_path, case):
    groups, expected = PLACED[case]
    assert bpu(planned(yaml(tmp_path, **groups))) == expected


def test_a_node_that_shall_be_on_the_cpu_may_go_to_another_backend(tmp_path):
    path = yaml(tmp_path, calibration="run_on_cpu: two")
    plan = planned(path, backends=["bpu-int8:march=bayes", "cpu-bf16"])
    assert {node.name: node.backend for node in plan.nodes}["two"] == "cpu-bf16"
    (remark,) = [remark for remark in plan.remarks if remark.rule == "users-choice"]
    assert remark.why == "not on bpu-int8: config.yaml:4, run_on_cpu says so"


def formats(plan, name):
    node = next(node for node in plan.nodes if node.name == name)
    return str(node.ports.get("X", node.precision)).partition("[")[0], str(node.precision).partition("[")[0]


FORMATS = {  # node_info of `act`: what it reads and gives
    "{'InputType': 'int16', 'OutputType': 'int16'}": ("int16", "int16"),
    "{'ON': 'BPU', 'InputType0': 'int16'}": ("int16", "int16"),
    "{'OutputType': 'int16'}": ("int16", "int16"),
    "{'InputType': 'int8'}": ("int8", "int8"),
}


@pytest.mark.parametrize("info", FORMATS)
def test_types_of_nodes(tmp_path, info):
    assert formats(planned(yaml(tmp_path, model=f"node_info: {{'act': {info}}}")), "act") == FORMATS[info]


@pytest.mark.parametrize("key", ["node_info", "set_node_data_type"])
def test_the_short_form_names_what_nodes_give(tmp_path, key):
    plan = planned(yaml(tmp_path, model=f"{key}: 'act:int16;two:int16'"))
    found = [(request["node"], request["ports"], request["format"]) for request in asked(plan)["requests"]]
    assert found == [("act", "out", "int16"), ("two", "out", "int16")]


# calibration_type: options of the backend, and a part of the note
CALIBRATION = {
    "default": ({}, ""),  # the candidates are compared when the model is compiled
    "mix": ({"observer": "mix"}, ""),
    "kl": ({"observer": "kl"}, ""),
    "max": ({"observer": "minmax"}, ""),
    "load": ({"observer": "kl"}, "scales of QuantizeLinear nodes in the model are taken"),
    "skip": ({"observer": "minmax"}, "thresholds come from random numbers"),
}


@pytest.mark.parametrize("kind", TYPES)
def test_calibration_types(tmp_path, kind):
    plan = planned(yaml(tmp_path, calibration=f"calibration_type: {kind}"))
    options, note = CALIBRATION[kind]
    assert backend_options(plan) == {"march": "bayes", **options}
    assert any(note in why and f"calibration_type {kind}" in why for why, _ in asked(plan)["notes"]) == bool(note)


def backend_options(plan):

    return dict(plan.request.backends[0].options)


@pytest.mark.parametrize(
    ("march", "calibration", "observer"),
    [("bayes-e", "", None), ("nash-e", "cal_data_dir: ./cal", None), ("nash-e", "", "minmax")],
)
def test_where_no_way_of_calibrating_is_written(tmp_path, march, calibration, observer):
    """hb_compile, where no samples are named either, draws random numbers."""
    plan = planned(yaml(tmp_path, march=march, calibration=calibration))
    assert backend_options(plan).get("observer") == observer


def test_max_with_a_percentile(tmp_path):
    plan = planned(yaml(tmp_path, calibration="calibration_type: max\nmax_percentile: 0.99995"))
    assert backend_options(plan) == {"march": "bayes", "observer": "percentile", "observer.percentile": "99.995"}


def test_what_the_user_writes_wins_over_the_file(tmp_path):
    path = yaml(tmp_path, calibration="calibration_type: max\nmax_percentile: 0.9999")
    plan = planned(path, backends="bpu-int8:observer=mse")
    assert backend_options(plan) == {"march": "bayes", "observer": "mse"}
    plan = planned(path, backends=["cpu-bf16", "bpu-int8:march=nash"])
    assert str(plan.request.backends[0]) == "cpu-bf16"
    assert any(
        "for march bayes-e, and --backend bpu-int8:march=nash was chosen" in why for why, _ in asked(plan)["notes"]
    )


def test_activations_per_channel_are_a_note(tmp_path):
    plan = planned(yaml(tmp_path, calibration="calibration_type: max\nper_channel: True"))
    assert any("activations have one scale each here" in why for why, _ in asked(plan)["notes"])


@pytest.mark.parametrize("name", MARCHES)
def test_every_march_of_the_vendor(tmp_path, name):
    plan = planned(yaml(tmp_path, march=name), "{ [one] y = Conv <pads = [1,1,1,1]> (x, w, b) }")
    assert backend_options(plan)["march"] == MARCHES[name].own
    assert bpu(plan) == "one"


VALUES = {"text": "'a'", "flag": "False", "whole": "1", "number": "0.5", "mapping": "{}", "list": "[]"}
NAMED = {
    "onnx_model": "model.onnx", "march": "MARCH", "node_info": "{}", "set_node_data_type": "''", "run_on_cpu": "''",
    "run_on_bpu": "''", "optimization": "''", "calibration_type": "max", "input_name": "x", "input_shape": "1x8x16x16",
    "quant_config": "{}", "cal_data_type": "float32", "cal_data_dir": "''", "optimize_level": "O2", "mean_value": "0.5",
    "scale_value": "0.5 0.5", "std_value": "0.5", "caffe_model": "''", "prototxt": "''", "norm_type": "no_preprocess",
    "max_percentile": "1.0", "preprocess_on": "False", "compile_mode": "latency", "input_type_rt": "featuremap",
    "input_type_train": "featuremap", "input_layout_train": "NCHW", "input_layout_rt": "NHWC",
}  # fmt: skip


@pytest.mark.parametrize("march", ["bayes-e", "nash-e"])
def test_every_key_is_done_or_said(tmp_path, march):
    """Each key that a tool has: done here, or in a note, or only of meaning to the vendor's compiler."""
    text, own = "", {}
    for section, keys in KEYS.items():
        text += f"{section}:\n"
        for key, known in keys.items():
            if known.tool in ("", MARCHES[march].tool) and key not in ("caffe_model", "prototxt"):
                value = NAMED.get(key, VALUES[known.takes.partition(" ")[0]])
                text += f"  {key}: {value.replace('MARCH', march)}\n"
                own[key] = known.effect
    path = tmp_path / "config.yaml"
    path.write_text(text)
    notes = [why for why, _ in asked(planned(path))["notes"]]
    for key, effect in own.items():
        empty = NAMED.get(key) == "''" or NAMED.get(key, VALUES[KEY_TYPES[key]]) == "{}"
        assert effect == "used" or empty or any(key in note for note in notes), key


KEY_TYPES = {key: known.takes.partition(" ")[0] for keys in KEYS.values() for key, known in keys.items()}


def test_notes_are_remarks_of_plans_and_lines_of_compile(tmp_path):
    path = yaml(tmp_path, calibration="calibration_type: skip\noptimization: lstm_batch_last")
    compiled = dovetail.compile(model_of("{ [one] y = Conv <pads = [1,1,1,1]> (x, w, b) }"), hb_yaml=path)
    assert any("changes how the BPU computes an LSTM" in note for note in compiled.notes())
    assert compiled.verification is not None  # on the random numbers that it was calibrated on


# --- data


def samples(folder, arrays, suffix=".npy"):
    folder.mkdir()
    for number, array in enumerate(arrays):
        if suffix == ".npy":
            np.save(folder / f"{number:03}.npy", array)
        else:
            array.tofile(folder / f"{number:03}{suffix}")


def fed(monkeypatch, path, body="{ [one] y = Conv <pads = [1,1,1,1]> (x, w, b) }"):
    """The samples that a file names, as the model reads them."""
    from dovetail_bpu_int8.vendor.hb_yaml import read_hb_yaml

    model, found = model_of(body), read_hb_yaml(path)
    return [feeds for feeds, _ in dovetail.input_data(found.data.of(model, found.inputs.of(model))).batches(model)]


IMAGES = np.random.default_rng(0).integers(0, 255, (3, 1, 8, 16, 16)).astype(np.uint8)

DATA = {  # form on disk, type, norm: what the model reads
    "arrays of NumPy": (".npy", np.float32, "", lambda image: image),
    "raw floats": (".bin", np.float32, "cal_data_type: float32", lambda image: image),
    "raw bytes": (".rgb", np.uint8, "cal_data_type: uint8", lambda image: image.astype(np.float32)),
}


@pytest.mark.parametrize("case", DATA)
def test_samples(tmp_path, monkeypatch, case):
    suffix, dtype, kind, read = DATA[case]
    samples(tmp_path / "cal", IMAGES.astype(dtype), suffix)
    path = yaml(tmp_path, calibration=f"cal_data_dir: ./cal\ncalibration_type: max\n{kind}")
    found = fed(monkeypatch, path)
    assert len(found) == 3
    for feeds, image in zip(found, IMAGES.astype(dtype), strict=True):
        np.testing.assert_array_equal(feeds["x"], read(image))


def test_a_folder_that_ends_with_f32_holds_floats(tmp_path, monkeypatch):
    samples(tmp_path / "images_f32", IMAGES.astype(np.float32), ".bin")
    path = yaml(tmp_path, calibration="cal_data_dir: ./images_f32")
    np.testing.assert_array_equal(fed(monkeypatch, path)[0]["x"], IMAGES[0].astype(np.float32))


def test_samples_are_normalized_as_the_preprocess_node_of_hb_mapper_does(tmp_path, monkeypatch):
    samples(tmp_path / "cal", IMAGES.astype(np.float32))
    channels = " ".join(str(number) for number in range(8))
    inputs = f"norm_type: data_mean_and_scale\nmean_value: {channels}\nscale_value: 0.5"
    path = yaml(tmp_path, inputs=inputs, calibration="cal_data_dir: ./cal\ncal_data_type: float32")
    means = np.arange(8, dtype=np.float32).reshape(1, 8, 1, 1)
    np.testing.assert_array_equal(fed(monkeypatch, path)[0]["x"], (IMAGES[0].astype(np.float32) - means) * 0.5)


def test_samples_for_hb_compile_are_normalized_already(tmp_path, monkeypatch):
    samples(tmp_path / "cal", IMAGES.astype(np.float32))
    inputs = "mean_value: 128\nstd_value: 58"
    path = yaml(tmp_path, march="nash-e", inputs=inputs, calibration="cal_data_dir: ./cal")
    np.testing.assert_array_equal(fed(monkeypatch, path)[0]["x"], IMAGES[0].astype(np.float32))


PIXELS = np.random.default_rng(0).integers(0, 256, (3, 1, 8, 16, 16)).astype(np.float32)


@pytest.mark.parametrize(
    ("march", "inputs", "arrays", "is_noted"),
    [
        ("bernoulli2", "norm_type: no_preprocess", PIXELS, True),
        ("nash-e", "norm_type: data_mean_and_scale\nmean_value: 128\nscale_value: 0.017", PIXELS, True),
        ("bernoulli2", "norm_type: data_mean_and_scale\nmean_value: 128\nscale_value: 0.017", PIXELS, False),
        ("bernoulli2", "norm_type: no_preprocess", PIXELS / 255, False),
        ("bernoulli2", "norm_type: no_preprocess", PIXELS - 128, False),
        ("bernoulli2", "norm_type: no_preprocess", PIXELS * 0.25, False),
        ("bernoulli2", "", PIXELS, False),
    ],
)
def test_pixels_that_nothing_normalizes_are_noted(march, inputs, arrays, is_noted, tmp_path):
    samples(tmp_path / "cal", arrays.astype(np.float32))
    path = yaml(tmp_path, march=march, inputs=inputs, calibration="cal_data_dir: ./cal\ncal_data_type: float32")
    notes = [why for why, _ in asked(planned(path)).get("notes", ()) if "holds pixels from 0 to 255" in why]
    assert len(notes) == is_noted
    if is_noted:
        assert "norm_type changes no sample here; cal/" in notes[0] and "the threshold of its input is 255" in notes[0]


def test_data_of_the_user_wins(tmp_path):
    samples(tmp_path / "cal", IMAGES.astype(np.float32))
    path = yaml(tmp_path, calibration="cal_data_dir: ./cal")
    body = "{ [one] y = Conv <pads = [1,1,1,1]> (x, w, b) }"
    of_file = dovetail.compile(model_of(body), hb_yaml=path).plan.values
    own = dovetail.compile(model_of(body), hb_yaml=path, data={"x": np.ones((1, 8, 16, 16), np.float32)}).plan.values
    assert of_file != own


LACKING = {  # what is lacking: lines of calibration_parameters, and what is said
    "no folder is named": ("cal_data_type: float32", "config.yaml: cal_data_dir is not given"),
    "the folder is not there": ("cal_data_dir: ./nowhere", "config.yaml:4, cal_data_dir: './nowhere' is not there"),
    "images": ("cal_data_dir: ./cal", "config.yaml:4, cal_data_dir: images such as cat.jpg are not read here"),
    "images to resize": (
        "cal_data_dir: ./cal\npreprocess_on: True",
        "config.yaml:4, preprocess_on: images are neither read nor resized",
    ),
}


@pytest.mark.generated
@pytest.mark.parametrize("case", LACKING)
def test_without_samples_a_plan_has_a_note_and_a_compilation_says_what_it_lacks(tmp_path, case):
    lines, text = LACKING[case]
    Path(tmp_path, "cal").mkdir()
    Path(tmp_path, "cal", "cat.jpg").write_bytes(b"")
    path = yaml(tmp_path, calibration=lines)
    assert any(text in why for why, _ in asked(planned(path))["notes"])
    with pytest.raises(dovetail.DovetailError) as error:
        dovetail.compile(model_of(), hb_yaml=path)
    assert text in error.value.message
    assert "--data" in error.value.hint
    compiled = dovetail.compile(model_of(), hb_yaml=path, data={"x": np.ones((1, 8, 16, 16), np.float32)})
    assert not any(text in note for note in compiled.notes())


# --- bad input

HB, X5 = "model_parameters:\n  march: bayes\n", "model_parameters:\n  march: bayes-e\n"
CAL = f"{HB}calibration_parameters:\n"

BAD = {  # file, from line 1: line, a part of the message, a part of the hint
    "no YAML": ("model_parameters:\n  march: 'bayes\n", 3, "not YAML", "mend this line"),
    "empty": ("", 0, "the file is empty", "name the file"),
    "a list": ("- march\n", 1, "a list stands where 'key: value' pairs are expected", ""),
    "no march": ("model_parameters:\n  onnx_model: m.onnx\n", 2, "march is missing", "bayes-e"),
    "no model parameters": ("compiler_parameters: {}\n", 1, "model_parameters is missing", ""),
    "unknown march": (
        "model_parameters:\n  march: bayes_e\n",
        2,
        "'bayes_e' is not known (did you mean 'bayes-e'",
        "",
    ),
    "key twice": (
        HB + "  march: nash-e\n",
        3,
        "'march' is given twice (first on line 2)",
        "remove one",
    ),
    "unknown key": (
        HB + "  onx_model: m.onnx\n",
        3,
        "unknown key 'onx_model'",
        "onnx_model",
    ),
    "no compile mode": (
        HB + "compiler_parameters: {compile_mode: fast}\n",
        3,
        "compile_mode: 'fast' is not known",
        "it is latency, bandwidth, balance",
    ),
    "no type of an input": (
        HB + "input_parameters: {input_type_rt: nv13}\n",
        3,
        "input_type_rt: 'nv13' is not known (did you mean 'nv12'?)",
        "featuremap",
    ),
    "one node on both": (
        HB + "calibration_parameters: {run_on_cpu: one, run_on_bpu: 'two;one'}\n",
        3,
        "'one' is in run_on_cpu and in run_on_bpu",
        "leave it out of one of them",
    ),
    "key of another group": (
        HB + "  jobs: 8\n",
        3,
        "'jobs' belongs under compiler_parameters",
        "move it",
    ),
    "unknown group": (
        "model_parameter:\n  march: bayes\n",
        1,
        "'model_parameter' (did you mean 'model_parameters'",
        "",
    ),
    "key of hb_compile": (
        X5 + "compiler_parameters:\n  cache_mode: enable\n",
        4,
        "'cache_mode' is a key of hb_compile, and march 'bayes-e' is compiled by hb_mapper",
        "remove it",
    ),
    "level of hb_mapper": (
        "model_parameters:\n  march: nash-e\ncompiler_parameters:\n  optimize_level: O3\n",
        4,
        "optimize_level 'O3' is none of hb_compile",
        "O0, O1, O2",
    ),
    "too many cores": (
        X5 + "compiler_parameters:\n  core_num: 2\n",
        4,
        "uses one core",
        "",
    ),
    "a quant_config": (
        "{'model_config': {'all_node_type': 'int16'}}",
        1,
        "belongs to a quant_config",
        "--quant-config",
    ),
    "Caffe": (
        HB + "  caffe_model: a.caffemodel\n",
        3,
        "Caffe models are not read here",
        "ONNX",
    ),
    "wrong type": (
        HB + "  layer_out_dump: 3\n",
        3,
        "the number 3 stands where a flag",
        "",
    ),
    "unknown word": (
        CAL + "  optimization: set_model_output_int32\n",
        4,
        "unknown word 'set_model_output_int32' (did you mean 'set_model_output_int",
        "",
    ),
    "unknown calibration": (
        CAL + "  calibration_type: maxx\n",
        4,
        "calibration_type 'maxx' is not known (did you mean 'max'",
        "",
    ),
    "percent": (
        CAL + "  calibration_type: max\n  max_percentile: 99.99\n",
        5,
        "max_percentile 99.99 is not a share from 0.5 to 1",
        "write 0.9999",
    ),
    "int16 on X3": (
        "model_parameters:\n  march: bernoulli2\ncalibration_parameters:\n  optimization: set_all_nodes_int16\n",
        4,
        "march 'bernoulli2' has no int16",
        "it computes int8",
    ),
    "float16 on X5": (
        X5 + "  node_info: {act: {'InputType': float16}}\n",
        3,
        "march 'bayes-e' has no float16",
        "int8, int16",
    ),
    "unknown node": (
        HB + "  node_info:\n    sotf: {'ON': 'BPU'}\n",
        4,
        "node_info: the model has no node 'sotf'",
        "did you mean 'soft'",
    ),
    "unknown operator": (
        CAL + "  optimization: set_Sotfmax_input_int8\n",
        4,
        "there is no operator 'Sotfmax'",
        "did you mean 'Softmax'",
    ),
    "neither BPU nor CPU": (
        HB + "  node_info: {act: {'ON': 'GPU'}}\n",
        3,
        "ON is BPU or CPU, not 'GPU'",
        "",
    ),
    "a type of the CPU": (
        HB + "  node_info: {act: {'ON': 'CPU', 'InputType': int16}}\n",
        3,
        "'act' is on the CPU, which computes in float32",
        "ON: BPU",
    ),
    "a type of one output": (
        HB + "  node_info: {act: {'OutputType0': int16}}\n",
        3,
        "unknown key 'OutputType0' of 'act'",
        "OutputType is that of all outputs",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_may_be_wrong_with_a_file(tmp_path, case):
    text, line, message, hint = BAD[case]
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(dovetail.DovetailError) as error:
        planned(path, NET)
    assert error.value.message.startswith(f"config.yaml:{line}" if line else "config.yaml: ")
    assert message in error.value.message
    assert hint in error.value.hint


DECLINED = {  # what the file says: march, and what the remark on the Softmax says that the vendor's tool does
    "node_info": ("bayes-e", {"model": "node_info: {soft: {'ON': 'BPU'}}"}, 3, "hb_mapper warns, and leaves it on"),
    "with types": (
        "bayes-e", {"model": "node_info: {soft: {'ON': 'BPU', 'InputType': 'int16', 'OutputType': 'int16'}}"}, 3,
        "hb_mapper warns, and leaves it on",
    ),
    "run_on_bpu": ("bayes-e", {"calibration": "run_on_bpu: soft"}, 4, "hb_mapper warns, and leaves it on"),
    "run_on_bpu beside node_info": ("bayes-e", {"model": "run_on_bpu: soft"}, 3, "hb_mapper warns, and leaves it on"),
    "run_on_bpu on X3": ("bernoulli2", {"calibration": "run_on_bpu: soft"}, 4, "or fails, as its FAQ"),
    # a public guide for X3 asks for a Softmax in this way
    "node_info with int16 on X3": (
        "bernoulli2", {"model": "node_info: {soft: {'ON': 'BPU','InputType': 'int16','OutputType': 'int16'}}"}, 3,
        "hb_mapper warns, and leaves it on",
    ),
    "on J6": ("nash-e", {"model": "node_info: {soft: {'ON': 'BPU'}}"}, 3, "hb_compile warns, and leaves it on"),
}  # fmt: skip
RANK_2 = """{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b) [flat] f = Reshape (a, rows) [soft] s = Softmax <axis = 1> (f)
              [back] m = Reshape (s, image) [two] y = Conv (m, v) }"""
RANK_2_HEADER = """(float[1,8,16,16] x) => (float[1,8,16,16] y)
    <float[8,8,3,3] w, float[8,8,1,1] v, float[8] b, int64[2] rows = {8, 256}, int64[4] image = {1, 8, 16, 16}>"""


@pytest.mark.parametrize("case", DECLINED)
def test_what_the_vendors_tool_warns_of_is_declined_with_a_note(tmp_path, case):
    """No march runs a Softmax of two axes."""
    march, groups, line, does = DECLINED[case]
    path = yaml(tmp_path, march=march, **groups)
    plan = dovetail.plan(model_of(RANK_2, RANK_2_HEADER), hb_yaml=path)
    assert "soft" not in bpu(plan).split()
    (remark,) = [one for one in plan.remarks if one.rule == "declined" and one.node == "soft"]
    assert remark.why.startswith(f"config.yaml:{line}, ")
    limit = "input has 2 extents" if march == "bernoulli2" else "input.rank = 2; allowed: 3..4"
    assert limit in remark.why and does in remark.why
    (note,) = [why for why in assumed(plan.remarks) if "declines 1 node that the file asks for: 'soft'" in why]
    assert f"(config.yaml:{line}, " in note


def test_a_pin_of_ones_own_wins_over_a_file_and_is_an_error(tmp_path):
    path = yaml(tmp_path, model="node_info: {soft: {'ON': 'BPU'}}")
    with pytest.raises(dovetail.DovetailError, match="bpu-int8 refuses 'soft'"):
        dovetail.plan(model_of(RANK_2, RANK_2_HEADER), hb_yaml=path, pins=["soft=bpu-int8"])


def test_a_declined_node_is_not_asked_for_in_the_files_that_are_written(tmp_path):
    path = yaml(tmp_path, model="node_info: {soft: {'ON': 'BPU'}}", calibration="calibration_type: skip")
    compiled = dovetail.compile(model_of(RANK_2, RANK_2_HEADER), hb_yaml=path, verify=False)
    compiled.save(tmp_path / "out")
    written = (tmp_path / "out/artifacts/bpu-int8/model/config.yaml").read_text()
    assert "soft" not in written
    again = dovetail.plan(
        tmp_path / "out/artifacts/bpu-int8/model/model.onnx",
        hb_yaml=tmp_path / "out/artifacts/bpu-int8/model/config.yaml",
    )
    assert bpu(again) == bpu(compiled.plan)


def test_int16_of_a_node_on_x3_is_a_note(tmp_path):
    plan = planned(yaml(tmp_path, march="bernoulli2", model="node_info: {act: {'InputType': int16}}"))
    assert asked(plan).get("requests") is None
    (note,) = [why for why, _ in asked(plan)["notes"] if "int16" in why]
    assert note == "config.yaml:3, node_info InputType: march 'bernoulli2' has no int16, so 'act' stays in int8"


def test_lists_of_nodes_beside_node_info_are_taken_with_a_note(tmp_path):
    plan = planned(yaml(tmp_path, model="run_on_cpu: act\nrun_on_bpu: soft"))
    assert "soft" in bpu(plan).split() and "act" not in bpu(plan).split()
    notes = [why for why, _ in asked(plan)["notes"]]
    assert [note for note in notes if "the manuals have it under calibration_parameters" in note] == [
        "config.yaml:3, run_on_cpu: the manuals have it under calibration_parameters",
        "config.yaml:4, run_on_bpu: the manuals have it under calibration_parameters",
    ]


def test_an_operator_that_the_model_lacks_is_a_note(tmp_path):
    plan = planned(yaml(tmp_path, calibration="optimization: set_LSTM_input_int16"))
    assert asked(plan).get("requests") is None
    assert any("the model has no LSTM" in why for why, _ in asked(plan)["notes"])


def test_a_softmax_that_the_bpu_cannot_compute_stays_where_it_is(tmp_path):
    path = yaml(tmp_path, march="bernoulli2", calibration="optimization: set_Softmax_input_int8")
    assert "soft" not in bpu(planned(path)).split()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a": [(1, 8, 16, 16)], "b": []}, "has no files"),
        ({"a": [(1, 8, 16, 16)]}, "cal_data_dir names 2 folders, and the model has 1 input"),
        ({"a": [(1, 8, 16, 15)]}, "has 1920 bytes, which are 1920 numbers in uint8"),
    ],
)
def test_samples_that_do_not_fit(tmp_path, monkeypatch, files, message):
    for name, shapes in files.items():
        samples(tmp_path / name, [np.zeros(shape, np.uint8) for shape in shapes], ".bin")
    names = "; ".join(files) if len(files) > 1 or "numbers" in message else "a; a"
    path = yaml(tmp_path, calibration=f"cal_data_dir: {names}\ncal_data_type: uint8")
    if message == "has no files":
        path = yaml(tmp_path, calibration="cal_data_dir: b\ncal_data_type: uint8")
    with pytest.raises(dovetail.DovetailError, match=message):
        fed(monkeypatch, path)


def test_what_is_said_twice_and_is_the_same_is_taken(tmp_path):
    """A file of the zoo has a node twice, and the vendor's tool takes it."""
    path = tmp_path / "twice.yaml"
    path.write_text(
        HB.replace("bernoulli2", "bayes-e")
        + "  node_info:\n    one: {ON: CPU}\n    two: {ON: CPU}\n    one: {ON: CPU}\n"
    )
    plan = dovetail.plan(model_of(), hb_yaml=path)
    assert {node.name: node.backend for node in plan.nodes}["one"] == "host"
