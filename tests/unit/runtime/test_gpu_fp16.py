"""The gpu-fp16 member: what it registers, when its engine is there, its file, and the tool that checks it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail.errors import DovetailError
from dovetail.plugin import EngineError, RegionModel
from dovetail_gpu_fp16 import engine as module
from dovetail_gpu_fp16.engine import OnnxRuntimeCuda
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu
from dovetail_onnxruntime_ep import WebGpu
from dovetail_schemas import RuleJudge, load_backend

from .models import parse

ROOT = Path(__file__).parents[3]
PRODUCT = "g (float[N,64] x, float[64,64] w) => (float[N,64] y) { y = MatMul(x, w) }"


def test_registration_names_things_and_imports_nothing_heavy():
    import dovetail_gpu_fp16

    things = set()
    tables = SimpleNamespace(
        engine=lambda name, target: things.add(("engine", name)),
        session_start=lambda name, target: things.add(("session_start", name)),
        backend=lambda name, target: things.add(("backend", name)),
        conformance=lambda name, target: things.add(("conformance", name)),
    )
    dovetail_gpu_fp16.register(tables)
    engines = {("engine", "onnxruntime-cuda"), ("session_start", "onnxruntime-cuda"), ("engine", "half-sums")}
    assert things == {*engines, ("backend", "gpu-fp16"), ("conformance", "gpu-fp16")}
    code = (
        "import sys, dovetail_gpu_fp16.engine as e; e.OnnxRuntimeCuda().available();"
        "print({'onnx', 'onnx_ir', 'onnxruntime', 'numpy'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


def installed(monkeypatch, folder, *, provider, driver):
    """Let it look as if onnxruntime were installed in `folder`, with or without its provider and a driver."""
    (folder / "capi").mkdir()
    if provider:
        (folder / "capi" / module._PROVIDER).touch()
    spec = SimpleNamespace(submodule_search_locations=[str(folder)])
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: spec)

    def load(name):
        if not driver:
            raise OSError(name)

    monkeypatch.setattr(module.ctypes, "CDLL", load)


@pytest.mark.parametrize(
    ("provider", "driver", "why"),
    [
        (False, True, "onnxruntime has no CUDA provider here (pip install 'dovetail-gpu-fp16[cuda]'); a CPU"),
        (True, False, "there is no NVIDIA driver"),
        (True, True, ""),
    ],
)
def test_available(monkeypatch, tmp_path, provider, driver, why):
    installed(monkeypatch, tmp_path, provider=provider, driver=driver)
    ok, said = OnnxRuntimeCuda().available()
    assert (ok, said.startswith(why)) == (provider and driver, True)
    assert ok or "gpu-fp16:accumulate=half shows by how much" in said


@pytest.mark.parametrize(("package", "ok"), [("onnxruntime-gpu", True), ("onnxruntime", False)])
def test_another_package_over_the_one_with_cuda_is_found(monkeypatch, tmp_path, package, ok):
    """pip installs onnxruntime beside onnxruntime-gpu, whose files have the same names."""
    installed(monkeypatch, tmp_path, provider=True, driver=True)
    (tmp_path / "capi" / "build_and_package_info.py").write_text(f"package_name = '{package}'\n")
    found = OnnxRuntimeCuda().available()
    assert found.ok == ok
    assert ok or "pip uninstall -y onnxruntime onnxruntime-gpu && pip install 'onnxruntime-gpu" in found.why


def test_an_environment_without_cuda_is_not_taken(monkeypatch):
    """The other environment is this one, in a process of its own."""
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this is about packages of ONNX Runtime without CUDA, and here is one with it")
    monkeypatch.setenv("DOVETAIL_CUDA_ENV", sys.prefix)
    found = OnnxRuntimeCuda().available()
    assert not found.ok and f"onnxruntime {onnxruntime.__version__} has no CUDAExecutionProvider" in found.why
    with pytest.raises(EngineError, match="onnxruntime-ep-cuda: onnxruntime .* has no CUDAExecutionProvider"):
        OnnxRuntimeCuda().load(RegionModel(parse(PRODUCT)), {})


def test_a_session_without_cuda_is_refused():
    """ONNX Runtime itself goes on with the CPU, and only logs it."""
    if OnnxRuntimeCuda().available().ok:
        pytest.skip("this is about machines without a GPU, and here is one")
    with pytest.raises(DovetailError, match="onnxruntime-cuda: ONNX Runtime could not start CUDAExecutionProvider"):
        OnnxRuntimeCuda().load(RegionModel(parse(PRODUCT)), {})


def test_without_a_gpu_the_cpu_checks_the_model_and_a_note_says_so(tmp_path):
    if OnnxRuntimeCuda().available().ok or WebGpu().available().ok:
        pytest.skip("this is about machines without a GPU, and here is one")
    onnx.save(onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + PRODUCT), tmp_path / "m.onnx")
    compiled = dovetail.compile(tmp_path / "m.onnx", ["gpu-fp16"], verify=True)
    assert compiled.executor().engines == ["onnxruntime-cpu"]
    assert compiled.verification.worst_snr_db > 60
    assert any("onnxruntime-cuda is not available" in note and "rounds results" in note for note in compiled.notes())


def test_what_another_device_left_to_the_cpu_is_said():
    region = RegionModel(parse("g (float[2] x) => (float[2] y) { y = Exp(x) }"))
    session = OnnxRuntimeCpu().load(region, {"profile": True})
    session.run({"x": np.ones(2, np.float32)})
    real = session._session
    session._session = SimpleNamespace(
        get_providers=lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"], end_profiling=real.end_profiling
    )
    assert session.executed() == {"exp_0": ("float32", "reported-on-cpu")}


@pytest.fixture(scope="module")
def judge():
    schemas = ROOT / "schemas/src/dovetail_schemas"
    policies = {"policy": lambda name: schemas / f"policies/{name}.yaml"}
    backend = load_backend(
        ROOT / "backends/gpu_fp16/src/dovetail_gpu_fp16/gpu_fp16.yaml",
        lambda kind, name: policies[kind](name) if kind in policies else None,
    )

    def run(graph, opset=23):
        model = parse(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{graph}')
        return RuleJudge(backend, {}, opset)(model.graph[0])

    return run


F, H, D = "float32", "float16", "float64"


@pytest.mark.parametrize(
    ("graph", "opset", "policy", "types"),
    [
        ("g (float[4] x) => (float[4] y) { y = Softmax(x) }", 23, "pass", {"input": (H, F, D), "output": (H, F, D)}),
        ("g (double[4] x) => (double[4] y) { y = Exp(x) }", 23, "fp32", {"input": (D,), "output": (D,)}),
        ("g (float[4] x) => (float[4] y) { y = Cosh(x) }", 23, None, None),
        ("g (bfloat16[4] x) => (bfloat16[4] y) { y = Relu(x) }", 23, None, None),
        ("g (int64[4] x) => (int64[4] y) { y = Mul(x, x) }", 23, "promote", {}),
        ("g (string[4] x) => (string[4] y) { y = Identity(x) }", 23, None, None),
        ("g (float[2,8] x, float[8] s) => (float[2,8] y, float[2,1] m) { y, m = LayerNormalization(x, s) }", 17, "pass",
         {"X": (H, F, D), "Scale": (H, F, D), "Y": (H, F, D), "Mean": (F,)}),
        ("g (float[2,8] x, float[8] s) => (float[2,8] y) { y = LayerNormalization<stash_type=16>(x, s) }", 17, "fp32",
         {"X": (H, F, D), "Scale": (H, F, D), "Y": (H, F, D)}),
        ("g (float[1,1,2,2] x, float[4] s) => (float[1,1,4,4] y) { y = Resize<mode=\"nearest\">(x, , s) }", 19, "pass",
         {"X": (H, F, D), "scales": (F,), "Y": (H, F, D)}),
        ("g (float[1,1,2,2] x, float[4] s) => (float[1,1,4,4] y) { y = Resize<mode=\"cubic\">(x, , s) }", 19, "fp32",
         {"X": (H, F, D), "scales": (F,), "Y": (H, F, D)}),
        ("g (float x, float y, float d) => (float[n] z) { z = Range(x, y, d) }", 23, "follow-consumer",
         {"start": (F, D), "limit": (F, D), "delta": (F, D), "output": (F, D)}),
    ],
)  # fmt: skip
def test_what_the_file_says(graph, opset, policy, types, judge):
    verdict = judge(graph, opset)
    assert verdict.ok is (types is not None)
    if types is not None:
        assert verdict.policy == policy
        written = {name: tuple(map(str, found)) for name, found in verdict.types.items()}
        assert {name: found for name, found in written.items() if set(found) & {F, H, D}} == types


@pytest.mark.parametrize(("version", "policy"), [(14, "fp32"), (15, "pass")])
def test_batch_normalization_goes_low_only_beside_float32_statistics(version, policy, judge):
    text = "g (float[1,3,4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[1,3,4] y)"
    verdict = judge(text + " { y = BatchNormalization(x, s, b, m, v) }", version)
    assert verdict.policy == policy
    assert tuple(map(str, verdict.types["X"])) == (H, F, D)
    assert set(verdict.keep) == {"scale", "B", "input_mean", "input_var"}


KERNELS = """## Operators implemented by CPUExecutionProvider
|Acos|*in* input:**T**|22+|**T** = tensor(float)|
## Operators implemented by CUDAExecutionProvider
| Op Name | Parameters | OpSet Version | Types Supported |
|Relu|*in* X:**T**<br> *out* Y:**T**|14+|**T** = tensor(bfloat16), tensor(double), tensor(float), tensor(float16)|
|||[6, 12]|**T** = tensor(double)|
|Exp|*in* input:**T**|13+|**T** = tensor(float)|
|GridSample|*in* X:**T1**<br> *in* grid:**T2**|22+|**T1** = tensor(float)<br/> **T2** = tensor(float)|
|Celu|*in* X:**T**|12+|**T** = tensor(float)|
|**Operator Domain:** *com.microsoft*||||
|Tan|*in* X:**T**|1+|**T** = tensor(float)|
"""


def test_the_tool_says_what_differs(tmp_path):
    (tmp_path / "list.md").write_text(KERNELS)
    tool = ROOT / "backends/gpu_fp16/tools/check_kernels.py"
    done = subprocess.run([sys.executable, tool, tmp_path / "list.md"], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert "Exp: float16, float32, float64 in the file, kernels for float32" in lines
    assert "Celu: there is a kernel, and the file does not take it" in lines
    assert "Conv: the file takes it, and there is no kernel" in lines
    assert not any(line.startswith(("Relu:", "GridSample:", "Acos:", "Tan:")) for line in lines)
