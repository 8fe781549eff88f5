"""Commands that messages suggest repeat the request they are about, ready to be copied."""

import shlex

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.passes import Request
from dovetail.plugin import load_plugins
from dovetail_commands.request import command_text

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[n,4] x) => (float[n,4] y) <float[4,4] w = {1,0,0,0, 0,2,0,0, 0,0,3,0, 0,0,0,4}>
{ [dense] a = MatMul (x, w)  [relu] y = Sigmoid (a) }"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    folder = tmp_path / "a b"
    folder.mkdir()
    monkeypatch.chdir(folder)
    onnx.save(onnx.parser.parse_model(MODEL), "my model.onnx")
    np.savez("x y.npz", x=np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32))
    return "my model.onnx"


def test_every_part_of_a_request_is_repeated_and_quoted():
    request = Request.of(
        "bpu-int8:march=bayes", "cpu-bf16", strategy="roles", solver="min-cut", costs="costs.yaml",
        pins=["MatMul/a b=host"], edits=["unit-conv=dense:after"], low=["Conv"], high=["name:/head/*"],
        keep_io_types=False, freeze_inputs=True, data="x y.npz",
        options={"fix-shapes": {"x": [1, 4]}, "refine": {"steps": ["bias"]}, "verify": {"min_snr": 30.0}},
    )  # fmt: skip
    text = command_text("bisect", "my model.onnx", request, load_plugins().registry)
    assert text == (
        "dovetail bisect 'my model.onnx' --backend bpu-int8:march=bayes --backend cpu-bf16 --strategy roles "
        "--solver min-cut --costs costs.yaml --pin 'MatMul/a b=host' --edit unit-conv=dense:after --low Conv "
        "--high 'name:/head/*' --no-keep-io-types --freeze-inputs --data 'x y.npz' --fix-shape x:1x4 --refine bias "
        "--min-snr 30.0"
    )


def test_what_a_command_cannot_say_is_named():
    registry = load_plugins().registry
    asked = Request.of("bpu-int8", options={"bpu": {"ladder": 0.99}, "gone": {"a": 1}}, data={"x": np.zeros(1)})
    assert command_text("bisect", None, asked, registry) == (
        "dovetail bisect MODEL --backend bpu-int8 --data FILE  "
        "# without what option 'bpu' asks for, what option 'gone' asks for"
    )


def test_what_bisect_prints_compiles_the_same_request(model, capsys):
    request = ["--backend", "gpu-fp16", "--data", "x y.npz", "--fix-shape", "data"]
    assert main(["bisect", model, *request]) == 0
    command = capsys.readouterr().out.splitlines()[-1]
    assert "--fix-shape x:1x4" in command
    assert "--high" in command
    assert main(shlex.split(command)[1:]) == 0


def test_verify_suggests_to_bisect_what_was_compiled(model, capsys):
    request = ["--backend", "cpu-bf16", "--data", "x y.npz", "--fix-shape", "x:2x4"]
    assert main(["compile", model, *request, "-o", "out"]) == 0
    assert main(["verify", model, "out", "--data", "x y.npz", "--min-snr", "200"]) == 1
    said = capsys.readouterr().err
    command = said[said.index("`dovetail bisect") + 1 :]
    command = command[: command.index("`")]
    assert shlex.split(command)[2:] == [model, *request]
    assert main(shlex.split(command)[1:]) == 0


def test_the_remedy_of_a_compilation_repeats_it(model):
    compiled = dovetail.compile(model, "cpu-bf16", data="x y.npz", fix_shapes={"x": (2, 4)}, high="relu")
    assert compiled.verification.remedy.startswith(
        "`dovetail bisect 'my model.onnx' --backend cpu-bf16 --high relu --data 'x y.npz' --fix-shape x:2x4`"
    )
