"""What a compilation imports: of rooms that it does not use, what they declare; of libraries, none in vain."""

import json
import subprocess
import sys

import onnx
import pytest

DECLARED = {
    "adapters": "",
    "bpu_int8": "bpu_requests unit_conv_option vendor vendor.option",
    "builder": "",
    "cpu_int8": "backend max_size",
    "decoder": "runtime_option",
    "paddle": "element_types frontend lowering lowering.lower_paddle pd_graph",
    "ppl_int8": "",
    "qnn": "",
    "quantize": "invariants passes refining refining.passes refining.steps",
    "report": "option",
    "tensorrt": "ask_parser_option engine_backends profiles profiles.bounds profiles.option signed_integers",
    "testing": "",
    "tune": "",
}
"""Modules with passes, options and invariants of distributions that a float compilation asks and does not use."""

IN_VAIN = ("jsonschema", "onnxruntime", "openvino", "rich", "scipy", "sympy", "tensorrt", "torch")

MODEL = """<ir_version: 9, opset_import: ["": 20]>
one (float[1, 4] x) => (float[1, 4] y) { [r] y = Relu (x) }"""

CODE = """
import json, sys
from dovetail.cli.main import program
sys.argv = ["dovetail", *sys.argv[1:]]
try:
    program()
except SystemExit as left:
    assert not left.code
# A deferred module is there, and executed once something reads from it.
executed = [name for name, module in sys.modules.items() if type(module).__name__ != "_LazyModule"]
print(json.dumps(executed))
"""


def imported(*words):
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("command", ["compile", "plan"])
@pytest.mark.parametrize("backend", ["gpu-fp16", "host"])
def test_a_float_compilation_imports_no_room_that_it_does_not_use(backend, command, tmp_path):
    model = tmp_path / "one.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), model)
    found = imported(command, str(model), "--backend", backend, "-o", str(tmp_path / "out"))
    for room, declared in DECLARED.items():
        package = f"dovetail_{room}"
        beyond = {name for name in found if name.startswith(f"{package}.")}
        assert beyond <= {f"{package}.{name}" for name in declared.split()}
    assert not found & set(IN_VAIN)


def test_what_a_quantized_compilation_uses_is_found(tmp_path):
    """The lists above would not notice a way to import that they do not see."""
    model = tmp_path / "one.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), model)
    found = imported("compile", str(model), "--backend", "cpu-bf16", "-o", str(tmp_path / "out"), "--verify")
    assert {"onnxruntime", "openvino"} <= found
