"""A model is lowered whole or refused; the source stays as it is."""

import re

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail.planning import Placement, get_placement, set_placement
from dovetail_onnx.opening import open_text
from dovetail_onnx.skeleton import skeleton_of
from dovetail_transforms.lowering import can_lower, lower


def opened(body, opset=18):
    return open_text(f'<ir_version: 9, opset_import: ["": {opset}, "acme": 1]> {body}', "text")


MEAN = """g (float[2, 3] x) => (float[2, 1] y) <int64[1] axes = {1}, float[300, 300] w> {
    [mean] y = ReduceMean (x, axes) [weighted] z = Identity (w) }"""


def test_the_source_is_not_changed():
    model = opened(MEAN)
    before = str(model)
    lowered = lower(model, 11).model
    assert str(model) == before
    assert (model.opset, lowered.opset, lowered.ir.ir_version) == (18, 11, 6)


def test_weights_are_shared_and_not_read():
    def never():
        raise AssertionError("the weight was read")

    model = opened(MEAN.replace("z = Identity (w)", "y2 = MatMul (m, w)").replace("x)", "x, float[2, 300] m)", 1)
                   .replace("y)", "y, float[2, 300] y2)", 1))  # fmt: skip
    weight = model.graph.initializers["w"]
    weight.const_value = ir.LazyTensor(never, ir.DataType.FLOAT, ir.Shape([300, 300]), name="w")
    lowered = lower(model, 11).model
    assert lowered.graph.initializers["w"].const_value is weight.const_value


def test_every_change_has_a_remark():
    remarks = lower(opened(MEAN), 11).remarks
    assert [(remark.node, remark.rule, remark.why) for remark in remarks if remark.pass_ == "lower-opset"][-1] == (
        "mean", "axes-to-attribute", "ReduceMean of opset 18 becomes ReduceMean",
    )  # fmt: skip


def test_a_model_of_an_older_opset_stays():
    model = opened("g (float[2] x) => (float[2] y) { y = Relu (x) }", 9)
    lowered = lower(model, 11)
    assert (lowered.model.opset, lowered.remarks) == (9, ())


def test_placements_survive():
    model = opened("g (float[2, 3] x, float[3] s) => (float[2, 3] y) { [n] y = LayerNormalization (x, s) }")
    set_placement(model.graph[0], Placement("acme", "float32", region=3))
    lowered = lower(model, 11).model
    assert {get_placement(node).region for node in lowered.graph} == {3}
    assert len(lowered.graph) > 3


def test_nodes_in_bodies_are_lowered():
    body = """g (bool c, float[2, 3] x) => (float[2, 1] y) <int64[1] axes = {1}> {
        [if] y = If (c) <then_branch = t () => (float[2, 1] p) { [then] p = ReduceMean (x, axes) },
                         else_branch = e () => (float[2, 1] q) { [else] q = ReduceMax (x, axes) }> }"""
    lowered = lower(opened(body), 11).model
    assert [(node.name, list(node.inputs)[0].name) for node in lowered.nodes()][1:] == [("then", "x"), ("else", "x")]
    proto = skeleton_of(lowered).proto
    onnx.checker.check_model(proto, full_check=True)


FUNCTION = """<ir_version: 9, opset_import: ["": 18, "own": 1]>
    g (float[2, 3] x) => (float[2, 1] y) <int64[1] axes = {1}> { y = own.Mean (x, axes) }
    <domain: "own", opset_import: ["": 18]> Mean (a, i) => (b) { [inner] b = ReduceMean (a, i) }"""


def test_functions_of_the_model_are_inlined_by_lower_and_refused_by_the_pass(tmp_path, capsys):
    assert [node.op_type for node in lower(open_text(FUNCTION, "text"), 11).model.graph] == ["ReduceMean"]
    path = tmp_path / "m.onnxtxt"
    path.write_text(FUNCTION)
    assert main(["opt", str(path), "-p", "lower-opset"]) == 1
    said = capsys.readouterr().err
    assert "functions of its own ('Mean')" in said
    assert "run `normalize` first" in said


def test_a_body_may_hold_what_a_rule_makes():
    """Constants of a rule are initializers of the body; a body may read outer values but not define their names."""
    text = """g (bool c, float[2, 3] x, float[3] s) => (float[2, 3] y) {
        [norm] outer = LayerNormalization (x, s)
        y = If (c) <then_branch = t () => (float[2, 3] p) { [norm_1] p = LayerNormalization <axis = 1> (outer, s) },
                    else_branch = e () => (float[2, 3] q) { q = Neg (outer) }> }"""
    proto = skeleton_of(lower(opened(text), 11).model).proto
    onnx.checker.check_model(proto, full_check=True)
    given = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "s": np.ones(3, np.float32), "c": np.array(True)}
    (y,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, given)
    np.testing.assert_allclose(y, [[-1.2247, 0, 1.2247]] * 2, atol=1e-3)


@pytest.mark.parametrize("opset", [10, 0, -1])
def test_an_opset_below_the_table_is_refused(opset):
    with pytest.raises(DovetailError, match=f"lowered to opset 11 at the lowest, not to opset {opset}") as caught:
        lower(opened(MEAN), opset)
    assert caught.value.hint == "choose an opset from 11 on"


REFUSED = {
    "an operator that came later": ("y = Einsum <equation = \"ij->ji\"> (x)", "it came with opset 12"),
    "axes that are computed": ("y = ReduceMax (x, k)", "its axes ('k') are not constant"),
    "a type": ("c = Cast <to = 16> (x) a = Relu (c) y = Cast <to = 1> (a)", "'output' is tensor(bfloat16)"),
    "a mode": ("y = Pad <mode = \"wrap\"> (x, k4)", "mode is wrap"),
    "training": ("t = Constant <value = bool {1}> () y = Dropout (x, r, t)", "it may be in training mode"),
    "scales per axis": ("q = QuantizeLinear <axis = 0> (x, s) y = DequantizeLinear <axis = 0> (q, s)", "2 scales"),
    "bounds that cross": ("y = Clip (x, high, low)", "bounds that cross"),
    "antialiasing": ("y = Resize <mode = \"linear\", antialias = 1> (x, , s)", "antialias is 1"),
    "another corner": ("y = RoiAlign (i, s22, b)", "not shifted by half a pixel"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_a_node_without_a_form_is_named_with_the_way_out(kind):
    nodes, why = REFUSED[kind]
    text = f"""g (float[2, 3] x, int64[1] k, int64[4] k4, float r, float[1, 2, 8, 8] i, float[2, 4] s22, int64[2] b)
        => (float[M, N] y) <float[2] s = {{1, 2}}, float low = {{0}}, float high = {{1}}> {{ {nodes} }}"""
    text = text.replace("float[M, N] y", "float[A, B, C, D] y") if "RoiAlign" in nodes else text
    with pytest.raises(DovetailError, match=re.escape(why)) as caught:
        lower(opened(text, 19), 11)
    assert re.search(r"'\w+': \w+ of opset \d+ has no form in opset 11: ", str(caught.value))
    assert caught.value.hint


def test_many_refused_nodes_are_counted():
    nodes = " ".join(f'[e{index}] y{index} = Einsum <equation = "i->i"> (x)' for index in range(9))
    with pytest.raises(DovetailError, match=r"'e0': .*'e4': .*; and 4 more nodes") as caught:
        lower(opened(f"g (float[2] x) => (float[2] y0) {{ {nodes} }}"), 11)
    assert "'e5'" not in str(caught.value)


def test_the_command_refuses_with_one_message(tmp_path, capsys):
    path = tmp_path / "m.onnxtxt"
    path.write_text('<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) '
                    '{ [e] y = Einsum <equation = "i->i"> (x) }')  # fmt: skip
    kept = tmp_path / "out.onnx"
    kept.write_bytes(b"a result of before")
    assert main(["opt", str(path), "-p", "normalize,lower-opset", "-o", str(kept)]) == 1
    said = capsys.readouterr().err
    assert "'e': Einsum of opset 18 has no form in opset 11" in said
    assert "Traceback" not in said
    assert kept.read_bytes() == b"a result of before"


class TestCanLower:
    """Claims ask for single nodes, and get the answer that lowering would give."""

    def test_a_node_with_a_form(self):
        node = opened(MEAN).graph[0]
        assert can_lower(node, 11) is None
        assert (node.op_type, len(node.inputs), node.version) == ("ReduceMean", 2, None)

    def test_a_node_without_one_says_why_and_where(self):
        node = opened('g (float[2] x) => (float[2] y) { y = Einsum <equation = "i->i"> (x) }').graph[0]
        refusal = can_lower(node, 11)
        assert refusal.text == "Einsum of opset 18 has no form in opset 11: it came with opset 12"
        assert refusal.source.endswith("table.yaml")
        assert can_lower(node, 12) is None

    def test_axes_that_the_model_computes_from_constants(self):
        nodes = "k = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> () axes = Add (k, one)"
        model = opened(f"g (float[2, 3] x) => (float[2, 1] y) {{ {nodes} [m] y = ReduceMax (x, axes) }}")
        for node in model.graph:
            for value in node.outputs:
                value.type, value.shape = value.type or ir.TensorType(ir.DataType.INT64), value.shape or ir.Shape([1])
        assert can_lower(model.graph[-1], 11) is None

    def test_a_control_flow_node_answers_for_its_bodies(self):
        model = opened("""g (bool c, float[2] x) => (float[2] y) {
            y = If (c) <then_branch = t () => (float[2] p) { [e] p = Einsum <equation = "i->i"> (x) },
                        else_branch = e () => (float[2] q) { q = Neg (x) }> }""")
        assert "Einsum" in can_lower(model.graph[0], 11).text

    def test_a_node_in_a_body_needs_the_opsets(self):
        model = opened("""g (bool c, float[2] x) => (float[2] y) {
            y = If (c) <then_branch = t () => (float[2] p) { p = Celu (x) },
                        else_branch = e () => (float[2] q) { q = Neg (x) }> }""")
        inner = next(node for node in model.nodes() if node.op_type == "Celu")
        assert can_lower(inner, 11, {"": 18}) is None
        with pytest.raises(ValueError, match="opset of node"):
            can_lower(inner, 11)

    def test_other_domains_are_not_bound_by_the_opset(self):
        model = opened("g (float[2] x) => (float[2] y) { y = acme.Anything (x) }")
        assert can_lower(model.graph[0], 11) is None


def test_the_mask_of_a_dropout_that_keeps_everything_is_true():
    model = opened("""g (float[2, 3] x, float r) => (float[2, 3] y, bool[2, 3] m) { y, m = Dropout (x, r) }""")
    proto = skeleton_of(lower(model, 11).model).proto
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    x = np.ones((2, 3), np.float32)
    y, mask = session.run(None, {"x": x, "r": np.array(0.5, np.float32)})
    np.testing.assert_array_equal(y, x)
    assert mask.all()
