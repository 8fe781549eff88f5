"""What the BPU gets of the structures that its vendor's article and questions of users are about, and why not more.

"An operator satisfies the constraint list, and is on the CPU": each case names the rule that keeps it there.
"""

import dovetail
import numpy as np
import pytest
from dovetail_onnx.opening import open_text

from .vendor_files import model_of

MARCHES = ("bernoulli2", "bayes", "nash")
WEIGHTS = "<float[8,8,1,1] w, float[8,16,1,1] v>"
IMAGE = f"(float[1,8,16,16] x) => (float[1,n,h,k] y) {WEIGHTS} "

CASES = {
    "concat without an active operator behind it": (
        "{ [one] a = Conv (x, w) [two] b = Conv (a, w) [join] y = Concat <axis = 1> (a, b) }",
        "one two",
        {"join": "passive"},
    ),
    "concat between convolutions": (
        "{ [one] a = Conv (x, w) [two] b = Conv (a, w) [join] c = Concat <axis = 1> (a, b) [three] y = Conv (c, v) }",
        "one two join three",
        {},
    ),
    "convolution and Relu at the tail": (
        "{ [one] a = Conv (x, w) [two] b = Conv (a, w) [act] y = Relu (b) }",
        "one two",
        {"act": "tail"},
    ),
    "softmax in the middle": (
        "{ [one] a = Conv (x, w) [soft] b = Softmax <axis = 1> (a) [two] y = Conv (b, w) }",
        "one two",
        {"soft": {"bernoulli2": "not-supported", "bayes": "manual", "nash": "manual"}},
    ),
    "softmax at the end": (
        "{ [one] a = Conv (x, w) [soft] y = Softmax <axis = 1> (a) }",
        "one",
        {"soft": "manual"},
    ),
    "residual addition": (
        """{ [one] a = Conv (x, w) [two] b = Conv (a, w) [add] c = Add (a, b) [act] d = Relu (c)
             [three] y = Conv (d, w) }""",
        "one two add act three",
        {},
    ),
    "two regions around an operator of the CPU": (
        "{ [one] a = Conv (x, w) [erf] b = Erf (a) [two] y = Conv (b, w) }",
        "one two",
        {"erf": "not-supported"},
    ),
    "resize between convolutions": (
        """{ [one] a = Conv (x, w)
             [grow] b = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric"> (a, , s)
             [two] y = Conv (b, w) }""",
        "one grow two",
        {},
    ),
    "resize by three": (
        """{ [one] a = Conv (x, w)
             [grow] b = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric"> (a, , t)
             [two] y = Conv (b, w) }""",
        "one two",
        {"grow": "not-supported"},
    ),
    "pooling of the input": (
        "{ [pool] a = MaxPool <kernel_shape = [2,2]> (x) [one] y = Conv (a, w) }",
        "one",
        {"pool": "passive"},
    ),
    "pooling with dilation": (
        """{ [one] a = Conv (x, w) [pool] b = MaxPool <kernel_shape = [2,2], dilations = [2,2]> (a)
             [two] y = Conv (b, w) }""",
        "one two",
        {"pool": "not-supported"},
    ),
}


def text_of(body):
    scales = ", float[4] s = {1.0,1.0,2.0,2.0}, float[4] t = {1.0,1.0,3.0,3.0}>"
    return IMAGE.replace("v>", f"v{scales}") + body


@pytest.mark.parametrize("march", MARCHES)
@pytest.mark.parametrize("case", CASES)
def test_structures_of_the_article(placed, case, march):
    body, expected, why = CASES[case]
    assert placed(text_of(body), march) == expected
    rules = {name: rule[march] if isinstance(rule, dict) else rule for name, rule in why.items()}
    assert {name: placed.why[name][0] for name in rules} == rules


BLOCK = """{ [one] a = Conv (x, w) [turn] b = Transpose <perm = [0,2,3,1]> (a) [flat] c = Reshape (b, shape)
             [back] d = Reshape (c, image) [two] y = Conv (d, w) }"""
SHAPES = ", int64[3] shape = {1, 256, 8}, int64[4] image = {1, 8, 16, 16}>"


@pytest.mark.parametrize(
    ("march", "expected"),
    [("bernoulli2", "one two"), ("bayes", "one turn flat back two"), ("nash", "one turn flat back two")],
)
def test_reshapes_and_transposes_between_convolutions(placed, march, expected):
    assert placed(IMAGE.replace("v>", "v" + SHAPES) + BLOCK, march) == expected


REDUCED = """{ [one] a = Conv (x, w) [flat] b = Reshape (a, shape)
               [OPERATOR] c = OPERATOR <axes = [AXIS], keepdims = 0> (b)
               [back] d = Reshape (c, image) [two] y = Conv (d, u) }"""


@pytest.mark.parametrize("march", ["bayes", "nash"])
@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMean", "ReduceSum"])
def test_a_reduction_that_drops_its_axis_stays_on_the_bpu(placed, operator, axis, march):
    _, rows, columns = (extent for at, extent in enumerate([1, 8, 16, 16]) if at != axis)
    shapes = f", float[{rows},{rows},1,1] u, int64[4] shape = {{1,8,16,16}}, int64[4] image = {{1,{rows},{columns},1}}>"
    body = REDUCED.replace("OPERATOR", operator).replace("AXIS", str(axis))
    text = IMAGE.replace("v>", "v" + shapes) + body
    assert placed(text, march, opset=11) == f"one flat {operator} back two"


@pytest.mark.parametrize("march", ["bayes", "nash"])
def test_a_softmax_of_three_axes_is_on_the_bpu_where_somebody_asks(placed, march):
    body = """{ [one] a = Conv (x, w) [flat] b = Reshape (a, shape) [soft] c = Softmax <axis = 2> (b)
                [back] d = Reshape (c, image) [two] y = Conv (d, w) }"""
    shapes = ", int64[3] shape = {1,8,256}, int64[4] image = {1,8,16,16}>"
    text = IMAGE.replace("v>", "v" + shapes) + body
    assert placed(text, march, pins=("soft=bpu-int8",)) == "one flat soft back two"


@pytest.mark.parametrize(("march", "rule"), [("bernoulli2", "not-supported"), ("bayes", "not-supported")])
def test_a_gather_with_computed_indices_of_64_bits_stays_on_the_cpu(placed, march, rule):
    text = """(float[1,8,16,16] x) => (float[1,4,16,16] y) <float[8,8,1,1] w, float[4,4,1,1] u> {
      [one] a = Conv (x, w) [best] m = ReduceMax <keepdims = 0> (a, axes) [top] v, i = TopK (m, k)
      [pick] b = Gather <axis = 1> (a, i) [two] y = Conv (b, u) }""".replace(
        "u> {", "u, int64[3] axes = {0, 2, 3}, int64[1] k = {4}> {"
    )
    assert "pick" not in placed(text, march)
    assert placed.why["pick"][0] == rule


def test_an_operator_that_somebody_names_may_end_a_region(placed):
    body, _, _ = CASES["convolution and Relu at the tail"]
    assert placed(text_of(body), pins=("act=bpu-int8",)) == "one two act"


def test_a_manual_operator_is_on_the_bpu_where_somebody_asks(placed):
    body, _, _ = CASES["softmax at the end"]
    assert placed(text_of(body), pins=("soft=bpu-int8",)) == "one soft"


def test_a_violated_limit_names_number_bound_and_line(placed):
    text = "(float[1,8,16,16] x) => (float[1,8,8,8] y) <float[8,8,9,9] w> { [wide] y = Conv (x, w) }"
    placed(text)
    rule, why = placed.why["wide"]
    assert rule == "not-supported"
    assert "KH = 9; allowed: 1..7" in why
    assert "[bpu_int8.yaml:" in why


def test_open_extents_are_refused(placed):
    placed("(float[n,8,16,16] x) => (float[n,8,16,16] y) <float[8,8,1,1] w> { [one] y = Conv (x, w) }")
    assert "takes fixed shapes" in placed.why["one"][1]


@pytest.mark.parametrize("case", ["concat without an active operator behind it", "convolution and Relu at the tail"])
def test_a_unit_convolution_moves_what_lacks_a_neighbor_and_computes_the_same(placed, case):
    body, expected, why = CASES[case]
    (name,) = why
    edit = f"bpu-unit-conv={name}:after"
    assert placed(text_of(body), edits=(edit,)) == f"{expected} {name} {name}_unit"
    model = open_text(f'<ir_version: 10, opset_import: ["": 21]>\ng {text_of(body)}', "m")
    _give_weights(model)
    plain, edited = dovetail.compile(model.clone(), "host"), dovetail.compile(model, "host", edits=(edit,))
    import numpy as np

    image = np.random.default_rng(0).standard_normal((1, 8, 16, 16)).astype(np.float32)
    np.testing.assert_array_equal(plain.run({"x": image})["y"], edited.run({"x": image})["y"])


def _give_weights(model):
    import numpy as np
    import onnx_ir as ir

    rng = np.random.default_rng(1)
    for value in model.graph.initializers.values():
        if value.const_value is None:
            shape = [int(extent) for extent in value.shape]
            value.const_value = ir.tensor(rng.standard_normal(shape).astype(np.float32), name=value.name)


def test_the_table_counts_nodes_of_the_plan_and_not_what_they_are_computed_by():
    """A sum in integers is a dozen nodes, some of them in float64, which no format of the plan is."""
    images = {"x": np.random.default_rng(0).standard_normal((1, 8, 16, 16)).astype(np.float32)}
    body = "{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b) [sum] d = Add (a, a) [two] y = Conv (d, v) }"
    compiled = dovetail.compile(model_of(body), "bpu-int8:observer=minmax", data=images, verify=False)
    table = {(row["operator"], row["precision"]): row["nodes"] for row in compiled.placement_table()}
    assert table["Conv", "int8[symmetric]"] == table["Add", "int8[symmetric]"] == 1
    assert not [precision for _, precision in table if precision in ("", "float64")]
