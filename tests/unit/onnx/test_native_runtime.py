"""ONNX Runtime is imported in one place: without telemetry, and with its own class of sessions."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dovetail_onnx import native_runtime, new_session

ROOT = Path(__file__).parents[3]
ONE_PLACE = ROOT / "plugins/onnx/src/dovetail_onnx/native_runtime.py"
WORKER = ROOT / "plugins/onnxruntime_ep/src/dovetail_onnxruntime_ep/sessions.py"
SHIPPED = ROOT / "plugins/export/src/dovetail_export/runners/run.py"  # runs without Dovetail
"""It also runs in environments without Dovetail, and turns telemetry off by itself."""
DIGITS = ROOT / "examples/digits/digits.onnx"


def uses(source):
    """The lines of a source text that import ONNX Runtime at run time, or create its sessions by name."""
    if "onnxruntime" not in source and "InferenceSession" not in source:
        return
    tree = ast.parse(source)
    typed = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in typed:
            continue
        match node:
            case ast.Import(names=names) if any(alias.name.startswith("onnxruntime") for alias in names):
                yield node.lineno
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] == "onnxruntime":
                yield node.lineno
            case ast.Call(func=ast.Attribute(attr="InferenceSession")):
                yield node.lineno


def test_no_other_module_imports_onnxruntime():
    files = [
        file for folder in ("core", "schemas", "plugins", "backends") for file in (ROOT / folder).glob("**/src/**/*.py")
    ]
    found = {
        str(file.relative_to(ROOT)): list(uses(file.read_text()))
        for file in files
        if file not in (ONE_PLACE, WORKER, SHIPPED)
    }
    assert len(files) > 500 and {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text", ["import onnxruntime as ort", "from onnxruntime.capi import x", "ort.InferenceSession('m')"]
)
def test_the_rule_finds_what_it_forbids(text):
    assert list(uses(text))


PROGRAMS = {
    "compile and run": """
import sys, dovetail
compiled = dovetail.compile(sys.argv[1], "cpu-bf16")
import numpy as np
compiled.run({"image": np.zeros((1, 1, 8, 8), np.float32)})
""",
    "a session": "import sys, dovetail\ndovetail.InferenceSession(sys.argv[1])",
    "a command": """
import sys
from dovetail.cli.main import main
main(["compile", sys.argv[1], "--backend", "cpu-bf16", "-o", "out"])
""",
    "a child": """
import sys
from dovetail.plugin import load_plugins, run_command
load_plugins()
code, text = run_command([sys.executable, "-c", "import onnxruntime"], 100)
assert code == 0, text
""",
}  # fmt: skip


@pytest.mark.generated
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_file_of_telemetry_appears(program, tmp_path):
    places = {name: tmp_path / name for name in ("home", "tmp", "cache", "work")}
    for place in places.values():
        place.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "ORT_DISABLE_TELEMETRY")}
    env = {**kept, "HOME": str(places["home"]), "TMPDIR": str(places["tmp"]), "XDG_CACHE_HOME": str(places["cache"])}
    command = [sys.executable, "-c", PROGRAMS[program], str(DIGITS)]
    done = subprocess.run(command, cwd=places["work"], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    left = [path for path in tmp_path.rglob("*") if path.is_file() and "out" not in path.parts]
    assert [
        str(path) for path in left if "onnxruntime" in str(path) or path.suffix == ".ses" or "Microsoft" in str(path)
    ] == []
    assert "telemetry" not in done.stderr.lower()


def test_the_user_may_decide_otherwise(monkeypatch):
    from dovetail_onnx.native_runtime import disable_telemetry

    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    disable_telemetry()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "0"


PATCHED = """
import sys, numpy as np, onnxruntime, dovetail
made = 0

class Session(dovetail.InferenceSession):
    def __init__(self, *args, **keywords):
        global made
        made += 1
        assert made < 5, "our own sessions are compiled again"
        super().__init__(*args, backend=sys.argv[2], data=sys.argv[3], **keywords)

onnxruntime.InferenceSession = Session
session = onnxruntime.InferenceSession(sys.argv[1])
(scores,) = session.run(None, {"image": np.zeros((1, 1, 8, 8), np.float32)})
assert scores.shape == (1, 10) and made == 1, made
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu-bf16", "gpu-fp16", "cpu-int8"])
def test_a_program_may_put_our_session_in_place_of_onnxruntimes(backend, tmp_path):
    command = [sys.executable, "-c", PATCHED, str(DIGITS), backend, str(DIGITS.with_name("test.npz"))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_sessions_for_cuda_have_its_libraries_and_compute_float32_in_float32(monkeypatch):
    """By default its provider rounds products of float32 to TF32, and its libraries are looked for by the linker."""
    done, collection = [], importlib.import_module("onnxruntime.capi.onnxruntime_inference_collection")
    monkeypatch.setattr(collection, "InferenceSession", lambda source, options, providers, **_: done.append(providers))
    monkeypatch.setattr("onnxruntime.preload_dlls", lambda directory: done.append(f"libraries {directory!r}"))
    native_runtime._load_cuda.cache_clear()
    new_session("model.onnx", None, ["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert done == ["libraries ''", [("CUDAExecutionProvider", {"use_tf32": "0"}), ("CPUExecutionProvider", {})]]
