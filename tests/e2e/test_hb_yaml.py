"""`--hb-yaml`: a file as the vendor's users have it, from the command line to results."""

import json
import shutil
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main

DIGITS = Path(__file__).parents[2] / "examples" / "digits"

CONFIG = """# hb_mapper makertbin --model-type onnx --config config.yaml
model_parameters:
  onnx_model: './digits.onnx'
  march: "bayes-e"
  layer_out_dump: False
  working_dir: 'model_output'
  output_model_file_prefix: 'digits_8x8'

input_parameters:
  input_name: ""
  input_type_rt: 'gray'
  input_type_train: 'gray'
  input_layout_train: 'NCHW'
  input_shape: '1x1x8x8'
  norm_type: 'data_scale'
  scale_value: 0.003921568627451

calibration_parameters:
  cal_data_dir: './calibration_data_f32'
  cal_data_type: 'float32'
  calibration_type: 'max'
  max_percentile: 0.99999
  optimization: 'set_Softmax_input_int8,set_Softmax_output_int8'

compiler_parameters:
  compile_mode: 'latency'
  debug: False
  core_num: 1
  optimize_level: 'O3'
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a model, samples from 0 to 255, and the file; the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    Path("config.yaml").write_text(CONFIG)
    Path("calibration_data_f32").mkdir()
    images = np.load(DIGITS / "test.npz")["image"]
    for number, image in enumerate(images[:120]):
        (image * 255).astype(np.float32).tofile(Path("calibration_data_f32", f"{number:04}.bin"))
    return tmp_path


def test_a_file_alone_is_enough(project, capsys):
    assert main(["compile", "--hb-yaml", "config.yaml", "-o", "out"]) == 0
    shown = capsys.readouterr().out
    assert "of 120 batches, held out from calibration" in shown
    assert "bpu-int8" in shown.splitlines()[-1]
    assert "note: config.yaml:15: samples are normalized accordingly" in shown
    assert "compile_mode, debug, core_num, optimize_level mean something to the vendor's compiler alone" in shown
    compiled = dovetail.load("out")
    data = np.load(DIGITS / "test.npz")
    found = [compiled.run({"image": image[None]})["probabilities"].argmax() for image in data["image"][:200]]
    assert np.mean(np.array(found) == data["labels"][:200]) > 0.97


def test_plan_and_python(project, capsys):
    assert main(["plan", "--hb-yaml", "config.yaml", "-o", "plan.yaml"]) == 0
    plan = dovetail.plan("digits.onnx", hb_yaml="config.yaml")
    saved = dovetail.compile("digits.onnx", plan="plan.yaml", data=DIGITS / "test.npz", fix_shapes={"image": "1x1x8x8"})
    assert "bpu-int8" in saved.coverage()
    assert [str(one) for one in plan.request.backends] == [
        "bpu-int8:march=bayes,observer=percentile,observer.percentile=99.999"
    ]


@pytest.mark.slow
def test_the_same_file_gives_the_same_result(project, capsys):
    first = dovetail.compile("digits.onnx", hb_yaml="config.yaml")
    first.save("out")
    before = Path("out/result.json").read_bytes()
    dovetail.compile("digits.onnx", hb_yaml="config.yaml").save("again")
    assert Path("again/result.json").read_bytes() == before


def test_other_backends_stand_behind_it(project, capsys):
    assert main(["plan", "--hb-yaml", "config.yaml", "--backend", "cpu-bf16", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in plan["backends"]] == ["bpu-int8", "cpu-bf16"]


@pytest.mark.slow
def test_goals_are_measured_on_the_samples_that_the_file_names(project, capsys):
    assert main(["compile", "--hb-yaml", "config.yaml", "--min-snr", "30", "-o", "out"]) == 0
    assert "SNR" in capsys.readouterr().out.splitlines()[-1]


BAD = [  # a line of the file, what it becomes, exit code, message
    ("onnx_model: './digits.onnx'", "onnx_model: './digit.onnx'", "config.yaml:3: onnx_model: there is no file"),
    ('march: "bayes-e"', 'march: "bayes-f"', "config.yaml:4: march 'bayes-f' is not known"),
    (
        "input_shape: '1x1x8x8'",
        "input_shape: '1x3x8x8'",
        "config.yaml:14: input_shape: 'image' is ?x1x8x8 in",
    ),
    ("core_num: 1", "core_nums: 1", "config.yaml:28: unknown key 'core_nums'"),
    ("cal_data_type: 'float32'", "cal_data_type: 'uint8'", "which are 256 numbers in uint8"),
]


@pytest.mark.generated
@pytest.mark.parametrize(("line", "other", "message"), BAD)
def test_what_is_wrong_is_said_with_its_line_and_touches_nothing(project, capsys, line, other, message):
    assert main(["compile", "--hb-yaml", "config.yaml", "-o", "out"]) == 0
    before = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    assert line in CONFIG
    Path("config.yaml").write_text(CONFIG.replace(line, other))
    capsys.readouterr()
    assert main(["compile", "--hb-yaml", "config.yaml", "-o", "out"]) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown
    assert {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()} == before


def test_a_file_that_is_not_there(project, capsys):
    assert main(["compile", "--hb-yaml", "other.yaml", "-o", "out"]) == 1
    assert "other.yaml: cannot be read: No such file" in capsys.readouterr().err


def test_explain_names_the_line_of_the_file(project, capsys):
    text = CONFIG.replace("  cal_data_type", "  run_on_cpu: 'conv_2'\n  cal_data_type")
    Path("config.yaml").write_text(text)
    assert main(["compile", "--hb-yaml", "config.yaml", "-o", "out"]) == 0
    capsys.readouterr()
    assert main(["explain", "out", "conv_2"]) == 0
    assert "config.yaml:20, run_on_cpu" in capsys.readouterr().out
