"""Patterns that OpenVINO computes wrongly, or refuses, in low precision, and the engine repairs."""

import dovetail
import numpy as np
import onnx
import openvino as ov
import pytest
from dovetail_cpu_int8.engine import OpenVinoCpuInt8
from dovetail_cpu_int8.repairs import repair_low_precision
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu

from .nets import compiled, net, plugins, quantized, samples
from .test_engine import computed, region

CASES = {
    "a maximum over axes, quantized": "a = Conv (x, v, b) t = ReduceMax <keepdims = 1> (a, axes) y = Conv (t, v, b)",
    "a minimum over axes, quantized": "a = Conv (x, v, b) t = ReduceMin <keepdims = 1> (a, axes) y = Conv (t, v, b)",
    "a maximum, bent and quantized":
        "a = Conv (x, v, b) t = ReduceMax <keepdims = 1> (a, axes) e = Elu (t) y = Conv (e, v, b)",
    "a MaxPool behind which the order of numbers changes":
        "a = Conv (x, v, b) p = MaxPool <kernel_shape = [3,3], pads = [1,1,1,1]> (a) d = Abs (p) y = Conv (d, v, b)",
    "a MatMul scaled along its rows": "k = MatMul (x, m) t = Mul (k, rows) q = MatMul (k, t) y = Mul (q, rows)",
    "a MatMul with a scale per column": "k = MatMul (x, m) t = Mul (k, columns) y = MatMul (t, o)",
    "products of one shape without a bias, on one thread":
        "k = MatMul (x, m) t = MatMul (k, m) q = MatMul (t, m) y = Softmax (q)",
    "a Concat that is multiplied": "a = Conv (x, v, b) c = Concat <axis = 1> (a, x) y = MatMul (c, m)",
    "an average per channel, scaled":
        "a = Conv (x, v, b) p = AveragePool <kernel_shape = [2,2]> (a) s = Mul (p, rows) y = Conv (s, v, b)",
    "a MatMul that is resized":
        'a = MatMul (x, m) r = Resize <coordinate_transformation_mode = "asymmetric"> (a, , scales) y = Conv (r, v, b)',
}  # fmt: skip
CONSTANTS = {
    "axes": "axes = Constant <value_ints = [3]> ()",
    "rows": "rows = Constant <value = float[1,4,1,1] {0.3, -1.5, 2.0, 0.7}> ()",
    "columns": "columns = Constant <value = float[16] {0.3, 900.0, 2.0, 0.7, 1.0, 5.0" + ", 1.0" * 10 + "}> ()",
    "scales": "scales = Constant <value_floats = [1.0, 1.0, 2.0, 2.0]> ()",
}


@pytest.mark.generated
@pytest.mark.parametrize("body", CASES.values(), ids=CASES)
def test_what_is_repaired_is_computed_as_the_file_says(body):
    shape = "4,16" if "columns" in body else "1,4,16,16" if "MatMul" in body else "1,4,6,6"
    made = shape.replace("4", "8", 1) if "Concat" in body else ",".join("abcd"[: shape.count(",") + 1])
    given = " ".join(text for name, text in CONSTANTS.items() if f"{name})" in body)
    model = net(f"{given} {body}", x=shape, y=made)
    result, feeds = compiled(model), samples(model, 17)[16]
    exact = computed(OnnxRuntimeCpu(), region(result), feeds, optimize="none")
    found = computed(OpenVinoCpuInt8(), region(result), feeds)
    assert np.abs(found - exact).max() <= 2 * np.abs(exact).max() / 255


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("shape", ["1,4,6,6", "1,4,h,k"], ids=["fixed", "open"])
@pytest.mark.parametrize(
    "body",
    ["a = Conv (x, v) c = Conv (a, v, b) y = Mul (a, c)", "y = Conv (x, v) c = Conv (y, v, b)"],
    ids=["read by another", "an output"],
)
def test_a_convolution_without_a_bias_that_is_read_quantized_and_in_floats(body, shape):
    model, data = net(body, x=shape), samples(net(body), 17)
    if "y = Conv" in body:
        model.graph.output.add().CopyFrom(onnx.helper.make_tensor_value_info("c", 1, None))
    result = dovetail.compile(model, "cpu-int8", data=data[:16], refine="none", verify=False, plugins=plugins())
    assert {"x", "y" if "y = Conv" in body else "a"} <= quantized(result)
    exact, found = (
        engine.load(region(result), {"optimize": "none"} if engine.name != "openvino-cpu-int8" else {}).run(data[16])
        for engine in (OnnxRuntimeCpu(), OpenVinoCpuInt8())
    )
    for name, array in exact.items():
        assert np.abs(found[name] - array).max() <= 2 * np.abs(array).max() / 255


def test_a_graph_without_conversions_is_left_alone():
    data = ov.opset13.parameter([1, 4, 6, 6], np.float32)
    largest = ov.opset13.reduce_max(data, ov.opset13.constant(np.array([3])), True)
    model = ov.Model([ov.opset13.add(largest, largest)], [data])
    before = [node.get_type_name() for node in model.get_ordered_ops()]
    repair_low_precision(model)
    assert [node.get_type_name() for node in model.get_ordered_ops()] == before


@pytest.mark.parametrize("reduce", [ov.opset13.reduce_max, ov.opset13.reduce_min])
def test_what_is_largest_over_axes_is_computed_alone(reduce):
    """Whether OpenVINO computes a single reader together with it depends on extents and on what is before."""
    data = ov.opset13.parameter([1, 4, 6, 6], np.float32)
    low, high = ov.opset13.constant(np.float32(0)), ov.opset13.constant(np.float32(5))
    largest = reduce(ov.opset13.fake_quantize(data, low, high, low, high, 256), ov.opset13.constant(np.array([2, 3])))
    quantized = ov.opset13.fake_quantize(largest, low, high, low, high, 256)
    model = ov.Model([quantized], [data])
    repair_low_precision(model)
    assert len(largest.output(0).get_target_inputs()) == 2
    inputs = np.random.default_rng(0).uniform(0, 5, (1, 4, 6, 6)).astype(np.float32)
    computed = ov.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(inputs)[0]
    wanted = np.round(np.round(inputs * 51) / 51 * 51) / 51
    assert np.allclose(computed, (wanted.max if "max" in reduce.__name__ else wanted.min)((2, 3)), atol=1e-6)
