"""Valid models of an unusual build: functions of any opset, no default domain, false declarations, unused imports."""

import dovetail
import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_proto
from onnx import TensorProto, helper

X = np.random.default_rng(0).normal(0, 1, (3, 4)).astype(np.float32)


def function(name, nodes, opset, inputs=("a",), **more):
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, list(inputs), ["b"], nodes, opsets, **more)


def model(nodes, functions, opset=None, output=("N", 4)):
    """`x` to `y` through `nodes`; with no opset, the model itself imports no default domain."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, output)
    opsets = [helper.make_opsetid("local", 1), *([helper.make_opsetid("", opset)] if opset else [])]
    graph = helper.make_graph(nodes, "g", [x], [y])
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=8)


def call(name, left="x", right="y"):
    return helper.make_node(name, [left], [right], domain="local")


# Up to opset 12, ReduceSum has its axes in an attribute; from 13 on, they are an input.
OLD_SUM = [helper.make_node("ReduceSum", ["a"], ["b"], axes=[1], keepdims=1)]
NEW_SUM = [
    helper.make_node("Constant", [], ["axes"], value=helper.make_tensor("axes", TensorProto.INT64, [1], [1])),
    helper.make_node("ReduceSum", ["a", "axes"], ["b"], keepdims=1),
]
RELU = [helper.make_node("Relu", ["a"], ["b"])]
ROWS = X.sum(1, keepdims=True)
MODELS = {
    "the same operators in another version": (model([call("F")], [function("F", RELU, 21)], 22), np.maximum(X, 0)),
    "an older function": (model([call("F")], [function("F", OLD_SUM, 11)], 13, ("N", 1)), ROWS),
    "a newer function": (
        model([call("F", "x", "s"), helper.make_node("Neg", ["s"], ["y"])], [function("F", NEW_SUM, 13)], 11, ("N", 1)),
        -ROWS,
    ),
    "a newer function behind a node that changes": (
        model(
            [helper.make_node("ReduceSum", ["x"], ["s"], axes=[0], keepdims=1), call("F", "s")],
            [function("F", NEW_SUM, 13)], 11, (1, 1),
        ),
        X.sum().reshape(1, 1),
    ),
    "functions of two versions": (
        model(
            [call("F", "x", "s"), call("G", "s")],
            [function("F", OLD_SUM, 11), function("G", RELU, 14)], 13, ("N", 1),
        ),
        np.maximum(ROWS, 0),
    ),
    "no default domain in the model": (model([call("F")], [function("F", RELU, 18)]), np.maximum(X, 0)),
    "a function out of order": (
        model(
            [call("F")],
            [function("F", [helper.make_node("Relu", ["c"], ["b"]), helper.make_node("Neg", ["a"], ["c"])], 22)], 22,
        ),
        np.maximum(-X, 0),
    ),
    "a function within a function": (
        model(
            [call("F")],
            [function("F", [helper.make_node("G", ["a"], ["b"], domain="local")], 21), function("G", RELU, 20)], 22,
        ),
        np.maximum(X, 0),
    ),
}  # fmt: skip


@pytest.mark.generated
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("backend", ["host", "cpu-bf16"])
def test_functions_of_any_opset_compile_and_compute_right(name, backend):
    proto, expected = MODELS[name]
    compiled = dovetail.compile(open_proto(onnx.ModelProto.FromString(proto.SerializeToString())), [backend])
    assert not compiled.model.ir.functions
    np.testing.assert_allclose(compiled.run({"x": X})["y"], expected, rtol=0.02, atol=0.05)


def test_a_function_that_cannot_be_brought_to_the_opset_is_named():
    # Scan of opset 8 may have sequences of several lengths.
    nodes = [helper.make_node("Scan", ["n", "a"], ["b"], "loop", num_scan_inputs=1, body=helper.make_graph(
        [helper.make_node("Identity", ["i"], ["o"])], "body", [helper.make_tensor_value_info("i", 1, [4])],
        [helper.make_tensor_value_info("o", 1, [4])]))]  # fmt: skip
    nodes.insert(0, helper.make_node("Shape", ["a"], ["n"]))
    proto = model([call("F")], [function("F", nodes, 8)], 22)
    with pytest.raises(
        DovetailError, match=r"function 'F' of opset 8 cannot be inlined into a model of opset 22: 'loop'"
    ):
        dovetail.compile(open_proto(proto), ["host"])


def rules(compiled):
    return [remark.rule for remark in compiled.remarks]


def checked(compiled, folder):
    compiled.save(folder)
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    return onnx.load(folder / "model.onnx")


FALSE_RANK = """<ir_version: 8, opset_import: ["": 18]>
g (float[2,6] x) => (float[2,2,3,9] y) <int64[3] s = {2, 2, 3}> { r = Reshape (x, s)  y = Relu (r) }"""
KNOWN_AFTER_FOLDING = """<ir_version: 8, opset_import: ["": 18]>
g (float[2,6] x) => (float[2,2,3,9] y) <int64[4] all = {2, 2, 3, 9}, bool[4] some = {1, 1, 1, 0}> {
  s = Compress <axis = 0> (all, some)  r = Reshape (x, s)  y = Relu (r) }"""


@pytest.mark.parametrize("text", [FALSE_RANK, KNOWN_AFTER_FOLDING], ids=["at first", "after folding"])
def test_an_output_declared_with_a_rank_it_has_not_is_corrected(tmp_path, text):
    compiled = dovetail.compile(open_proto(onnx.parser.parse_model(text)), ["host"])
    result = checked(compiled, tmp_path)
    assert [dim.dim_value for dim in result.graph.output[0].type.tensor_type.shape.dim] == [2, 2, 3]
    remark = next(remark for remark in compiled.remarks if remark.rule == "declared-shape")
    assert (remark.node, "computed as [2, 2, 3]" in remark.why) == ("y", True)


def test_true_declarations_keep_their_names():
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[N,6] x) => (float[rows,6] y) { y = Relu (x) }'
    compiled = dovetail.compile(open_proto(onnx.parser.parse_model(text)), ["host"])
    assert [str(extent) for extent in compiled.model.graph.outputs[0].shape] == ["rows", "6"]
    assert "declared-shape" not in rules(compiled)


def test_unused_imports_go_and_a_producer_is_named(tmp_path):
    text = '<ir_version: 8, opset_import: ["": 22, "Paddle": 1]> g (float[N,3] x) => (float[N,3] y) { y = Relu (x) }'
    compiled = dovetail.compile(open_proto(onnx.parser.parse_model(text)), ["cpu-bf16"])
    result = checked(compiled, tmp_path)
    assert [entry.domain for entry in result.opset_import] == [""]
    assert result.producer_name == "dovetail"
    assert "unused-imports" in rules(compiled)


def test_openvino_reads_a_result_of_two_domains_and_no_producer(tmp_path):
    openvino = pytest.importorskip("openvino")
    text = '<ir_version: 8, opset_import: ["": 22, "Paddle": 1]> g (float[N,3] x) => (float[N,3] y) { y = Relu (x) }'
    dovetail.compile(open_proto(onnx.parser.parse_model(text)), ["cpu-bf16"]).save(tmp_path)
    assert openvino.Core().read_model(tmp_path / "model.onnx").inputs


def test_training_information_is_left_out(tmp_path):
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[3] x) => (float[3] y) { y = Relu (x) }'
    )
    proto.training_info.add().algorithm.name = "sgd"
    compiled = dovetail.compile(open_proto(proto), ["host"])
    assert not checked(compiled, tmp_path).training_info and "training" in rules(compiled)


def test_constants_that_the_inliner_repeats_are_dropped():
    """onnx's inliner puts a constant twice where it converts a function that reads it."""
    outer = [
        helper.make_node("Constant", [], ["k"], value=helper.make_tensor("k", TensorProto.FLOAT, [4], [1, 2, 3, 4])),
        helper.make_node("G", ["a", "k"], ["b"], domain="local"),
    ]
    inner = function("G", [helper.make_node("Add", ["a", "c"], ["b"])], 8, ("a", "c"))
    proto = model([call("F")], [function("F", outer, 22), inner], 22)
    compiled = dovetail.compile(open_proto(proto), ["host"])
    np.testing.assert_allclose(compiled.run({"x": X})["y"], X + [1, 2, 3, 4], rtol=1e-6)
