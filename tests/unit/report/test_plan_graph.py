"""Reports draw the plan: its nodes, what stands for them in the file, and the conversions between them."""

import dovetail
import onnx.parser
import pytest
from dovetail_report.collect.document import document

DIGITS, DATA = "examples/digits/digits.onnx", "examples/digits/test.npz"


@pytest.fixture(scope="module")
def digits():
    """All convolutions in emulated integers, the softmax on the host."""
    compiled = dovetail.compile(DIGITS, "bpu-int8:observer=minmax", data=DATA, fix_shapes={"image": (1, 1, 8, 8)})
    return document(compiled)


def drawn(found):
    """The edges of a document as names, conversions as `<value>`."""
    names = [*found["nodes"]["name"], *(name for name, _ in found["inputs"]), *(name for name, _ in found["outputs"])]
    names += [f"<{value}>" for value, *_ in found["conversions"]]
    return [(names[a], names[b]) for a, b in zip(found["edges"][::3], found["edges"][1::3])]


def test_nodes_are_those_of_the_plan_and_edges_lead_across_what_was_inserted(digits):
    chain = ["image", "<image>", "conv_1", "relu_1", "conv_2", "relu_2", "pool_1", "conv_3", "relu_3", "pool_2",
             "flatten_1", "dense_1", "relu_4", "dense_2", "<dense_2_out>", "softmax_1", "probabilities"]  # fmt: skip
    assert sorted(drawn(digits)) == sorted(zip(chain, chain[1:]))


def test_integer_arithmetic_is_inside_of_its_node(digits):
    nodes, operators = digits["nodes"], digits["nodes"]["operators"]
    pattern = digits["expansions"][nodes["expansion"][nodes["name"].index("conv_1")]]
    assert [operators[operator] for operator, _ in pattern] == [
        "Cast", "Add", "ConvInteger", "Add", "Cast", "Mul", "Round", "Clip",
    ]  # fmt: skip
    assert [list(reads) for _, reads in pattern] == [[], *([i] for i in range(7))]
    assert digits["counts"] == {"nodes": 13, "conversions": 2, "expanded": 34}


def test_folded_nodes_and_constants_stand_at_their_node(digits):
    nodes = digits["nodes"]
    conv = nodes["name"].index("conv_1")
    assert nodes["folded"][conv] == [["norm_1", "BatchNormalization"]]
    assert any("uint8[16,1,3,3]" in nodes["constant_texts"][text] for text in nodes["constants"][conv])


def test_a_value_that_two_formats_read_is_converted_once():
    source = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,1,1] w = {WEIGHTS}> {
      [conv] a = Conv (x, w)
      [soft] b = Softmax <axis = 1> (a)
      [relu] c = Relu (a)
      [sum] y = Add (b, c)
    }""".replace("WEIGHTS", ",".join(["0.5"] * 16))
    found = document(dovetail.compile(onnx.parser.parse_model(source), "cpu-bf16", high=["soft", "sum"]))
    edges = drawn(found)
    assert ("conv", "<a>") in edges and ("<a>", "soft") in edges
    assert [end for start, end in edges if start == "conv"].count("<a>") == 1


def test_no_reason_shows_a_template_and_every_obstacle_names_its_remedy_where_one_exists(digits):
    shown = [row.get("example", row["why"]) for row in digits["reasons"]]
    assert not any("\ufffc" in text or "'{}'" in text for text in shown)
    quantized = [row for row in digits["reasons"] if "is quantized to int8[symmetric], scale" in shown_text(row)]
    assert len(quantized) <= 1, "one row for all scales"


def shown_text(row):
    return row.get("example", row["why"])
