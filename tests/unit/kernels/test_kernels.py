"""An operator with a kernel: defined in YAML, computed by a class, and like any other operator everywhere between."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError

OPERATORS = """
domain: {domain}
version: 1
operators:
  - op: scale
    args: (Tensor x, float factor = 2.0)
    output: Tensor(out)
    infer_meta: {{func: UnchangedInferMeta, param: [x]}}
    kernel: {{func: scale}}
    inplace: (x -> out)
"""
SCALE = """
import numpy as np
from dovetail_kernels import Kernel

class Scale(Kernel):
    function = "{domain}::scale"
    types = {types}
    layout = "{layout}"

    def run(self, inputs, attributes):
        return [inputs[0] * inputs[0].dtype.type(attributes["factor"])]

    def run_in_place(self, inputs, attributes):
        inputs[0] *= inputs[0].dtype.type(attributes["factor"])
        return [inputs[0]]
"""
NET = """<ir_version: 8, opset_import: ["": 17, "{domain}": 1]>
  g ({type}[1,2,3,4] x) => ({type}[1,2,3,4] y) {{
    [first] a = Relu (x)
    [own] b = {domain}.scale <factor = 3.0> (a)
    [last] y = Neg (b)
  }}"""
X = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)


def net(domain, type_="float", text=NET):
    return onnx.parser.parse_model(text.format(domain=domain, type=type_))


@pytest.fixture
def plugins(with_kernels, domain):
    """A vendor's plugins, with the types and the layout of the kernel."""

    def make(types=("float32",), layout="any", module=SCALE, operators=OPERATORS, backends=()):
        return with_kernels(
            module.format(domain=domain, types=tuple(types), layout=layout), operators.format(domain=domain), *backends
        )

    return make


def remarks(compiled, node="own"):
    return {(remark.kind, remark.rule): remark.why for remark in compiled.remarks if remark.node == node}


def test_a_kernel_computes_an_operator_that_no_engine_knows(plugins, domain):
    compiled = dovetail.compile(net(domain), "cpu-bf16", plugins=plugins(), data={"x": X}, high=("*",))
    assert np.allclose(compiled.run({"x": X})["y"], -3 * np.maximum(X, 0))
    assert compiled.verification.worst_snr_db > 100
    assert {node.name: node.backend for node in compiled.plan.nodes}["own"] == "host"
    assert "acme-scale" in remarks(compiled)["passed", "kernel"]
    assert compiled.executed()["own"].precision == "float32"


def test_a_kernel_in_a_wider_type_stands_in_with_a_remark(plugins, domain):
    compiled = dovetail.compile(net(domain, "float16"), "host", plugins=plugins())
    x = X.astype(np.float16)
    result = compiled.run({"x": x})["y"]
    assert result.dtype == np.float16 and np.allclose(result, -3 * np.maximum(X, 0), atol=1e-2)
    why = remarks(compiled)["missed", "kernel-fallback"]
    assert why.endswith("<cpu, any, float32>: computes in float32, as there is no kernel for float16")


def test_a_kernel_in_another_layout_gets_its_axes_turned(plugins, domain):
    module = SCALE.replace("return [inputs[0] *", "assert inputs[0].shape == (1, 3, 4, 2)\n        return [inputs[0] *")
    compiled = dovetail.compile(net(domain), "host", plugins=plugins(layout="NHWC", module=module))
    assert np.allclose(compiled.run({"x": X})["y"], -3 * np.maximum(X, 0))
    assert "<cpu, NHWC, float32>" in remarks(compiled)["passed", "kernel"]


def test_conversions_are_shared_by_all_that_read_a_value(plugins, domain):
    text = NET.replace("[last] y = Neg (b)", "[other] c = {domain}.scale (a) [last] y = Add (b, c)")
    compiled = dovetail.compile(net(domain, "float16", text), "host", plugins=plugins(layout="NHWC"))
    nodes = [node.op_type for node in compiled.model.graph]
    assert nodes.count("Cast") == 1 + 2 and nodes.count("Transpose") == 1 + 2  # in front of both, and behind each


def test_the_lowered_form_prints_and_parses(plugins, domain, tmp_path):
    plugins = plugins()
    compiled = dovetail.compile(net(domain), "host", plugins=plugins)
    text = str(compiled.model)
    assert f'kernel.{domain}.scale <factor = 3.0, kernel_name = "acme-scale", ' in text
    assert 'kernel_key = "<cpu, any, float32>"' in text
    (tmp_path / "lowered.txt").write_text(text)
    again = dovetail.compile(tmp_path / "lowered.txt", "host", plugins=plugins)
    assert np.allclose(again.run({"x": X})["y"], -3 * np.maximum(X, 0))


def test_a_result_is_saved_and_runs_again(plugins, domain, tmp_path):
    plugins = plugins()
    dovetail.compile(net(domain), "cpu-bf16", plugins=plugins, high=("*",)).save(tmp_path / "out")
    loaded = dovetail.load(tmp_path / "out", plugins=plugins)
    assert np.allclose(loaded.run({"x": X})["y"], -3 * np.maximum(X, 0))


def test_a_result_whose_kernel_is_not_installed_names_it(plugins, domain, tmp_path, with_backend):
    dovetail.compile(net(domain), "host", plugins=plugins()).save(tmp_path / "out")
    with pytest.raises(
        DovetailError, match=f"node 'own': the kernel 'acme-scale' of '{domain}::scale' is not installed"
    ):
        dovetail.load(tmp_path / "out", plugins=with_backend()).run({"x": X})


def test_a_model_without_any_kernel_for_an_operator_is_refused(plugins, domain):
    module = SCALE.replace("{domain}::scale", "{domain}::other")
    with pytest.raises(DovetailError, match="own"):
        dovetail.compile(net(domain), "host", plugins=plugins(module=module), data={"x": X})


def test_a_type_that_no_kernel_holds_is_refused_with_those_that_there_are(plugins, domain):
    with pytest.raises(DovetailError) as raised:
        dovetail.compile(net(domain, "double"), "host", plugins=plugins(types=("float16", "float32")))
    said = f"node 'own': no kernel of '{domain}::scale' computes <cpu, any, float64>"
    assert f"{said}; there are acme-scale <cpu, any, float16/float32>" in str(raised.value)


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ("[1 / 0]", "fails: ZeroDivisionError"),
        ("[inputs[0][0]]", r"gives 'b' the shape \[2, 3, 4\], the model declares \[1,2,3,4\]"),
        ("[inputs[0].astype('int8')]", "gives 'b' as int8, the model declares float32"),
        ("[]", "gives 0 of 1 outputs"),
        ("['text']", "gives str for 'b', and no array"),
        ("None", "gives NoneType for"),
    ],
)
def test_a_kernel_that_breaks_its_contract_is_named_with_node_and_key(plugins, domain, result, says):
    module = SCALE.replace('inputs[0] * inputs[0].dtype.type(attributes["factor"])', "X").replace("[X]", result)
    module = module.replace("def run_in_place", "def unused")
    compiled = dovetail.compile(net(domain), "host", plugins=plugins(module=module), verify=False)
    who = r"node 'own': kernel 'acme-scale' of this program <cpu, any, float32>"
    with pytest.raises(DovetailError, match=f"{who} {says}"):
        compiled.run({"x": X})


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('layout = "{layout}"', 'layout = "NCWH"', "there is no layout 'NCWH' .did you mean 'NCHW'"),
        ("types = {types}", "types = ('float23',)", "there is no element type 'float23'"),
        ('function = "{domain}::scale"', "", "has no `function`"),
        ("def run(self, inputs", "def walk(self, inputs", "run"),
        ("import numpy as np", "import numppy", "numppy"),
        ("Scale(Kernel)", "Scale(object, KernelLess)", "KernelLess"),
    ],
)
def test_a_kernel_that_is_not_one_is_named(plugins, domain, old, new, says):
    with pytest.raises(DovetailError, match=says) as raised:
        dovetail.compile(net(domain), "host", plugins=plugins(module=SCALE.replace(old, new)))
    assert "acme-scale" in str(raised.value)


def test_memory_is_overwritten_where_nothing_reads_it_afterwards(plugins, domain):
    """The input of the model and values that something else reads stay as they are."""
    text = """<ir_version: 8, opset_import: ["": 17, "{domain}": 1]>
      g (float[1,2,3,4] x) => (float[1,2,3,4] y, float[1,2,3,4] c) {{
        [a] a = {domain}.scale (x) [b] b = {domain}.scale (a) [c] c = {domain}.scale (a) [d] d = {domain}.scale (b)
        [e] y = {domain}.scale (d) }}"""
    module = SCALE.replace("inputs[0] *= ", "places.append(1)\n        inputs[0] *= ").replace(
        "import", "places = []\nimport", 1
    )
    plugins = plugins(module=module)
    compiled = dovetail.compile(net(domain, text=text), "host", plugins=plugins, check_prepare=False)
    before = X.copy()
    result = compiled.run({"x": X})
    assert np.array_equal(X, before)
    assert np.allclose(result["y"], 16 * X) and np.allclose(result["c"], 4 * X)
    kernel = plugins.registry.kernel["acme-scale"]
    places = __import__("sys").modules[kernel.__module__].places
    assert len(places) == 3  # b or c, whichever reads %a last, d and e


BODIES = {
    "If": "[if] b = If (c) <then_branch = then () => (float[1,2,3,4] t) {{ [own] t = {domain}.scale <factor = 3.0> (a)"
          " }}, else_branch = other () => (float[1,2,3,4] e) {{ [e] e = Neg (a) }}>",
    "Loop": "[loop] b = Loop (n, , a) <body = body (int64 i, bool k, float[1,2,3,4] v) => (bool k2, float[1,2,3,4] w)"
            " {{ [k] k2 = Identity (k) [own] w = {domain}.scale <factor = 3.0> (v) }}>",
    "Scan": "[scan] z, b0 = Scan <num_scan_inputs = 1, body = body (float s, float[2,3,4] v)"
            " => (float s2, float[2,3,4] w) {{ [s] s2 = Identity (s) [own] w = {domain}.scale <factor = 3.0> (v) }}>"
            " (zero, a) [i] b = Identity (b0)",
}  # fmt: skip


@pytest.mark.parametrize("kind", BODIES)
def test_kernels_in_bodies(plugins, domain, kind):
    text = NET.replace("[own] b = {domain}.scale <factor = 3.0> (a)", BODIES[kind])
    text = text.replace(" y) {{", " y) <bool c = {{1}}, int64 n = {{1}}, float zero = {{0}}> {{")
    compiled = dovetail.compile(net(domain, text=text), "host", plugins=plugins(), data={"x": X})
    assert np.allclose(compiled.run({"x": X})["y"], -3 * np.maximum(X, 0))
    assert compiled.verification.worst_snr_db > 100


NPU = """
backend: npu
device: npu
opset: 13..26
precision: {{low: float32, high: float32}}
unlisted: refuse
types: {{f: [float32]}}
ops: {{"{domain}::scale": {{types: f}}, Relu: {{types: f}}}}
place: {{strategy: autocast}}
emit: {{engines: [kernels]}}
"""
NPU_KERNELS = """
from dovetail_kernels import Kernel

class Scale(Kernel):
    function = "{domain}::scale"
    device = "npu"

    def run(self, inputs, attributes):
        return inputs[0] * inputs[0].dtype.type(attributes["factor"])

class Relu(Kernel):
    function = "Relu"
    device = "npu"

    def run(self, inputs, attributes):
        return inputs[0].clip(0)
"""


def test_a_backend_may_be_a_file_and_kernels_alone(plugins, domain):
    plugins = plugins(module=NPU_KERNELS, backends=[NPU.format(domain=domain)])
    compiled = dovetail.compile(net(domain), "npu", plugins=plugins, data={"x": X})
    assert {node.name: node.backend for node in compiled.plan.nodes} == {"first": "npu", "own": "npu", "last": "host"}
    assert np.allclose(compiled.run({"x": X})["y"], -3 * np.maximum(X, 0))
    assert "<npu, any, float32>" in remarks(compiled, "first")["passed", "kernel"]


def test_a_device_without_a_kernel_falls_back_to_the_host_with_a_remark(plugins, domain):
    module = NPU_KERNELS.replace('    device = "npu"\n', "", 1)
    compiled = dovetail.compile(
        net(domain), "npu", plugins=plugins(module=module, backends=[NPU.format(domain=domain)])
    )
    assert np.allclose(compiled.run({"x": X})["y"], -3 * np.maximum(X, 0))
    assert "computes on cpu, as npu has no kernel for it" in remarks(compiled)["missed", "kernel-fallback"]


IN_C = """
import ctypes
import numpy as np
from dovetail_kernels import Kernel

swab = ctypes.CDLL(None).swab
swab.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t]

class Swap(Kernel):
    function = "{domain}::swap_bytes"
    types = ("int16",)

    def run(self, inputs, attributes):
        x = np.ascontiguousarray(inputs[0])
        out = np.empty_like(x)
        swab(x.ctypes.data, out.ctypes.data, x.nbytes)
        return [out]
"""


def test_a_kernel_written_in_c(plugins, domain):
    """`swab` of the C library, called by ctypes."""
    operators = (
        OPERATORS.replace("scale", "swap_bytes").replace(", float factor = 2.0", "").replace("inplace: (x -> out)", "")
    )
    text = """<ir_version: 8, opset_import: ["": 17, "{domain}": 1]>
      g (int16[3] x) => (int16[3] y) {{ [own] y = {domain}.swap_bytes (x) }}"""
    compiled = dovetail.compile(net(domain, text=text), "host", plugins=plugins(module=IN_C, operators=operators))
    x = np.int16([1, 256, -2])
    assert np.array_equal(compiled.run({"x": x})["y"], x.byteswap())
