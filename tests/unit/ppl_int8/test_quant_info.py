"""What PPL is told: every field of an entry, which values have one, and when a value cannot have one."""

import json
from pathlib import Path

import dovetail
import numpy as np
import onnx
import pytest
from dovetail_schemas import load_backend

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "examples" / "digits"
OPERATORS = [
    "Conv", "Relu", "PRelu", "Clip", "Gemm", "Resize", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool",
    "Mul", "Add", "LeakyRelu", "Split", "Concat", "Transpose", "Slice", "Reshape", "Flatten", "Sigmoid", "ReduceMean",
]  # fmt: skip


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The digits as a result and as what PPL gets: its model and its file."""
    folder = tmp_path_factory.mktemp("digits")
    data = {"image": np.load(DIGITS / "test.npz")["image"][:64]}
    result = dovetail.compile(DIGITS / "digits.onnx", "ppl-int8", data=data)
    result.save(folder / "out")
    artifact = folder / "out" / "artifacts" / "ppl-int8" / "model"
    return result, onnx.load(artifact / "model.onnx"), json.loads((artifact / "ppl.json").read_text())


def test_the_operators_are_those_of_ppq_for_ppl_cuda_int8():
    backend = load_backend(ROOT / "backends" / "ppl_int8" / "src" / "dovetail_ppl_int8" / "ppl_int8.yaml")
    known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    assert {operator for operator in known if backend.lists("", operator)} == set(OPERATORS)


def test_an_activation(digits):
    result, _, document = digits
    entry = dict(document["quant_info"]["image"])
    (held,) = result.plan.values["image"]
    assert entry.pop("hash") == entry.pop("dominator")
    assert entry == {
        "bit_width": 8, "per_channel": False, "quant_flag": True, "sym": True, "scale": held["scale"], "zero_point": 0,
        "tensor_min": -128 * held["scale"], "tensor_max": 127 * held["scale"], "q_min": -128, "q_max": 127,
    }  # fmt: skip
    assert (held["format"], held["zero_point"]) == ("uint8[symmetric]", 128), "the same integers, 128 higher"


def test_a_weight_has_a_scale_for_each_channel(digits):
    _, proto, document = digits
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    (name,) = (node.input[1] for node in proto.graph.node if node.name == "conv_2")
    entry, largest = document["quant_info"][name], np.abs(weights[name]).max((1, 2, 3))
    assert entry["per_channel"] and entry["zero_point"] == [0] * len(largest)
    assert np.allclose(np.array(entry["scale"]) * 127, largest)
    assert np.allclose(entry["tensor_min"], np.array(entry["scale"]) * -128)


def test_values_that_share_a_scale_have_one_dominator(digits):
    _, proto, document = digits
    pool = next(node for node in proto.graph.node if node.op_type == "MaxPool")
    before, after = (document["quant_info"][name] for name in (pool.input[0], pool.output[0]))
    assert before["dominator"] == after["dominator"] and before["scale"] == after["scale"]
    assert before["hash"] != after["hash"]
    hashes = [entry["hash"] for entry in document["quant_info"].values()]
    assert len(set(hashes)) == len(hashes)


def test_biases_and_fused_values_have_no_entry(digits):
    _, proto, document = digits
    by_name = {node.name: node for node in proto.graph.node}
    assert by_name["conv_1"].input[2] not in document["quant_info"]
    assert by_name["conv_1"].output[0] not in document["quant_info"]
    assert by_name["relu_1"].output[0] in document["quant_info"]


def test_nodes_in_floats_are_left_out(digits):
    result, proto, document = digits
    here = {node.name for node in result.plan.nodes if node.backend == "ppl-int8"}
    assert document["op_info"] == {name: {"data_type": "INT8"} for name in document["op_info"]}
    assert set(document["op_info"]) == here < {node.name for node in proto.graph.node}


def test_the_same_request_gives_the_same_file(digits, tmp_path):
    _, _, document = digits
    data = {"image": np.load(DIGITS / "test.npz")["image"][:64]}
    dovetail.compile(DIGITS / "digits.onnx", "ppl-int8", data=data).save(tmp_path / "out")
    again = json.loads((tmp_path / "out" / "artifacts" / "ppl-int8" / "model" / "ppl.json").read_text())
    assert again == document


@pytest.mark.parametrize("number", [1, 17])
def test_a_weight_that_is_read_in_two_scales_is_there_twice(number, tmp_path):
    """Weights by channel that are also operands of an Add, by tensor: PPL has one entry per value."""
    weights = ", ".join(f"float[2,2,1,1] w{at} = {{0.5, -0.2, 0.1, 3.0}}" for at in range(number))
    steps = " ".join(
        f"[conv{at}] a{at} = Conv (m{at}, w{at}) [add{at}] s{at} = Add (a{at}, w{at}) "
        f"[mean{at}] m{at + 1} = ReduceMean <axes = [0], keepdims = 1> (s{at})"
        for at in range(number)
    )
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 13]>
      g (float[1,2,1,1] m0) => (float[1,2,1,1] y) <{weights}, float[2,2,1,1] v = {{0.5, -0.2, 0.1, 3.0}}>
      {{ {steps} [last] y = Conv (m{number}, v) }}""")
    data = [{"m0": np.random.default_rng(seed).standard_normal((1, 2, 1, 1)).astype(np.float32)} for seed in range(4)]
    result = dovetail.compile(proto, "ppl-int8", data=data)
    assert result.coverage().startswith(f"ppl-int8 {3 * number + 1}/{3 * number + 1} nodes")
    result.save(tmp_path / "out")
    artifact = tmp_path / "out" / "artifacts" / "ppl-int8" / "model"
    written, document = onnx.load(artifact / "model.onnx"), json.loads((artifact / "ppl.json").read_text())
    onnx.checker.check_model(written)
    nodes = {node.name: node for node in written.graph.node}
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in written.graph.initializer}
    for at in range(number):
        names = nodes[f"conv{at}"].input[1], nodes[f"add{at}"].input[1]
        assert [document["quant_info"][name]["per_channel"] for name in names] == [True, False]
        assert np.array_equal(*(tensors[name] for name in names))
