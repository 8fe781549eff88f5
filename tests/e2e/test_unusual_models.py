"""Models that are unusual and right: they compile, and what was kept as it is, is said."""

import json
from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail.cli.main import main
from onnx import numpy_helper

HALF = """<ir_version: 10, opset_import: ["" : 22]>
g (float16[4,8] x, float16[8,8] w) => (float16[4,8] y) { [mul] a = MatMul (x, w)  [act] y = Relu (a) }"""

QDQ = """<ir_version: 10, opset_import: ["" : 22]>
g (float[4,8] x) => (float[4,8] y) <float s = {0.05}, int8 z = {3}, int8[8,8] w, float ws = {0.01}> {
  [q] xq = QuantizeLinear (x, s, z)
  [dq] xd = DequantizeLinear (xq, s, z)
  [wdq] wd = DequantizeLinear (w, ws)
  [mul] a = MatMul (xd, wd)
  [q_out] aq = QuantizeLinear (a, s, z)
  [dq_out] y = DequantizeLinear (aq, s, z)
}"""

QLINEAR = """<ir_version: 10, opset_import: ["" : 22]>
g (uint8[4,8] x) => (uint8[4,8] y)
<float s = {0.05}, uint8 z = {128}, uint8[8,8] w> { [mul] y = QLinearMatMul (x, s, z, w, s, z, s, z) }"""

ZERO = """<ir_version: 10, opset_import: ["" : 22]>
g (float[0,8] x, float[8,8] w) => (float[0,8] y) { a = MatMul (x, w)  y = Relu (a) }"""

SYMBOLIC = """<ir_version: 10, opset_import: ["" : 22]>
g (float[N,T,8] x, float[8,8] w) => (float[N,T,8] y, int64[3] s) {
  a = MatMul (x, w)
  y = Softmax (a)
  s = Shape (a)
}"""

CONSTANT_OUTPUT = """<ir_version: 10, opset_import: ["" : 22]>
g (float[2] x) => (float[2] y, float[2] k, float[2] x2) <float[2] k = {1, 2}> { y = Add (x, k)  x2 = Identity (x) }"""

EMPTY = """<ir_version: 10, opset_import: ["" : 22]> g (float[2] x) => (float[2] x) { }"""


def fill(text):
    """The model of a text; weights that are only declared get random elements."""
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(0)
    for value in list(model.graph.value_info):
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = generator.integers(0, 100, shape).astype(dtype)
        model.graph.initializer.append(numpy_helper.from_array(array, value.name))
        model.graph.value_info.remove(value)
    return model


CASES = {"zero-size": ZERO, "symbolic": SYMBOLIC, "constant output": CONSTANT_OUTPUT, "no nodes": EMPTY,
         "float16": HALF, "qdq": QDQ, "qlinear": QLINEAR}  # fmt: skip


@pytest.fixture
def compiled(tmp_path, monkeypatch, capsys):
    """Compile a text for cpu-bf16, compare it with the original on random inputs, and give all that was said."""
    monkeypatch.chdir(tmp_path)

    def run(text, *options):
        Path("m.onnx").write_bytes(fill(text).SerializeToString())
        assert main(["compile", "m.onnx", "--backend", "cpu-bf16", "--verify", "-o", "out", "--json", *options]) == 0
        onnx.checker.check_model("out/model.onnx", full_check=True)
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_it_works(compiled, text):
    said = compiled(text)
    for output in said["verification"]["outputs"]:
        good = output["snr_db"] in ("inf", None) or output["snr_db"] > 30
        assert good, output


def types_in(path):
    model = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True)
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    return {value.name: value.type.tensor_type.elem_type for value in values}


def test_a_source_in_float16_is_computed_in_bfloat16_and_keeps_float16_at_its_border(compiled):
    said = compiled(HALF)
    types = types_in("out/model.onnx")
    assert types["x"] == types["y"] == onnx.TensorProto.FLOAT16
    assert onnx.TensorProto.BFLOAT16 in types.values()
    assert any("bfloat16" in remark["why"] for remark in said["remarks"] if remark.get("node") == "mul")


Q, DQ = "QuantizeLinear", "DequantizeLinear"


@pytest.mark.parametrize(
    ("text", "fused_groups"),
    [(QDQ, {"q": Q, "dq": DQ, "wdq": DQ, "q_out": Q, "dq_out": DQ}), (QLINEAR, {"mul": "MatMul"})],
    ids=["qdq", "qlinear"],
)
def test_what_is_quantized_already_stays_so(compiled, text, fused_groups):
    compiled(text)
    before, after = fill(text), onnx.load("out/model.onnx")
    found = {node.name: node.op_type for node in after.graph.node if node.name in fused_groups}
    assert found == fused_groups
    weights = {tensor.name: tensor for tensor in after.graph.initializer}
    for tensor in before.graph.initializer:
        assert numpy_helper.to_array(weights[tensor.name]).tobytes() == numpy_helper.to_array(tensor).tobytes()


def unsorted(model):
    """The same model with its nodes in the opposite order, in bodies too."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    graphs = [found.graph]
    while graphs:
        graph = graphs.pop()
        nodes = list(graph.node)[::-1]
        del graph.node[:]
        graph.node.extend(nodes)
        graphs += [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return found


@pytest.mark.generated
@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8", "gpu-fp16", "ppl-int8", "tensorrt"])
@pytest.mark.parametrize("whole", [False, True])
def test_nodes_out_of_order_are_sorted_as_onnx_runtime_does(backend, whole, tmp_path):
    """For every kind of request: with data and without, verified or not, from a file and from memory."""
    digits = Path(__file__).parents[2] / "examples" / "digits"
    model = unsorted(onnx.load(digits / "digits.onnx"))
    onnx.save(model, tmp_path / "unsorted.onnx")
    images = {"image": np.load(digits / "test.npz")["image"][:4]}
    expected = dovetail.compile(digits / "digits.onnx", backend, data=images).run(images)
    found = dovetail.compile(tmp_path / "unsorted.onnx" if whole else model, backend, data=images, verify=True).run(
        images
    )
    assert all(np.array_equal(found[name], array) for name, array in expected.items())


def test_bodies_out_of_order_and_what_they_capture_are_sorted():
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[2] x, bool c) => (float[2] y) {
            a = Neg (x)
            y = If (c) <then_branch = t () => (float[2] p) { q = Abs (a) p = Neg (q) },
                        else_branch = e () => (float[2] r) { r = Identity (a) }>
        }""")
    feeds = {"x": np.float32([1, -2]), "c": np.array(True)}
    assert dovetail.compile(unsorted(model), "cpu-bf16", data=feeds).run(feeds)["y"].tolist() == [-1, -2]
