"""Core without any other distribution: it opens, prints and edits models, and says what to install for the rest."""

import subprocess
import sys
from pathlib import Path

import pytest

MODEL = str(Path(__file__).parents[2] / "examples/digits/digits.onnx")
OTHERS = (
    "dovetail_schemas", "dovetail_host", "dovetail_canonicalize", "dovetail_placement", "dovetail_precision",
    "dovetail_verify", "dovetail_builder", "dovetail_cpu_bf16", "dovetail_gpu_fp16", "onnxruntime", "openvino", "scipy",
)  # fmt: skip
ALONE = f"import sys; sys.modules.update(dict.fromkeys({OTHERS!r}))\n"


@pytest.fixture
def core(tmp_path, monkeypatch):
    """Run Python, or a command, where nothing but core can be imported and no plugin is found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOVETAIL_PLUGINS", "")

    def run(*command, code="from dovetail.cli.main import main; sys.exit(main(sys.argv[1:]))"):
        arguments = [sys.executable, "-c", ALONE + code, *command]
        return subprocess.run(arguments, capture_output=True, text=True, timeout=120)

    return run


def test_a_model_is_opened_printed_and_saved(core):
    done = core(code=f"import dovetail; m = dovetail.open({MODEL!r}); print(m.graph[0].op_type); m.save('copy.onnx')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Conv\n", "")
    assert Path("copy.onnx").is_file()


def test_an_empty_pipeline_prints_the_model(core):
    done = core("opt", MODEL, "-p", "")
    assert done.returncode == 0
    assert "Conv" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("compile", MODEL, "--backend", "host", "-o", "out"),
        ("plan", MODEL, "--backend", "host"),
    ],
    ids=lambda command: command[0],
)
def test_what_needs_an_engine_says_what_to_install(core, command):
    done = core(*command)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the backend 'host'" in done.stderr
    assert "pip install dovetail-host" in done.stderr
    assert "Traceback" not in done.stderr


def test_commands_of_other_distributions_are_not_there(core):
    done = core("verify", MODEL, MODEL)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no command 'verify'" in done.stderr
    assert "others come with the distributions that bring them" in done.stderr
    done = core("--help")
    assert done.returncode == 0
    assert " compile " in done.stdout
    assert " verify " not in done.stdout


def test_constants_stay_where_nothing_evaluates_them(core):
    code = """
import dovetail
from dovetail.passes import Context, Pipeline
del sys.modules["dovetail_canonicalize"]
from dovetail_canonicalize.fold_constants import FoldConstants
from dovetail.ir.opening import open_text
model = open_text('<ir_version: 10, opset_import: ["": 22]> g (float[1] x) => (float[1] y) <float[1] c = {1}>'
                      '{ d = Neg (c) y = Add (x, d) }', 'm')
context = Context()
Pipeline([FoldConstants()]).run(model, context)
print([node.op_type for node in model.graph], context.remarks[0].rule, context.remarks[0].suggest)
"""
    done = core(code=code)
    assert done.stdout == "['Neg', 'Add'] no-evaluator pip install dovetail-host\n", done.stderr
