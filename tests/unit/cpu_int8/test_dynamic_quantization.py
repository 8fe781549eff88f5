"""`cpu-int8:activations=dynamic`: what a MatMul reads is quantized when it is run."""

from collections import Counter

import dovetail
import numpy as np
import onnx_ir
import onnxruntime

from .nets import net, plugins, samples


def compiled(body, x="1,5,6"):
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
    model = net("p = MatMul (x, m) y = Add (p, n)", x="1,5,6")
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
