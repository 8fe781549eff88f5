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


def test_a_weight_with_two_scales_is_had_by_one_reader_only(tmp_path):
    """A weight by channel that is also an operand of an Add, by tensor: PPL has one entry per value."""
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
      g (float[1,2,1,1] x) => (float[1,2,1,1] y) <float[2,2,1,1] w = {0.5, -0.2, 0.1, 3.0}, float[2] b = {0.1, 0.2}> {
        [first] a = Conv (x, w, b)
        [add] s = Add (a, w)
        [mean] m = ReduceMean <axes = [0], keepdims = 1> (s)
        [last] y = Conv (m, w, b)
      }""")
    data = [{"x": np.random.default_rng(seed).standard_normal((1, 2, 1, 1)).astype(np.float32)} for seed in range(4)]
    result = dovetail.compile(proto, "ppl-int8", data=data)
    said = [remark.why for remark in result.plan.remarks if remark.rule == "not-emitted"]
    assert any("'w' has two scales, and PPL takes one per value" in why for why in said)
    assert "add" not in {node.name for node in result.plan.nodes if node.backend == "ppl-int8"}
