"""What OpenVINO refuses costs the node alone, and is said in the same words by every compilation."""

import dovetail
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail_cpu_bf16.report import refusal
from onnx import numpy_helper

from .models import parse


def recurrent(attributes, operator="LSTM", directions=1, others=("GRU", "RNN", "LSTM")):
    """A recurrent operator with `attributes`, and plain ones that read the same value."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}
    rng = np.random.default_rng(0)
    operators = [(operator, directions, attributes), *((other, 1, "") for other in others)]
    nodes, constants, outputs = ["a = MatMul(x, eye)"], {"eye": np.eye(4, dtype=np.float32)}, []
    for number, (kind, count, given) in enumerate(operators):
        for name in "wr":
            shape = (count, 4 * gates[kind], 4)
            constants[f"{name}{number}"] = (rng.standard_normal(shape) * 0.4).astype(np.float32)
        nodes.append(f"[n{number}] y{number} = {kind}<hidden_size = 4{given}>(a, w{number}, r{number})")
        outputs.append(f"float[5,{count},2,4] y{number}")
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[5,2,4] x) => ({", ".join(outputs)}) {{
        {" ".join(nodes)} }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


ALONE = {  # on the host: what OpenVINO refuses, or ignores
    "HardSigmoid": (', activations = ["HardSigmoid", "Tanh", "Tanh"]', 1),
    "Softsign": (', activations = ["Softsign", "Tanh", "Tanh"]', 1),
    "coupled gates": (", input_forget = 1", 1),
    "other activations in the second direction": (
        ', direction = "bidirectional", activations = ["Sigmoid", "Tanh", "Tanh", "Sigmoid", "Relu", "Relu"]', 2
    ),
}  # fmt: skip
TAKEN = {
    "Relu": (', activations = ["Sigmoid", "Relu", "Relu"]', 1),
    "clip": (", clip = 0.2", 1),
    "both directions": (', direction = "bidirectional"', 2),
}


def check(model, compiled):
    x = np.random.default_rng(1).standard_normal((5, 2, 4)).astype(np.float32)
    results = compiled.run({"x": x})
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for value, array in zip(model.graph.output, expected):
        np.testing.assert_allclose(results[value.name], array, atol=0.02)


@pytest.mark.parametrize("what", [*ALONE, *TAKEN])
def test_a_recurrent_operator_leaves_the_others_where_they_are(what):
    model = recurrent(*({**ALONE, **TAKEN}[what][:1]), directions={**ALONE, **TAKEN}[what][1])
    compiled = dovetail.compile(model, ["cpu-bf16"], verify=False)
    placed = {node.name: node.backend for node in compiled.plan.nodes}
    assert placed["n0"] == ("host" if what in ALONE else "cpu-bf16")
    assert {placed[f"n{number}"] for number in (1, 2, 3)} == {"cpu-bf16"}
    check(model, compiled)


@pytest.mark.parametrize("count", [3, 6, 11])
def test_many_recurrent_operators_read_one_value(count):
    model = recurrent("", "GRU", 1, ("LSTM", "GRU", "RNN") * (count // 3))
    compiled = dovetail.compile(model, ["cpu-bf16"], verify=False)
    assert {node.backend for node in compiled.plan.nodes} == {"cpu-bf16"}
    check(model, compiled)


MESSAGE = """Exception from src/x.cpp:1: Model wasn't fully converted. Failed operations detailed log:
-- ReduceL2-18 with a message: While validating ONNX node '<Node(ReduceL2): second>': Unsupported input type dynamic
-- STFT-18 with a message: While validating ONNX node '<Node(STFT): Conv_3>': the {} of 0x7f00ab has no window
Summary: -- Conversion is failed for: ReduceL2-18, STFT-18"""


def test_the_node_that_fails_first_is_named_without_the_counters_of_openvino():
    model = parse("g (float[2] x) => (float[2] y) { [Conv_3] a = Abs(x) [second] y = Neg(a) }")
    said = {str(refusal(RuntimeError(MESSAGE.format(f"Reshape_{n}")), "refuses", model)) for n in (17, 2044)}
    assert said == {"openvino-cpu refuses the node of 'Conv_3': the Reshape of has no window"}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "Exception from src/plugins/x.cpp:12: Unexpected: CPU plug-in doesn't support Reshape operation with "
            "dynamic rank. Operation name: a",
            "the node of 'a': OpenVINO's CPU plugin needs to know how many axes every value has, and 'a' leaves that "
            "open",
        ),
        ("CALLBACK HAS THROWN: [ GENERAL_ERROR ] the kernel is too large", "the region: the kernel is too large"),
    ],
)
def test_where_an_exception_of_openvino_comes_from_is_left_out(message, said):
    model = parse("g (float[2] x) => (float[2] y) { a = Abs(x) y = Neg(a) }")
    assert str(refusal(RuntimeError(message), "refuses", model)) == f"openvino-cpu refuses {said}"


def test_a_convolution_without_groups_is_refused_by_the_engine():
    """The model is at fault, and no rule of the backend."""
    ones = ", ".join(["1"] * 36)
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> g (float[1,4,6,6] x) => (y) <
        float[4,1,3,3] w = {{{ones}}}> {{ [conv] c = Conv<group = 0>(x, w) y = Relu(c) }}""")
    compiled = dovetail.compile(model, "cpu-bf16", verify=False)
    assert {node.name: node.backend for node in compiled.plan.nodes}["conv"] == "host"
    assert not [remark for remark in compiled.plan.remarks if "report it" in remark.why]


@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8"])
def test_values_of_four_bits_stay_out_of_a_region_and_weights_do_not(backend, recwarn):
    """They failed in every call, and the region ran elsewhere."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (int4[2,3] p, float[2,4] x) => (int4[3,2] q, float[2,2] y) <float s = {0.5}> {
            [turn] q = Transpose(p) f = DequantizeLinear(w, s) [product] y = MatMul(x, f) }""")
    weights = np.array([[1, -2], [3, -4], [5, -6], [7, -8]], ml_dtypes.int4)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    data = {"p": np.zeros((2, 3), ml_dtypes.int4), "x": np.ones((2, 4), np.float32)}
    compiled = dovetail.compile(model, backend, verify=False, data=data)
    placed = {node.name: node.backend for node in compiled.plan.nodes}
    assert (placed["turn"], placed["product"]) == ("host", backend)
    given = np.arange(6).reshape(2, 3).astype(ml_dtypes.int4)
    results = compiled.run({"p": given, "x": np.ones((2, 4), np.float32)})
    np.testing.assert_array_equal(results["q"], given.T)
    np.testing.assert_allclose(results["y"], [[8, -10]] * 2, rtol=0.1)
    assert not [one for one in recwarn if issubclass(one.category, dovetail.EngineWarning)]
