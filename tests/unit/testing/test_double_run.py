"""`dovetail.testing.double_run`: models and operators, by a reference and as compiled."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail_testing.comparing import compared
from onnx import parser

ACME = """
domain: {domain}
operators:
  - op: soft_clip
    args: (Tensor x, float limit = 1.0)
    output: Tensor(out)
    composite: |
      c = Constant <value_float = @limit> ()
      d = Div (x, c)
      t = Tanh (d)
      out = Mul (t, c)
  - op: product
    args: (Tensor x, Tensor y)
    output: Tensor(out)
    composite: |
      out = MatMul (x, y)
  - op: double
    args: (Tensor x, int times)
    output: Tensor(out)
    infer_meta: {{func: UnchangedInferMeta, param: [x]}}
    kernel: {{func: double, data_type: x}}
"""

KERNELS = """
from dovetail_kernels import Kernel


class Double(Kernel):
    function = "{domain}::double"
    types = ("float32", "int32")

    def run(self, inputs, attributes):
        return [inputs[0] * inputs[0].dtype.type(2 ** attributes["times"])]
"""


@pytest.fixture
def acme(vendor):
    """The vendor's plugins with a file of operators and a kernel, and the domain of these."""
    domain = f"{vendor.package}.ops"
    vendor.bring("operators", vendor.name, "ops.yaml", ACME.format(domain=domain))
    vendor.bring("kernel", f"{vendor.name}-double", "kernels.py:Double", KERNELS.format(domain=domain))
    return dovetail.load_plugins(strict=True), domain, vendor.name


def relu():
    return parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[2, 3] x) => (float[2, 3] y) {y = Relu(x)}'
    )


def test_an_operator_runs_its_node_tests():
    report = dovetail.testing.double_run("Relu", "gpu-fp16")
    assert [run.name for run in report.runs] == ["test_relu", "test_relu_expanded_ver18"]
    assert report.placed
    assert report.exact
    report.check()


def test_an_operator_runs_on_inputs_of_ones_own():
    x, w = np.float32([[1, 2], [3, 4]]), np.eye(2, dtype=np.float32)
    report = dovetail.testing.double_run("Gemm", "gpu-fp16", {"A": x, "B": w}, attributes={"alpha": 0.5})
    report.check()
    assert report.runs[0].reference == "ONNX Runtime"


def test_rounding_to_the_format_of_the_backend_is_no_difference():
    """Inputs are rounded before both paths get them, and results of the reference before they are compared."""
    x = np.float32([0.1, 1 / 3, 1000.123])
    report = dovetail.testing.double_run("Add", "gpu-fp16", {"A": x, "B": x})
    assert report.placed and report.exact


def test_rounding_of_weights_is_one():
    text = "g (float[1, 2] x) => (float[1, 1] y) <float[2, 1] w = {1000.3, -900.2}> {y = MatMul(x, w)}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')
    report = dovetail.testing.double_run(model, "gpu-fp16", {"x": np.float32([[1, 1]])})
    assert 1e-3 < report.share < 1e-2
    with pytest.raises(
        AssertionError, match=r"the model on gpu-fp16 \(tolerance 0\):\n  the model: output 'y' differs"
    ):
        report.check()
    report.check(tolerance=1e-2)


def test_a_model_runs_on_random_inputs(tmp_path):
    onnx.save(relu(), tmp_path / "relu.onnx")
    for model in (relu(), tmp_path / "relu.onnx", dovetail.open(relu())):
        report = dovetail.testing.double_run(model, "gpu-fp16")
        report.check()
        assert str(report).startswith(f"{report.name} on gpu-fp16:\n")


def test_a_model_is_compared_with_results_that_are_given():
    x, y = np.float32([[1, -1, 0]] * 2), np.float32([[1, 0, 1]] * 2)
    report = dovetail.testing.double_run(relu(), "gpu-fp16", {"x": x, "y": y})
    assert report.runs[0].reference == "the recorded results"
    assert report.share == 1


def test_what_stays_on_the_host_does_not_pass():
    report = dovetail.testing.double_run("Acosh", "gpu-fp16", {"input": np.float32([1, 2])})
    assert not report.placed
    assert report.runs[0].reasons == ("gpu-fp16 refuses Acosh",)
    with pytest.raises(AssertionError, match="on the host: gpu-fp16 refuses Acosh"):
        report.check()
    report.check(allow_host=True)


@pytest.mark.slow
def test_weights_become_constants_where_a_backend_takes_no_others():
    report = dovetail.testing.double_run("Conv", "bpu-int8")
    assert all(run.constants for run in report.runs if run.outcome == "compared")
    assert any(run.outcome == "compared" for run in report.runs)


def test_an_error_of_compiling_is_a_result():
    report = dovetail.testing.double_run(relu(), "gpu-fp16", pins="nobody=host/float32")
    assert report.runs[0].outcome == "error"
    assert "nobody" in report.problems[0]


def test_a_composite_is_compared_with_its_body(acme):
    plugins, domain, backend = acme
    report = dovetail.testing.double_run(f"{domain}::soft_clip", "gpu-fp16", plugins=plugins)
    assert report.runs[0].outcome == "compared", str(report)
    report.check(tolerance=2e-3)
    dovetail.testing.double_run(f"{domain}::product", backend, plugins=plugins).check(tolerance=2e-3)


def test_an_operator_with_a_kernel_is_compared_with_the_kernel_called_directly(acme):
    plugins, domain, _ = acme
    report = dovetail.testing.double_run(f"{domain}::double", "host", plugins=plugins)
    report.check()
    assert [run.name for run in report.runs] == [f"{domain}::double[float32]", f"{domain}::double[int32]"]
    assert {run.reference for run in report.runs} == {"the kernel Double, called directly"}


def test_operators_of_files_run_on_inputs_of_ones_own(acme):
    plugins, domain, _ = acme
    x = np.int32([3])
    report = dovetail.testing.double_run(
        f"{domain}::double", "host", {"x": x}, attributes={"times": 4}, plugins=plugins
    )
    report.check()
    with pytest.raises(dovetail.DovetailError, match="has no input 'X' .did you mean 'x'"):
        dovetail.testing.double_run(f"{domain}::double", "host", {"X": x}, plugins=plugins)


def test_a_name_that_is_no_operator_is_an_error():
    with pytest.raises(dovetail.DovetailError, match=r"no test is about an operator 'Reul'.*did you mean 'Relu'"):
        dovetail.testing.double_run("Reul", "host")


def test_a_backend_that_does_not_exist_is_an_error_of_the_report():
    with pytest.raises(AssertionError, match="unknown backend 'gpu-fp17' .did you mean 'gpu-fp16'"):
        dovetail.testing.double_run(relu(), "gpu-fp17").check()


@pytest.mark.parametrize(
    ("result", "expected", "exact", "share", "broken"),
    [
        (np.float32([1, np.nan]), np.float32([1, np.nan]), True, 0, ""),
        (np.float32([2, 4]), np.float32([2, 5]), False, 0.2, ""),
        (np.float32([np.inf]), np.float32([1]), False, 0, "1 elements are infinite"),
        (np.float32([1]), np.float32([np.nan]), False, 0, "1 elements are infinite"),
        (np.float32([1]), np.float32([[1]]), False, 0, "its shape is [1], the reference gives [1, 1]"),
        (np.int64([2**62]), np.int64([2**62 + 1]), False, 0, ""),
        ([np.int64([1])], [np.int64([1]), np.int64([1])], False, 0, "it has 1 elements, the reference gives 2"),
        ([np.int64([1])], [np.int64([1])], True, 0, ""),
        (None, None, True, 0, ""),
        (None, np.float32([1]), False, 0, "only one of both results is there"),
        (np.array(["a"]), np.array(["b"], object), False, 0, "1 texts differ"),
        (np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32), True, 0, ""),
    ],
)
def test_values_are_compared(result, expected, exact, share, broken):
    found = compared(result, expected)
    assert (found.exact, round(found.share, 6)) == (exact, share)
    assert found.broken.startswith(broken)
    assert bool(found.broken) is bool(broken)


def test_samples_reach_as_many_operators_as_they_can():
    cases = dovetail.testing.cases
    whole = {case.operator for case in cases("nodes")}
    assert {case.operator for case in cases("nodes", sample=len(whole))} == whole
    assert set(cases("nodes", sample=20)) < set(cases("nodes", sample=40))
