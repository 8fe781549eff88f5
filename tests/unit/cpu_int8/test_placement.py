"""Where cpu-int8 puts QuantizeLinear: in front of products, and of what leads to nothing but products."""

import dovetail
import numpy as np
import onnx
import pytest

from .nets import compiled, net, quantized


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("y = Conv <pads = [1,1,1,1]> (x, w, b)", {"x"}, id="a result that nobody multiplies is none"),
        pytest.param("a = Conv (x, v, b) y = Conv (a, v, b)", {"x", "a"}, id="a result that a product reads is one"),
        pytest.param("a = Conv (x, v, b) r = Relu (a) y = Conv (r, v, b)", {"x", "r"}, id="nothing between both"),
        pytest.param("a = Conv (x, v) s = Sigmoid (a) y = Conv (s, v)", {"x", "s"}, id="other functions read floats"),
        pytest.param(
            "a = Conv (x, v, b) p = MaxPool <kernel_shape = [1,1]> (a) y = Conv (p, v, b)", {"x", "a", "p"},
            id="a MaxPool between products moves integers",
        ),
        pytest.param(
            "a = Conv (x, v, b) p = MaxPool <kernel_shape = [1,1]> (a) y = Softmax (p)", {"x"},
            id="a MaxPool in front of floats moves floats",
        ),
        pytest.param(
            "a = Conv (x, v) r = Relu (a) c = Conv (r, v) s = Add (c, r) y = Conv (s, v)", {"x", "r", "c", "s"},
            id="a residual sum between products is in integers",
        ),
        pytest.param(
            "a = Conv (x, v) r = Relu (a) c = Conv (r, v) s = Add (c, r) y = Softmax (s)", {"x", "r"},
            id="a residual sum in front of floats keeps its digits",
        ),
        pytest.param(
            "a = Conv (x, v) c = Conv (a, v) s = Sigmoid (a) y = Add (c, s)", {"x", "a"},
            id="a reader in floats gets the unrounded value",
        ),
        pytest.param(
            "p = AveragePool <kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1> (x) y = Conv (p, v, b)",
            {"p"},
            id="padding that is counted keeps a pool in floats",
        ),
    ],
)  # fmt: skip
def test_quantize_linear_stands_where_products_read(body, expected):
    assert quantized(compiled(net(body))) == expected


def test_the_sum_of_a_product_stays_wide_for_readers_in_floats():
    result = compiled(net("a = Conv (x, v, b) y = Softmax (a)"))
    assert "a" not in quantized(result)
    formats = {node.op_type: str(node.precision) for node in result.plan.nodes}
    assert formats["Conv"].startswith("int32") and formats["Softmax"] == "float32"


def test_for_onnx_runtime_every_result_of_a_convolution_is_rounded():
    body = net("a = Conv (x, v, b) y = Softmax (a)")
    assert "a" in quantized(compiled(body, "cpu-int8:runtime=onnxruntime"))


@pytest.mark.parametrize(
    ("option", "expected"), [("integers", {"x", "k", "t", "s"}), ("floats", {"x"})], ids=["integers", "floats"]
)
def test_attention_is_in_integers_unless_an_option_says_floats(option, expected):
    body = "k = MatMul (x, m) t = Transpose <perm = [0,2,1]> (k) a = MatMul (k, t) s = Softmax (a) y = MatMul (s, k)"
    model = net(body, x="1,5,16")
    found = quantized(compiled(model, f"cpu-int8:attention={option}"))
    assert found == expected


@pytest.mark.parametrize(
    ("body", "inputs", "outputs"),
    [
        pytest.param("MatMul (x, t)", 128, 1, id="one result"),
        pytest.param("MatMul (x, t)", 6, 128, id="six inputs"),
        pytest.param("Gemm (x, t, c)", 6, 128, id="a Gemm"),
    ],
)
def test_a_thin_product_reads_floats_unless_low_asks_for_integers(body, inputs, outputs):
    """Its numbers would be converted for hardly any multiplication, and rounded all the same."""
    model, numbers = net(f"[thin] y = {body}", x=f"16,{inputs}", y=f"16,{outputs}"), np.random.default_rng(2)
    for name, shape in (("t", (inputs, outputs)), ("c", (outputs,))):
        array = numbers.normal(0, 0.3, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    result = compiled(model)
    assert not quantized(result)
    assert any(remark.node == "thin" and "its weight is so thin" in remark.why for remark in result.remarks)
    assert quantized(compiled(model, low=["thin"])) == {"x"}


@pytest.mark.parametrize(
    ("backend", "high", "expected"),
    [
        ("cpu-int8", "two", {"x", "c"}),
        ("cpu-int8", "one", {"r", "c"}),
        ("cpu-int8", "type:Conv", set()),
        ("cpu-int8:runtime=onnxruntime", "two", {"x", "a", "c", "d"}),
    ],
)
def test_raised_products_stay_in_their_region_and_read_and_give_floats(backend, high, expected):
    body = "[one] a = Conv (x, v, b) r = Relu (a) [two] c = Conv (r, v, b) [three] d = Conv (c, v, b) y = Softmax (d)"
    result = compiled(net(body), backend, high=[high])
    assert quantized(result) == expected
    assert {node.backend for node in result.plan.nodes if node.op_type == "Conv"} == {"cpu-int8"}
    assert [region.backend for region in result.regions].count("cpu-int8") == 1


@pytest.mark.parametrize("backend", ["cpu-int8:weights=int8", "cpu-int8:weights=int4,block=32"])
def test_a_raised_product_reads_its_weight_in_floats(backend):
    body = "[one] a = MatMul (x, m) s = Softmax (a) [two] y = MatMul (s, m)"
    result = compiled(net(body, x="1,5,16"), backend, high=["two"])
    (raised,) = [node for node in result.plan.nodes if node.name == "two"]
    assert raised.backend == "cpu-int8" and not any(format_.quantized for format_ in raised.ports.values())
    assert len(result.regions) == 1


def test_a_model_without_products_has_no_integers():
    result = compiled(net("a = Relu (x) y = MaxPool <kernel_shape = [1,1]> (a)"))
    assert not quantized(result)
    said = {remark.node: remark.why for remark in result.remarks if remark.kind == "missed"}
    assert any("not every reader of its results wants integers" in why for why in said.values())


def test_products_in_bodies_are_said_to_compute_in_floats():
    """A Loop over the steps of a recurrent net: nothing of it is in integers, and a note says why."""
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
      g (float[5,1,8] x) => (float[1,8] y) <int64 steps = {5}> {
        y = Loop (steps, "", start) <body = step (int64 i, bool c, float[1,8] s) => (bool c1, float[1,8] s1) {
          [product] p = MatMul (s, w)  [taken] one = Gather (x, i)  [sum] a = Add (p, one)
          [bend] s1 = Tanh (a)  c1 = Identity (c) }> }""")
    arrays = {"w": rng.normal(0, 0.3, (8, 8)), "start": np.zeros((1, 8))}
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()
    )
    data = [{"x": rng.standard_normal((5, 1, 8)).astype(np.float32)} for _ in range(4)]
    result = dovetail.compile(proto, "cpu-int8", data=data)
    assert not quantized(result)
    (note,) = [note for note in result.notes() if "'product' (MatMul)" in note]
    assert "numbers in bodies of control flow are not quantized" in note
    said = {remark.node: remark.why for remark in result.remarks if remark.rule == "policy-pass"}
    assert "numbers in bodies of control flow are not quantized" in said["product"]
    assert said["taken"] == "computed in float32: cpu-int8 takes Gather in floats only"
    assert not any("at this opset" in why for why in said.values())


@pytest.mark.parametrize(("rows", "is_stored"), [(4096, True), (64, False)])
def test_a_large_table_of_tokens_is_stored_in_8_bits(rows, is_stored, tmp_path):
    """Its rows become floats when they are gathered; a small one saves nothing."""
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
      g (int64[1,6] i) => (float[1,6,32] y) { [embed] e = Gather (t, i)  [product] y = MatMul (e, w) }""")
    arrays = {"t": rng.normal(0, 1, (rows, 32)), "w": rng.normal(0, 0.2, (32, 32))}
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(a.astype(np.float32), name) for name, a in arrays.items()
    )
    result = dovetail.compile(proto, "cpu-int8", data=[{"i": rng.integers(0, rows, (1, 6))} for _ in range(4)])
    result.save(tmp_path)
    assert result.verification.worst_snr_db > 30
    stored = 4 * 32 * 32 + rows * 32 * (1 if is_stored else 4)
    assert abs((tmp_path / "model.onnx").stat().st_size - stored) < 6000 + 4 * rows


BRANCHES = """<ir_version: 8, opset_import: ["": 17]> g (float[1,64] x, bool c) => (float[1,64] y) <int64 n = {3}> {
  y = Loop (n, "", x) <body = step (int64 i, bool go, float[1,64] s) => (bool on, float[1,64] next) {
    q = If (c) <then_branch = one () => (float[1,64] a) { a = MatMul (s, w) },
                else_branch = two () => (float[1,64] b) { b = MatMul (s, w) }>
    next = Tanh (q)  on = Identity (go) }> }"""


def branches(place):
    """The model above with its weight in the main graph, or one of the same name in each branch."""
    proto, rng = onnx.parser.parse_model(BRANCHES), np.random.default_rng(0)
    body = proto.graph.node[0].attribute[0].g
    for graph in [proto.graph] if place == "outside" else [branch.g for branch in body.node[0].attribute]:
        weight = onnx.numpy_helper.from_array(rng.normal(0, 0.1, (64, 64)).astype(np.float32), "w")
        if place == "constants":
            graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=weight))
        else:
            graph.initializer.append(weight)
    return proto


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("place", ["outside", "initializers", "constants"])
def test_weights_alone_are_stored_in_few_bits_in_bodies_too(place, bits, tmp_path):
    rng = np.random.default_rng(0)
    data = [{"x": rng.standard_normal((1, 64)).astype(np.float32), "c": np.array(i % 2 == 0)} for i in range(4)]
    result = dovetail.compile(branches(place), f"cpu-int8:weights=int{bits}", data=data)
    assert result.verification.worst_snr_db > {8: 30, 4: 12}[bits]
    result.save(tmp_path)
    weights = 1 if place == "outside" else 2
    assert (tmp_path / "model.onnx").stat().st_size < weights * 64 * 64 * bits / 8 + 5000


SHARED = """<ir_version: 9, opset_import: ["": 17]> g (float[1,3,12,12] x) => (float[1,4,10,10] y, float[1,4,10,10] z) {
  a = Conv <pads = [1, 1, 1, 1]> (x, w)  r = Relu (a)  [large] b = Mul (r, k)
  [pool] p = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)
  [concat] c = Concat <axis = 1> (b, p)  [behind] y = Conv (c, v)  [beside] z = Conv (x, w)
}"""


@pytest.mark.parametrize("backend", ["cpu-int8", "qnn"])
def test_the_scale_of_a_concat_does_not_reach_the_input_through_a_pool(backend):
    """The large branch has the scale of the Concat; the image, which convolutions read, keeps the steps of its own."""
    model, numbers = onnx.parser.parse_model(SHARED), np.random.default_rng(0)
    arrays = {"w": numbers.normal(0, 0.3, (4, 3, 3, 3)), "v": numbers.normal(0, 0.3, (4, 7, 3, 3)), "k": np.array(30.0)}
    for name, array in arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    data = [{"x": numbers.normal(size=(1, 3, 12, 12)).astype(np.float32)} for _ in range(8)]
    result = dovetail.compile(model, backend, data=data, target_only=True)
    assert {node.name: node.backend for node in result.plan.nodes}["concat"] == backend
    scales = {
        name: max(one.get("scale", 0) for one in found) for name, found in result.plan.values.items() if name in "xc"
    }
    assert scales["c"] > 8 * scales["x"], "two scales"
    assert result.verification.worst_snr_db > 30


@pytest.mark.parametrize(("group", "kernel"), [(1, 2), (2, 3), (4, 4)])
def test_transposed_convolutions_hold_their_weights_in_integers(group, kernel):
    text = f"r = ConvTranspose <strides = [2, 2], group = {group}> (x, t) y = Relu (r)"
    size = 5 * 2 + kernel
    model = net(text, y=f"1,4,{size},{size}")
    array = np.random.default_rng(2).normal(0, 0.3, (4, 4 // group, kernel, kernel)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(array, "t"))
    result = compiled(model, verify=True)
    found = {node.op_type: node for node in result.plan.nodes}["ConvTranspose"]
    assert {port: str(held) for port, held in found.ports.items()} == {"W": "int8[symmetric,axis=1]"}
    assert any(one.dtype.name == "INT8" and len(one.shape) == 4 for one in result.model.graph.initializers.values())
    assert result.verification.worst_snr_db > 40
