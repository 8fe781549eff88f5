"""Sums in float16 as a device computes them: the emulation against NumPy's own float16, and against WebGPU."""

import dovetail
import numpy as np
import onnx.parser
import pytest
from dovetail.plugin import EngineError, RegionModel
from dovetail_gpu_fp16.half import arithmetic
from dovetail_gpu_fp16.half.engine import HalfSums
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu
from dovetail_onnxruntime_ep import WebGpu

HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'
RANDOM = np.random.default_rng(0)


def half(*shape, scale=1.0):
    return (scale * RANDOM.standard_normal(shape)).astype(np.float16)


def region(text):
    return RegionModel(dovetail.open(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(HEAD + text))))


def computed(text, engine=HalfSums, **feeds):
    return engine().load(region(text), {}).run(feeds)["y"]


def in_order(values):
    total = np.float16(0) * values[..., 0]
    for index in range(values.shape[-1]):
        total = total + values[..., index]
    return total


@pytest.mark.parametrize("scale", [1.0, 1e-4, 30.0])
def test_rounding_in_float32_is_that_of_float16(scale):
    values = half(4000).astype(np.float32) * (1 + RANDOM.integers(-2, 3, 4000) * 2.0**-11)  # ties, and near them
    values = np.concatenate([scale * values, np.arange(2048, 8192)]).astype(np.float32)
    rounded = values.copy()
    arithmetic._round_in_place(rounded, np.empty_like(values))
    assert np.array_equal(rounded, values.astype(np.float16).astype(np.float32))


MATMUL = "g (float16[M,K] a, float16[K,N] b) => (float16[M,N] y) { y = MatMul(a, b) }"


@pytest.mark.parametrize(("scale", "what"), [(1.0, "in range"), (40.0, "may overflow"), (3e-5, "subnormal")])
def test_a_product_adds_in_order_and_rounds_each_step(scale, what):
    a, b = half(5, 300, scale=scale), half(300, 7, scale=scale)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = in_order(np.moveaxis(a[:, :, None] * b[None], 1, -1))
    assert np.array_equal(computed(MATMUL, a=a, b=b), expected, equal_nan=True), what


def test_large_products_are_computed_in_tiles_alike():
    a, b = half(3, 400, 40), half(40, 300)
    expected = in_order(np.moveaxis(a[..., None] * b, -2, -1))
    text = "g (float16[3,400,40] a, float16[40,300] b) => (float16[3,400,300] y) { y = MatMul(a, b) }"
    assert np.array_equal(computed(text, a=a, b=b), expected)


CONVOLUTIONS = [
    ("Conv <kernel_shape=[3,3], pads=[1,1,1,1]> (x, w)", (2, 6, 9, 8), (4, 6, 3, 3)),
    ("Conv <strides=[2,3], dilations=[2,1], pads=[0,1,2,3]> (x, w)", (1, 4, 11, 12), (6, 4, 3, 2)),
    ('Conv <auto_pad="SAME_UPPER", strides=[2,2]> (x, w)', (1, 3, 9, 10), (5, 3, 4, 3)),
    ('Conv <auto_pad="SAME_LOWER"> (x, w)', (1, 3, 9, 10), (5, 3, 4, 2)),
    ("Conv <group=3> (x, w)", (1, 6, 7, 7), (9, 2, 3, 3)),
    ("Conv (x, w)", (1, 5, 20), (4, 5, 3)),
    ("Conv (x, w)", (1, 2, 5, 6, 7), (3, 2, 2, 3, 2)),
    ("ConvTranspose <strides=[2,2], pads=[1,1,1,1]> (x, w)", (1, 6, 5, 4), (6, 3, 4, 4)),
    ("ConvTranspose <strides=[3,2], output_padding=[1,1], dilations=[1,2]> (x, w)", (2, 4, 5, 4), (4, 3, 2, 3)),
    ("ConvTranspose <group=2, strides=[2]> (x, w)", (1, 4, 9), (4, 3, 3)),
    ('ConvTranspose <auto_pad="SAME_UPPER", strides=[2,2]> (x, w)', (1, 2, 5, 4), (2, 3, 3, 3)),
    ("ConvTranspose <output_shape=[12,9], strides=[2,2]> (x, w)", (1, 2, 5, 4), (2, 1, 3, 3)),
    ("AveragePool <kernel_shape=[3,3], pads=[1,1,1,1]> (x)", (1, 3, 7, 8), None),
    ("AveragePool <kernel_shape=[3,2], strides=[2,2], pads=[1,1,0,0], count_include_pad=1> (x)", (1, 3, 7, 8), None),
    ("GlobalAveragePool (x)", (2, 3, 20, 20), None),
    ("ReduceMean <keepdims=0> (x, axes)", (4, 5, 6), None),
    ("ReduceSum (x, axes)", (4, 50, 60), None),
    ("ReduceL2 (x)", (4, 6), None),
    ("Softmax <axis=1> (x)", (3, 50, 4), None),
    ("LogSoftmax (x)", (3, 51), None),
    ("CumSum <reverse=1> (x, axis)", (30, 4), None),
    ("CumSum <exclusive=1> (x, axis)", (30, 4), None),
    ("Clip (x, low, high)", (40,), None),
    ("Elu <alpha=0.5> (x)", (40,), None),
    ("Gelu (x)", (40,), None),
    ('Gelu <approximate="tanh"> (x)', (40,), None),
    ("HardSwish (x)", (40,), None),
    ("Erf (x)", (40,), None),
]  # fmt: skip


@pytest.mark.parametrize(("call", "data", "weights"), CONVOLUTIONS, ids=lambda value: str(value)[:40])
def test_apart_from_rounding_an_operator_is_what_onnxruntime_computes(call, data, weights):
    shape = ",".join(map(str, data))
    more = f", float16[{','.join(map(str, weights))}] w" if weights else ""
    rank = len(data) - 2 * ("keepdims=0" in call)
    result = f"float16[{','.join('PQRST'[:rank])}]"
    constants = "axes = Constant <value = int64[2] {0, 1}> () axis = Constant <value = int64 {0}> ()"
    constants += " l = Constant <value_float = -0.5> () h = Constant <value_float = 0.75> ()"
    constants += " low = Cast <to = 10> (l) high = Cast <to = 10> (h)"
    text = f"g (float16[{shape}] x{more}) => ({result} y) {{ {constants} y = {call} }}"
    feeds = {"x": half(*data)} | ({"w": half(*weights, scale=0.3)} if weights else {})
    found, expected = computed(text, **feeds), computed(text, OnnxRuntimeCpu, **feeds)
    assert found.dtype == np.float16 and found.shape == expected.shape
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=0.02, atol=0.02)


def test_numbers_that_are_none_become_what_shaders_make_of_them():
    x = np.array([np.nan, np.inf, -1, 2], np.float16)
    text = "g (float16[4] x) => (float16[4] y) { y = Relu(x) }"
    assert computed(text, x=x).tolist() == [0, np.inf, 0, 2]


def test_bodies_are_emulated_too():
    text = """g (bool c, float16[1,400] a, float16[400,1] b) => (float16[1,1] y) {
      y = If (c) <then_branch = t () => (float16[1,1] p) { p = MatMul(a, b) },
                  else_branch = e () => (float16[1,1] q) { m = MatMul(a, b) q = Neg(m) }> }"""
    a, b = half(1, 400), half(400, 1)
    expected = in_order(a * b[:, 0])
    for condition, sign in ((True, 1), (False, -1)):
        found = computed(text, c=np.array(condition), a=a, b=b)
        assert found.tolist() == [(sign * expected).tolist()]


def test_what_is_float32_is_left_to_onnxruntime():
    text = "g (float[1,4000] a, float[4000,1] b) => (float[1,1] y) { y = MatMul(a, b) }"
    a, b = half(1, 4000).astype(np.float32), half(4000, 1).astype(np.float32)
    assert np.array_equal(computed(text, a=a, b=b), computed(text, OnnxRuntimeCpu, a=a, b=b))


@pytest.mark.slow
def test_the_option_accumulate_checks_with_it(tmp_path):
    """A sum of 4,000 ones ends at 2,048 in float16, and the goal raises it."""
    text = "g (float[1,4000] x, float[4000,2] w) => (float[1,2] y) { y = MatMul(x, w) }"
    model = onnx.parser.parse_model(HEAD + text)
    ones = {"x": np.ones((1, 4000), np.float32), "w": np.ones((4000, 2), np.float32)}
    plain = dovetail.compile(model, "gpu-fp16", data=ones)
    if plain.executor().engines != ["onnxruntime-cpu"]:
        pytest.skip("this is about machines without a GPU, and here is one")
    assert plain.run(ones)["y"].tolist() == [[4000, 4000]]
    emulated = dovetail.compile(model, "gpu-fp16:accumulate=half", data=ones)
    assert emulated.executor().engines == ["half-sums"]
    assert emulated.run(ones)["y"].tolist() == [[2048, 2048]]
    assert "half-sums" in emulated.summary()
    raised = dovetail.compile(model, "gpu-fp16:accumulate=half", data=ones, min_snr=60)
    assert raised.run(ones)["y"].tolist() == [[4000, 4000]]


needs_webgpu = pytest.mark.skipif(
    "not __import__('dovetail_onnxruntime_ep').WebGpu().available().ok", reason="needs a WebGPU device, or Mesa's"
)


@needs_webgpu
@pytest.mark.parametrize(
    ("call", "shapes", "result"),
    [
        ("MatMul(a, b)", ((8, 300), (300, 9)), (8, 9)),
        ("Gemm<transB=1>(a, b)", ((8, 64), (9, 64)), (8, 9)),
        ("Conv(a, b)", ((1, 8, 9, 9), (4, 8, 3, 3)), (1, 4, 7, 7)),
        ("ReduceMean(a, axes)", ((8, 300),), (8, 1)),
        ("GlobalAveragePool(a)", ((1, 8, 20, 20),), (1, 8, 1, 1)),
        ("Tanh(a)", ((8, 300),), (8, 300)),
    ],
)
def test_webgpu_computes_the_same_bits(call, shapes, result):
    inputs = ", ".join(f"float16[{','.join(map(str, shape))}] {name}" for name, shape in zip("ab", shapes))
    axes = "axes = Constant <value = int64[1] {1}> ()" if "axes" in call else ""
    text = f"g ({inputs}) => (float16[{','.join(map(str, result))}] y) {{ {axes} y = {call} }}"
    feeds = {name: half(*shape) for name, shape in zip("ab", shapes)}
    assert np.array_equal(computed(text, WebGpu, **feeds), computed(text, **feeds))


@pytest.mark.parametrize(
    ("shape", "groups", "wrong"),
    [
        ((8, 6, 3, 3), 1, True), ((8, 9, 1, 1), 1, False), ((8, 3, 3, 3), 1, False), ((6, 6, 3, 3), 1, False),
        ((8, 12, 3, 3), 1, False), ((12, 6, 3, 3), 2, True), ((12, 4, 3, 3), 3, False), ((6, 1, 3, 3), 6, False),
    ],
)  # fmt: skip
def test_convolutions_that_webgpu_computes_wrongly_are_refused_by_name(shape, groups, wrong):
    channels = shape[1] * groups
    sizes = ",".join(map(str, shape))
    text = f"""g (float16[1,{channels},9,9] x, float16[{sizes}] w) => (float16[1,{shape[0]},P,Q] y) {{
      [named] y = Conv <group = {groups}, strides = [1, 1]> (x, w) }}"""
    (node,) = region(text).model.nodes()
    assert bool(WebGpu().miscomputes(node)) == wrong
    if wrong:
        with pytest.raises(EngineError, match="'named'.* wrongly") as caught:
            WebGpu().load(region(text), {})
        assert caught.value.nodes == ("named",)
    elif WebGpu().available().ok:
        feeds = {"x": half(1, channels, 9, 9), "w": half(*shape)}
        found, expected = computed(text, WebGpu, **feeds), computed(text, OnnxRuntimeCpu, **feeds)
        np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=0.05, atol=0.1)
