"""How cpu-bf16 runs on OpenVINO: in OpenVINO's own bfloat16 mode, and in float32 where the plan says float32.

On a CPU without bfloat16 instructions everything runs in float32, so these tests hold there for a simpler reason.
"""

import dovetail
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

BIAS = 1.0019  # bfloat16 has nothing between 1 and 1.0078


def convolution(channels: int = 16) -> onnx.ModelProto:
    """A convolution with a bias and a product by a scalar behind its activation, then the mean over each channel."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 22]>
        g (float[1,16,64,64] x) => (float[1,16,1,1] y)
        <float[16,16,3,3] w, float[16] b, float[1,16,1,1] b1, float k = {0.33301}>
        { c = Conv <pads = [1,1,1,1]> (x, w, b)  s = Sigmoid (c)  t = Mul (s, k)  a = Add (t, b1)
          y = GlobalAveragePool (a) }"""
    )
    generator = np.random.default_rng(0)
    weights = {
        "w": generator.standard_normal((channels, channels, 3, 3)) / 12,
        "b": np.full(channels, BIAS),
        "b1": np.full((1, channels, 1, 1), BIAS),
    }
    del model.graph.initializer[:]
    weights["k"] = np.array(0.33301)
    model.graph.initializer.extend(
        numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()
    )
    return model


def pictures() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).standard_normal((1, 16, 64, 64)).astype(np.float32)}


def expected(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    import onnxruntime

    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0]


def test_vectors_are_not_rounded_before_they_are_added():
    """Rounded, bias and scalar would move every element the same way, and the means with them."""
    model, feeds = convolution(), pictures()
    result = dovetail.compile(model, "cpu-bf16").run(feeds)["y"]
    np.testing.assert_allclose(result, expected(model, feeds), atol=4e-4)


def test_numbers_that_differ_in_the_last_digits_only_belong_to_their_nodes():
    """The frontend rounds both slopes to 0.166016, which would lower every mean by a part in 250."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 22]>
        g (float[1,16,64,64] x) => (float[1,16,1,1] y) <float[16,16,3,3] w, float[16] b, float[16,16,1,1] v> {
            c = Conv <pads = [1,1,1,1]> (x, w, b) s = HardSigmoid <alpha = 0.16666667, beta = 0.0> (c)
            d = Conv (s, v) t = HardSigmoid <alpha = 0.1666669, beta = 0.0> (d) y = GlobalAveragePool (t) }"""
    )
    del model.graph.initializer[:]
    generator = np.random.default_rng(0)
    weights = {
        "w": generator.standard_normal((16, 16, 3, 3)) / 12,
        "b": np.full(16, BIAS),
        "v": np.full((16, 16, 1, 1), 0.75),
    }
    model.graph.initializer.extend(
        numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()
    )
    feeds = pictures()
    result = dovetail.compile(model, "cpu-bf16").run(feeds)["y"]
    np.testing.assert_allclose(result, expected(model, feeds), rtol=2e-3)


def test_digits_survive_saving(tmp_path):
    model, feeds = convolution(), pictures()
    compiled = dovetail.compile(model, "cpu-bf16")
    compiled.save(tmp_path)
    loaded = dovetail.load(tmp_path)
    np.testing.assert_array_equal(loaded.run(feeds)["y"], compiled.run(feeds)["y"])
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)


BETWEEN = {
    "Sub": "e = Exp (c)  m = ReduceMean <keepdims = 1> (e, last)  r = Sub (e, m)",
    "Div": "e = Exp (c)  m = ReduceMean <keepdims = 1> (e, last)  r = Div (e, m)",
    "Softmax": "e = Exp (c)  r = Softmax (e)",
    "LogSoftmax": "e = Exp (c)  r = LogSoftmax (e)",
    "LayerNormalization": "e = Exp (c)  r = LayerNormalization <epsilon = 0.5> (e, scale)",
    "ReduceL2": "e = Exp (c)  m = ReduceL2 <keepdims = 1> (e, last)  r = Mul (e, m)",
    "Erf": "e = Exp (c)  m = Erf (e)  r = Pow (m, e)",
    "Clip": "e = Exp (c)  m = Clip (e)  r = Sqrt (m)",
    "MatMul": "e = Exp (c)  r = MatMul (e, e)",
    "Where": "e = Exp (c)  q = Greater (e, c)  r = Where (q, e, c)",
    "Pad": 'e = Exp (c)  m = Pad <mode = "edge"> (e, shift)  r = Sqrt (m)',
    "ScatterElements": """e = Exp (c)  i = ArgMax <axis = 3> (x)  u = ReduceMean <keepdims = 1> (e, last)
                          m = ScatterElements <axis = 3> (e, i, u)  r = Sqrt (m)""",
    "Resize": """e = Exp (c)  m = Resize <mode = "linear"> (e, , twice)
                 r = AveragePool <kernel_shape = [2,2], strides = [2,2]> (m)""",
    "Sub of a product": "e = Exp (c)  m = Mul (e, third)  r = Sub (e, m)",
}


@pytest.mark.parametrize("text", BETWEEN.values(), ids=BETWEEN)
def test_what_the_plan_has_in_float32_runs_in_float32(text):
    """Between two convolutions in bfloat16; OpenVINO forgets marks on some of these operators."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 22]>
        g (float[1,16,16,16] x) => (float[1,16,16,16] y)
        <int64[1] last = {{3}}, int64[8] shift = {{0,0,0,1,0,0,0,-1}},
         float[4] twice = {{1,1,2,2}}, float third = {{0.3}}>
        {{ c = Conv <pads = [1,1,1,1]> (x, w)  {text}  y = Conv <pads = [1,1,1,1]> (r, w) }}"""
    )
    generator = np.random.default_rng(0)
    weights = generator.standard_normal((16, 16, 3, 3)).astype(np.float32) / 24
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    if "scale" in text:
        model.graph.initializer.append(numpy_helper.from_array(np.linspace(1, 2, 16, dtype=np.float32), "scale"))
    feeds = {"x": generator.standard_normal((1, 16, 16, 16)).astype(np.float32)}
    between = {node.op_type for node in model.graph.node} - {"Conv"}
    compiled = dovetail.compile(model, "cpu-bf16", high=[f"type:{kind}" for kind in between])
    result = compiled.run(feeds)["y"]
    reported = compiled.executed()
    precisions = {node.op_type: reported[node.name].precision for node in compiled.model.nodes()}
    assert {precisions[kind] for kind in between} <= {"float32", "bool", ""}
    truth = expected(model, feeds)
    assert np.abs(result - truth).max() < 0.03 * np.abs(truth).max()


SPELLED = {
    "Subtract": lambda ov, x: ov.subtract(x, ov.reduce_mean(x, 3, True)),
    "Divide": lambda ov, x: ov.divide(x, ov.reduce_max(x, 1, True)),
    "Softmax": lambda ov, x: ov.softmax(x, -1),
    "LogSoftmax": lambda ov, x: ov.log_softmax(x, -1),
    "MVN": lambda ov, x: ov.mvn(x, 3, True, 0.1, "inside_sqrt"),
    "MVN, epsilon outside": lambda ov, x: ov.mvn(x, 3, True, 0.1, "outside_sqrt"),
    "MVN without variance": lambda ov, x: ov.mvn(x, 3, False, 0.1, "inside_sqrt"),
    "Subtract a product": lambda ov, x: ov.subtract(x, ov.multiply(x, np.float32(0.3))),
    "Pad": lambda ov, x: ov.pad(x, (0, 0, 1, -1), [0, 0, -1, 2], "reflect"),
    "Pad with a value": lambda ov, x: ov.pad(x, (0, 0, 1, 1), [0, 0, 0, 2], "constant", np.float32(3)),
    "ScatterElementsUpdate": lambda ov, x: ov.scatter_elements_update(
        x, np.ones((1, 3, 4, 1), np.int32), np.ones((1, 3, 4, 1), np.float32), np.int32(3)
    ),
    "Interpolate, scales": lambda ov, x: ov.interpolate(
        x, np.array([2, 1.5], np.float32), "linear_onnx", "scales", axes=np.array([2, 3])
    ),
    "Interpolate, sizes": lambda ov, x: ov.interpolate(x, np.array([1, 3, 8, 3]), "nearest", "sizes"),
}


@pytest.mark.parametrize("make", SPELLED.values(), ids=SPELLED)
def test_what_is_spelled_out_means_the_same(make):
    import openvino
    from dovetail_cpu_bf16.decompositions import decompose
    from openvino import opset13

    class Operations:
        """OpenVINO's operations with axes as plain numbers."""

        def __getattr__(self, name):
            def made(data, *options, **named):
                axes = options and name not in ("softmax", "log_softmax") and isinstance(options[0], int)
                first = [opset13.constant(np.array([options[0]]))] if axes else list(options[:1])
                return getattr(opset13, name)(data, *first, *options[1:], **named)

            return made

    def run(spelled):
        given = opset13.parameter([1, 3, 4, 5], np.float32)
        operation = make(Operations(), given)
        result = opset13.relu(operation)
        if spelled:
            made = decompose(operation)
            assert len(made) > 1 or made[0] is not operation
        request = openvino.Core().compile_model(openvino.Model([result], [given]), "CPU").create_infer_request()
        request.infer({0: np.random.default_rng(0).standard_normal((1, 3, 4, 5)).astype(np.float32)})
        return np.array(request.get_output_tensor(0).data)

    np.testing.assert_allclose(run(True), run(False), rtol=1e-5, atol=1e-6)


def test_products_of_constants():
    """OpenVINO's own mode gives zeros in all rows but the first of this one."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 22]>
        g (float[2,6] x) => (float[6,2] y) <float[2,2] w = {-0.1, 1.2, 0.8, 0.5}>
        { e = EyeLike (x)  s = Softsign (e)  y = Gemm <transA = 1> (s, w) }"""
    )
    feeds = {"x": np.zeros((2, 6), np.float32)}
    np.testing.assert_allclose(dovetail.compile(model, "cpu-bf16").run(feeds)["y"], expected(model, feeds), rtol=2**-8)
