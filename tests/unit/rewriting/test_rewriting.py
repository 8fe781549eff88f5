"""A rewrite is a pattern, a replacement and a check; it is tested as text in, text out."""

import numpy as np
import onnx_ir as ir
import pytest
from dovetail.passes import Context
from dovetail.planning import Placement, get_placement, origin_of, set_placement
from dovetail_onnx.opening import open_text
from dovetail_transforms.rewriting import Rewrite, rewrite_model


def opened(text):
    return open_text(f'<ir_version: 10, opset_import: ["": 18, "acme": 1]> {text}', "text")


def rewritten(text, *rewrites, explain=False):
    """The lines of the nodes, and the remarks."""
    model, ctx = opened(text), Context()
    rewrite_model(model, ctx, rewrites, explain=explain)
    return lines(model), [f"{remark.kind} {remark.node}: {remark.why}" for remark in ctx.remarks]


def lines(model):
    return [line.split("#")[0].strip() for line in str(model).splitlines() if line.startswith("  ") and "(" in line]


def swish(op, x):
    return op.Mul(x, op.Sigmoid(x, called="gate"))


SWISH = Rewrite("swish", swish, lambda op, x: op.Swish(x, domain="acme"), done="it is '{gate}' and '{node}'")
HARDER = Rewrite(
    "relu-to-clip",
    lambda op, x: op.Relu(x),
    lambda op, x: op.Clip(x, op.constant(ir.tensor(np.float32(0)), "low")),
)


def test_a_pattern_of_two_nodes_is_replaced_by_one():
    text = "g (float[2] a) => (float[2] y) { [gate] s = Sigmoid (a) [product] m = Mul (a, s) [last] y = Neg (m) }"
    nodes, remarks = rewritten(text, SWISH)
    assert nodes == ["[product] m = acme.Swish (a)", "[last] y = Neg (m)"]
    assert remarks == ["passed product: it is 'gate' and 'product'"]


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ("[gate] s = Sigmoid (b) [product] y = Mul (a, s)", "its input 0 is another value than x"),
        ("[gate] s = Relu (a) [product] y = Mul (a, s)", "its input is not computed by a gate"),
        ("[product] y = Mul (a, b)", "its input is not computed by a gate"),
        ("[gate] s = Sigmoid (a) [product] m = Mul (a, s) y = Add (m, s)", "the gate has other readers"),
    ],
)
def test_a_failed_match_says_why_on_request(nodes, why):
    text = f"g (float[2] a, float[2] b) => (float[2] y) {{ {nodes} }}"
    assert rewritten(text, SWISH) == (lines(opened(text)), [])
    assert rewritten(text, SWISH, explain=True)[1] == [f"missed product: not applied: {why}"]


def test_a_value_that_the_graph_returns_counts_as_read():
    text = "g (float[2] a) => (float[2] y, float[2] s) { [gate] s = Sigmoid (a) [product] y = Mul (a, s) }"
    assert rewritten(text, SWISH, explain=True)[1] == ["missed product: not applied: the gate has other readers"]


def test_an_output_of_the_graph_keeps_its_name_and_its_type():
    model = opened("g (float[N, 3] a) => (float[N, 3] y) { [r] y = Relu (a) }")
    rewrite_model(model, Context(), [HARDER])
    (node,) = model.graph
    assert (node.name, node.op_type) == ("r", "Clip")
    assert [(value.name, str(value.shape)) for value in model.graph.outputs] == [("y", "[N,3]")]


def test_new_constants_and_nodes_have_names_of_their_own():
    text = """g (float[2] r_low) => (float[2] y) { [r] a = Relu (r_low) [s] y = Relu (a) }"""
    assert rewritten(text, HARDER)[0] == ["[r] a = Clip (r_low, r_low_1)", "[s] y = Clip (a, s_low)"]


def test_nodes_like_the_old_one_keep_its_name_once():
    twice = Rewrite("twice", lambda op, x: op.Sin(x), lambda op, node, x: op.Neg(op.like(node, op.like(node, x))))
    twice = Rewrite("twice", twice.pattern, twice.replacement, lambda node: "" if len(node.graph) == 1 else "done")
    nodes, _ = rewritten("g (float[2] a) => (float[2] y) { [sine] y = Sin (a) }", twice)
    assert [node.split("]")[0] for node in nodes][0] == "[sine"
    assert len({node.split("]")[0] for node in nodes}) == 3


def test_nodes_in_bodies_are_rewritten():
    text = """g (bool c, float[2] a) => (float[2] y) {
        y = If (c) <then_branch = t () => (float[2] p) { [inner] p = Relu (a) },
                    else_branch = e () => (float[2] q) { q = Neg (a) }> }"""
    model = opened(text)
    assert rewrite_model(model, Context(), [HARDER])
    assert [node.op_type for node in model.nodes()] == ["If", "Clip", "Neg"]


def test_what_a_rewrite_makes_is_rewritten_again():
    twice = Rewrite("square", lambda op, x: op.Abs(x), lambda op, x: op.Relu(op.Neg(x)))
    text = "g (float[2] a) => (float[2] y) { [abs] y = Abs (a) }"
    nodes, remarks = rewritten(text, twice, HARDER)
    assert nodes == ["[abs_Neg] abs_Neg_out = Neg (a)", "[abs] y = Clip (abs_Neg_out, abs_low)"]
    assert len(remarks) == 2


def test_a_rewrite_that_makes_what_it_matches_ends():
    text = "g (float[2] a) => (float[2] y) { [abs] y = Abs (a) }"
    nodes, _ = rewritten(text, Rewrite("more", lambda op, x: op.Abs(x), lambda op, x: op.Abs(x)))
    assert nodes == ["[abs] y = Abs (a)"]
    nodes, _ = rewritten(text, Rewrite("more and more", lambda op, x: op.Abs(x), lambda op, x: op.Abs(op.Abs(x))))
    assert 100 <= len(nodes) <= 110


def test_an_optional_input_may_be_absent():
    def dense(op, x, w, bias=None):
        return op.Relu(op.Conv(x, w, bias))

    def fused(op, x, w, bias):
        return op.Fused(x, w, bias, domain="acme")

    text = """g (float[1, 1, 4] x, float[1, 1, 1] w, float[1] b) => (float[1, 1, 4] y) {
        c = Conv (x, w) r = Relu (c) d = Conv (r, w, b) y = Relu (d) }"""
    nodes = [line.partition(" = ")[2] for line in rewritten(text, Rewrite("fuse", dense, fused))[0]]
    assert [node.replace('""', "").rstrip(",) ") for node in nodes] == ["acme.Fused (x, w", "acme.Fused (r, w, b"]


def test_an_existing_value_may_replace_a_result_unless_that_is_an_output():
    double = Rewrite("neg-neg", lambda op, x: op.Neg(op.Neg(x)), lambda op, x: x)
    text = "g (float[2] a) => (float[2] y) { n = Neg (a) m = Neg (n) y = Relu (m) }"
    assert [line.partition(" = ")[2] for line in rewritten(text, double)[0]] == ["Relu (a)"]
    ends = "g (float[2] a) => (float[2] y) { n = Neg (a) [last] y = Neg (n) }"
    nodes, remarks = rewritten(ends, double, explain=True)
    assert len(nodes) == 2
    assert remarks[-1] == "missed last: not applied: it computes an output of the graph"


def test_outputs_that_the_replacement_does_not_compute_must_be_unread():
    first = Rewrite("largest", lambda op, x, k: op.TopK(x, k), lambda op, x: op.ReduceMax(x, keepdims=1))
    text = "g (float[4] a, int64[1] k) => (float[N] y) { [top] v, i = TopK (a, k) y = Relu (v) }"
    assert [line.partition(" = ")[2] for line in rewritten(text, first)[0]] == [
        "ReduceMax <keepdims = 1> (a)", "Relu (v)",
    ]  # fmt: skip
    both = "g (float[4] a, int64[1] k) => (float[N] y, int64[N] i) { [top] v, i = TopK (a, k) y = Relu (v) }"
    nodes, remarks = rewritten(both, first, explain=True)
    assert len(nodes) == 2
    assert remarks == ["missed top: not applied: its output 1 is read, which the replacement does not compute"]


def test_types_of_inner_values_are_inferred():
    halves = Rewrite("mean", lambda op, x: op.GlobalAveragePool(x),
                     lambda op, x: op.Sqrt(op.Abs(op.ReduceMax(x, keepdims=0))))  # fmt: skip
    model = opened("g (float16[2, 3, 4] a) => (float16[N, C, W] y) { [pool] y = GlobalAveragePool (a) }")
    rewrite_model(model, Context(), [halves])
    assert [str(value.type) for node in model.graph for value in node.outputs] == ["FLOAT16"] * 3


def test_new_nodes_have_the_origin_and_the_placement_of_the_old():
    model = opened("g (float[2] a) => (float[2] y) { [gate] s = Sigmoid (a) [product] y = Mul (a, s) }")
    set_placement(list(model.graph)[1], Placement("acme", "float32"))
    rewrite_model(model, Context(), [SWISH])
    (node,) = model.graph
    assert origin_of(node) == ("gate", "product")
    assert get_placement(node).backend == "acme"


def test_a_lazy_weight_is_not_computed():
    def never():
        raise AssertionError("the weight was computed")

    scale = Rewrite(
        "scaled",
        lambda op, x, w: op.MatMul(x, w),
        lambda op, x, w: op.Gemm(x, op.constant(ir.LazyTensor(never, ir.DataType.FLOAT, w.shape), "weight")),
    )
    model = opened("g (float[2, 4] a, float[4, 4] w) => (float[2, 4] y) { [product] y = MatMul (a, w) }")
    assert rewrite_model(model, Context(), [scale])
    assert list(model.graph.initializers) == ["product_weight"]


def test_a_pattern_must_return_an_operator():
    broken = Rewrite("broken", lambda op, x: x, lambda op, x: x)
    with pytest.raises(TypeError, match="no operator"):
        rewritten("g (float[2] a) => (float[2] y) { y = Relu (a) }", broken)


def test_many_readers_of_one_value_are_counted_once():
    """Counting the readers of a value anew for each of them would take quadratic time."""
    nodes = " ".join(f"[m{index}] v{index} = Mul (a, s)" for index in range(300))
    model = opened(f"g (float[2] a) => (float[2] v0) {{ [gate] s = Sigmoid (a) {nodes} }}")
    shared = next(value for node in model.graph for value in node.outputs if value.name == "s")
    counts, uses = [], type(shared).uses

    class Counting(type(shared)):
        __slots__ = ()

        def uses(self):
            counts.append(self.name)
            return uses(self)

    shared.__class__ = Counting
    assert not rewrite_model(model, Context(), [SWISH])
    assert counts.count("s") == 1
