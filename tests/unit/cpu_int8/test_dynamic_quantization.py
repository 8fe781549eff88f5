"""`cpu-int8:activations=dynamic`: what a MatMul reads is quantized when it is run."""

from collections import Counter

import dovetail
import numpy as np
import onnx_ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from .nets import net, plugins, samples


def compiled(body, x="1,5,16"):
    return dovetail.compile(net(body, x=x), "cpu-int8:activations=dynamic", plugins=plugins(), verify=False)


def operators(result):
    return Counter(node.op_type for node in result.model.graph)


def test_products_are_computed_in_integers_without_data():
    result = compiled("p = MatMul (x, m) a = Add (p, n) g = Gelu (a) y = MatMul (g, m)")
    found = operators(result)
    assert found["DynamicQuantizeLinear"] == found["MatMulInteger"] == 2 and not found["MatMul"]


def test_products_of_one_value_share_its_integers():
    found = operators(compiled("p = MatMul (x, m) q = MatMul (x, o) y = Add (p, q)"))
    assert found["DynamicQuantizeLinear"] == 1 and found["MatMulInteger"] == 2


def test_convolutions_and_products_of_computed_values_stay_floats():
    assert operators(compiled("y = Conv (x, v, b)", x="1,4,6,6"))["Conv"] == 1
    body = "t = Transpose <perm = [0,2,1]> (x) y = MatMul (x, t)"
    assert operators(compiled(body, x="1,6,6"))["MatMul"] == 1


def test_the_result_is_close_and_runs_in_one_kernel(tmp_path):
    model = net("p = MatMul (x, m) y = Add (p, n)", x="1,5,16")
    result, feeds = dovetail.compile(model, "cpu-int8:activations=dynamic", plugins=plugins()), samples(model)[0]
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # exact on CPUs without VNNI, too
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "optimized.onnx"), 4
    content = onnx_ir.to_proto(result.model.ir).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    exact = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, feeds
    )[0]
    for found in (session.run(None, feeds)[0], result.run(feeds)["y"]):
        assert np.abs(found - exact).max() <= 0.03 * np.abs(exact).max()
    kernels = {node.op_type for node in onnx_ir.load(tmp_path / "optimized.onnx").graph}
    assert kernels == {"DynamicQuantizeMatMul"}


def stored(kind, scales, axis=1, block=0, offset=None):
    """A product with integers of the model: 8 rows and 4 columns, with an offset for each scale."""
    limits = (-8, 7) if kind == TensorProto.INT4 else (0, 15)
    numbers = np.random.default_rng(0).integers(*limits, 32).tolist()
    constants = [helper.make_tensor("q", kind, [8, 4], numbers)]
    constants.append(numpy_helper.from_array(np.linspace(0.05, 0.1, int(np.prod(scales)), dtype=np.float32), "s"))
    constants[-1].dims[:] = scales
    if offset is not None:
        constants.append(helper.make_tensor("z", kind, scales, [offset] * int(np.prod(scales))))
    ports = ["q", "s", "z"] if offset is not None else ["q", "s"]
    nodes = [
        helper.make_node("DequantizeLinear", ports, ["w"], axis=axis, **({"block_size": block} if block else {})),
        helper.make_node("MatMul", ["x", "w"], ["y"], "product"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, width]) for name, width in (("x", 8), ("y", 4))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.generated
@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize(("scales", "axis", "block"), [([4], 1, 0), ([2, 4], 0, 4), ([8], 0, 0), ([], 1, 0)])
@pytest.mark.parametrize("options", ["", ":activations=dynamic", ":weight_range=reduced"])
def test_weights_of_a_model_in_four_bits_are_read_in_floats(kind, scales, axis, block, options):
    model = stored(kind, scales, axis, block)
    result = dovetail.compile(model, f"cpu-int8{options}", plugins=plugins(), data={"x": np.ones((3, 8), np.float32)})
    assert result.verification.outputs[0].snr_db > 20


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("kind", [TensorProto.INT8, TensorProto.UINT8])
@pytest.mark.parametrize(("scales", "axis", "block"), [([4], 1, 0), ([2, 4], 0, 4), ([8], 0, 0), ([], 1, 0)])
def test_offsets_of_weights_of_a_model_count(kind, scales, axis, block):
    model = stored(kind, scales, axis, block, offset=7)
    data = {"x": np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)}
    result = dovetail.compile(model, "cpu-int8:activations=dynamic", plugins=plugins(), data=data)
    assert result.verification.outputs[0].snr_db > 20
