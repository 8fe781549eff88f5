"""`onnx.backend` over Dovetail: model tests of onnx, on a sample, and bad input."""

from pathlib import Path

import dovetail_adapters.onnx_backend as backend
import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError
from onnx import helper, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

# The files of these tests are in onnx; its node tests are generated, which takes ten seconds (bench/onnx_backend.py).
KINDS = ("simple", "pytorch-operator")
CASES = {case.name: Path(case.model_dir) for kind in KINDS for case in load_model_tests(kind=kind)}
SAMPLE = (
    "test_expand_shape_model1", "test_sequence_model1", "test_shrink", "test_single_relu_model",
    "test_strnorm_model_monday_casesensintive_lower", "test_operator_addmm", "test_operator_conv",
    "test_operator_flatten", "test_operator_repeat",
)  # fmt: skip


@pytest.mark.generated
@pytest.mark.parametrize("name", SAMPLE)
def test_model_tests_of_onnx(name):
    prepared = backend.prepare(CASES[name] / "model.onnx")
    for data in sorted(CASES[name].glob("test_data_set_*")):
        taken, given = (_values(data, kind, prepared) for kind in ("input", "output"))
        Runner.assert_similar_outputs(given, prepared.run(taken), rtol=1e-3, atol=1e-7)


def _values(folder, kind, prepared):
    """The tensors, or lists of tensors, in the files of a data set."""
    facts = prepared.session.get_inputs() if kind == "input" else prepared.session.get_outputs()
    found = []
    for at, fact in enumerate(facts):
        content = (folder / f"{kind}_{at}.pb").read_bytes()
        message = onnx.SequenceProto() if fact.type.startswith("seq") else onnx.TensorProto()
        message.ParseFromString(content)
        convert = numpy_helper.to_list if fact.type.startswith("seq") else numpy_helper.to_array
        found.append(convert(message))
    return found


def test_outputs_are_found_by_position_and_by_name():
    node = helper.make_node("Split", ["x"], ["left", "right"], num_outputs=2)
    outputs = backend.run_node(node, [np.arange(4, dtype=np.float32)], opset_version=18)
    assert outputs[0].tolist() == outputs["left"].tolist() == [0, 1] and outputs["right"].tolist() == [2, 3]


def test_a_node_runs_with_the_types_of_its_outputs_given():
    node = helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.INT32)
    (given,) = backend.run_node(node, {"x": np.float32([1.5, -1.5])}, outputs_info=[(np.dtype(np.int32), (2,))])
    assert given.tolist() == [1, -1]


def test_models_run_on_a_backend_and_by_path():
    x = np.ones((2, 1, 8, 8), np.float32)
    whole = backend.prepare("examples/digits/digits.onnx").run(x)[0]
    placed = backend.run_model("examples/digits/digits.onnx", [x], backend="cpu-bf16")[0]
    assert np.allclose(placed, whole, atol=2e-2)


def test_compatible_is_what_compiles():
    digits = "examples/digits/digits.onnx"
    assert backend.is_compatible(digits) and backend.supports_device("CPU:0")
    assert not backend.is_compatible(digits, "CUDA") and not backend.is_compatible("absent.onnx")
    assert not backend.is_compatible(digits, backend="absent")


@pytest.mark.parametrize(
    "call, why",
    [
        (lambda: backend.prepare("examples/digits/digits.onnx", "CUDA"), "device 'CUDA' is not supported"),
        (lambda: backend.run_model("examples/digits/digits.onnx", [1, 2, 3]), "3 inputs are given, the model has 1"),
        (lambda: backend.run_node(helper.make_node("Absent", ["x"], ["y"]), [np.ones(1)]), "Absent"),
    ],
)
def test_what_cannot_be_run_is_an_error(call, why):
    with pytest.raises(DovetailError, match=why):
        call()
