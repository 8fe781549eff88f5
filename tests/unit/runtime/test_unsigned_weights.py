"""Products of 8-bit integers on x86 without VNNI, where ONNX Runtime's kernels saturate sums of uint8 times int8.

What the engine loads there has no such products, and computes what the model says.
"""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.plugin import RegionModel
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu
from dovetail_host.unsigned_weights import with_unsigned_weights
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(0)
SCALE, ONE = np.float32(0.01), np.float32(1)
WEIGHT = RNG.integers(-127, 128, (16, 8)).astype(np.int8)
FILTERS = RNG.integers(-127, 128, (4, 2, 3, 3)).astype(np.int8)
ZERO, UNSIGNED = np.int8(0), np.uint8(128)
PER_COLUMN = RNG.uniform(0.005, 0.01, 8).astype(np.float32)
HIDDEN, INPUTS = 8, 16


def lstm():
    w, r = (RNG.integers(-127, 128, (1, rows, 4 * HIDDEN)).astype(np.int8) for rows in (INPUTS, HIDDEN))
    scale, zero = np.array([0.005], np.float32), np.zeros(1, np.int8)
    constants = {"w": w, "r": r, "s": scale, "z": zero}
    inputs = ["x3", "w", "r", "", "", "", "", "", "s", "z", "s", "z"]
    return [("com.microsoft::DynamicQuantizeLSTM", inputs, {"hidden_size": HIDDEN})], constants


def attention():
    constants = {"w": RNG.integers(-127, 128, (16, 48)).astype(np.int8), "b": np.zeros(48, np.float32), "z": ZERO}
    inputs = ["q3", "w", "b", "xs", "ws", "", "xz", "z"]
    return [("com.microsoft::QAttention", inputs, {"num_heads": 2})], constants


MODELS = {  # operators, as (type, inputs, attributes), and constants; the inputs are quantized from a float x
    "MatMulInteger": ([("MatMulInteger", ["q", "w", "xz", "z"], {})], {"w": WEIGHT, "z": ZERO}),
    "MatMulInteger without a zero point": ([("MatMulInteger", ["q", "w", "xz"], {})], {"w": WEIGHT}),
    "MatMulInteger of a computed weight": ([("MatMulInteger", ["q", "c", "xz"], {})], {}),
    "ConvInteger of signed data": (
        [("ConvInteger", ["signed4", "w", "", "wz"], {"pads": [1, 1, 1, 1]})],
        {"w": FILTERS.view(np.uint8) ^ np.uint8(128), "wz": UNSIGNED},
    ),
    "QLinearMatMul": (
        [("QLinearMatMul", ["q", "xs", "xz", "w", "ws", "z", "ys", "xz"], {})],
        {"w": WEIGHT, "z": ZERO, "ys": np.float32(0.2)},
    ),
    "QLinearConv": (
        [("QLinearConv", ["q4", "xs", "xz", "w", "ws", "z", "ys", "xz"], {"pads": [1, 1, 1, 1]})],
        {"w": FILTERS, "z": ZERO, "ys": np.float32(0.2)},
    ),
    "QLinearConv of com.microsoft": (
        [("com.microsoft::QLinearConv", ["q4", "xs", "xz", "w", "ws", "z", "ys", "xz"], {"pads": [1, 1, 1, 1]})],
        {"w": FILTERS, "z": ZERO, "ys": np.float32(0.2)},
    ),
    "DynamicQuantizeMatMul": (
        [("com.microsoft::DynamicQuantizeMatMul", ["x", "w", "ws", "z"], {})],
        {"w": WEIGHT, "z": ZERO},
    ),
    "DynamicQuantizeMatMul with a scale per column": (
        [("com.microsoft::DynamicQuantizeMatMul", ["x", "w", "cs"], {})],
        {"w": WEIGHT, "cs": PER_COLUMN},
    ),
    "MatMulIntegerToFloat": (
        [("com.microsoft::MatMulIntegerToFloat", ["q", "w", "xs", "ws", "xz", "z"], {})],
        {"w": WEIGHT, "z": ZERO},
    ),
    "QGemm": (
        [("com.microsoft::QGemm", ["q", "xs", "xz", "w", "ws", "z", "", "", ""], {"transB": 0})],
        {"w": WEIGHT, "z": ZERO},
    ),
    "QAttention": attention(),
    "DynamicQuantizeLSTM": lstm(),
    "MatMul of dequantized, computed integers": (
        [
            ("DequantizeLinear", ["q", "xs", "xz"], {}),
            ("DequantizeLinear", ["c", "ws", "z"], {}),
            ("MatMul", ["y0", "y1"], {}),
        ],
        {"z": ZERO},
    ),
}  # fmt: skip
KEPT = {  # two signed operands have exact kernels, and no kernel has a signed first and an unsigned second one
    "QLinearMatMul of signed data whose type nothing declares": (
        [
            ("com.microsoft::QLinearGlobalAveragePool", ["signed4", "xs", "zero8", "ys", "zero8"], {}),
            ("Flatten", ["y0"], {}),
            ("QLinearMatMul", ["y1", "ys", "zero8", "w", "ws", "z", "ys", "zero8"], {}),
        ],
        {"w": WEIGHT[:2], "z": ZERO, "ys": np.float32(0.01)},
    ),
    "signed data": ([("MatMulInteger", ["signed", "w"], {})], {"w": WEIGHT}),
    "signed data and results": (
        [("QLinearMatMul", ["signed", "xs", "z", "w", "ws", "z", "ys", "z"], {})],
        {"w": WEIGHT, "z": ZERO, "ys": np.float32(0.2)},
    ),
    "small weights": ([("MatMulInteger", ["q", "w", "xz"], {})], {"w": (WEIGHT // 2).astype(np.int8)}),
}


def model_of(operators, constants):
    constants = {"xs": SCALE, "ws": SCALE, "xz": UNSIGNED, **constants}
    made = [
        ("QuantizeLinear", ["x", "xs", "xz"], "q"),
        ("QuantizeLinear", ["x", "xs", "zero8"], "signed"),
        ("Reshape", ["q", "images"], "q4"),
        ("Reshape", ["signed", "images"], "signed4"),
        ("Reshape", ["q", "words"], "q3"),
        ("Reshape", ["x", "words"], "x3"),
        ("QuantizeLinear", ["v", "xs", "zero8"], "c"),
    ]
    constants |= {"zero8": ZERO, "images": np.array([-1, 2, 4, 4]), "words": np.array([2, -1, 16])}
    nodes = [helper.make_node(kind, inputs, [output]) for kind, inputs, output in made]
    for number, (kind, inputs, attributes) in enumerate(operators):
        domain, _, name = kind.rpartition("::")
        last = number == len(operators) - 1
        nodes.append(helper.make_node(name, inputs, ["y" if last else f"y{number}"], domain=domain, **attributes))
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 16]),
         helper.make_tensor_value_info("v", TensorProto.FLOAT, [16, 8])],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items() if name in used],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=10))


FEEDS = {"x": RNG.uniform(-1.2, 1.2, (8, 16)).astype(np.float32), "v": RNG.uniform(-1, 1, (16, 8)).astype(np.float32)}


def computed(model):
    session = OnnxRuntimeCpu().load(RegionModel(dovetail.open(model)), {"optimize": "none"})
    return session.run({value.name: FEEDS[value.name] for value in model.graph.input})["y"]


@pytest.mark.parametrize("what", MODELS)
def test_no_signed_weight_is_multiplied_with_unsigned_data(what, monkeypatch):
    model = model_of(*MODELS[what])
    changed = with_unsigned_weights(dovetail.open(model))
    assert changed is not None
    for node in changed.graph:
        if "Integer" in node.op_type or node.op_type.startswith(("QLinear", "QGemm", "QAttention", "Dynamic")):
            kinds = {value.dtype.name for value in node.inputs if value is not None and value.dtype is not None}
            assert "INT8" not in kinds, node
    expected = computed(model)
    monkeypatch.setattr("dovetail_host.session_source.saturates_dot_products", lambda: True)
    np.testing.assert_allclose(computed(model), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("what", KEPT)
def test_products_that_are_exact_stay(what, monkeypatch):
    model = model_of(*KEPT[what])
    assert with_unsigned_weights(dovetail.open(model)) is None
    expected = computed(model)
    monkeypatch.setattr("dovetail_host.session_source.saturates_dot_products", lambda: True)
    np.testing.assert_array_equal(computed(model), expected)
