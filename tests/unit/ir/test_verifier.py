"""The verifier: a table of models that are broken, each with what is said of it."""

import onnx.parser
import onnx_ir as ir
import pytest
from dovetail.errors import DovetailError
from dovetail.ir import Model, verify_model
from dovetail_onnx.dialect import OnnxDialect

HEAD = '<ir_version: 10, opset_import: ["": 22]>\n'


def model(body, head=HEAD):
    """A graph as a pass may leave it; a file like this is refused when it is opened."""
    return Model(ir.from_proto(onnx.parser.parse_model(head + body)), dialect=OnnxDialect())


BROKEN = {
    "two names": (
        "g (float[2] x) => (float[2] y) { [n] a = Relu (x)  [n] y = Neg (a) }",
        "two nodes are called 'n' (Relu, Neg)",
    ),
    "two types": (
        "g (float[2] x, float16[2] h) => (float[2] y) { [add] y = Add (x, h) }",
        "Add 'add': 'B' is tensor(float16) and 'A' is tensor(float); Add wants one type (T)",
    ),
    "a type that the operator does not take": (
        "g (string[2] x) => (string[2] y) { [relu] y = Relu (x) }",
        "Relu 'relu': 'X' is tensor(string), which Relu-14 does not take there",
    ),
    "a result of another type": (
        "g (float[2] x) => (int64[2] y) { [relu] y = Relu (x) }",
        "'Y' is tensor(int64) and 'X' is tensor(float)",
    ),
    "too few inputs": (
        "g (float[2] x) => (float[2] y) { [add] y = Add (x) }",
        "Add 'add' has 1 inputs; Add takes 2 to 2",
    ),
    "too many outputs": (
        "g (float[2] x) => (float[2] y) { [relu] y, z = Relu (x) }",
        "Relu 'relu' has 2 outputs; Relu gives 1 to 1",
    ),
    "an old opset": (
        "g (bfloat16[2] x, bfloat16[2,2,1] w) => (bfloat16[1,2,2] y) { [conv] y = Conv (x, w) }",
        "Conv 'conv': 'X' is tensor(bfloat16), which Conv-11 does not take there",
        '<ir_version: 10, opset_import: ["": 21]>\n',
    ),
    "an old IR version": (
        "g (float[2] x) => (float[2] y) { y = Relu (x) }",
        "opset 22 needs IR version 10 or later, the model says 8",
        '<ir_version: 8, opset_import: ["": 22]>\n',
    ),
    "a branch of another type": (
        """g (float[2] x, bool c) => (float[2] y) { [if] y = If (c) <
             then_branch = t () => (float16[2] p) { p = Cast <to = 10> (x) },
             else_branch = e () => (float[2] q) { q = Relu (x) }> }""",
        "If 'if': then_branch and output: 'p' is tensor(float16) and 'y' is tensor(float)",
    ),
    "a loop that changes what it carries": (
        """g (float[2] x, int64 n) => (float[2] y) { [loop] y = Loop (n, , x) <
             body = b (int64 i, bool k, float[2] v) => (bool k1, float16[2] w) {
               k1 = Identity (k) w = Cast <to = 10> (v) }> }""",
        "Loop 'loop': carried value: 'v' is tensor(float) and 'w' is tensor(float16)",
    ),
    "a value that is hidden by another": (
        """g (float[2] x, bool c) => (float[2] y) { a = Relu (x)  [if] y = If (c) <
             then_branch = t () => (float[2] a) { a = Neg (x) },
             else_branch = e () => (float[2] q) { q = Relu (a) }> }""",
        "value 'a' is defined twice",
    ),
}


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
def test_broken_models(case):
    text, says, *head = case
    with pytest.raises(DovetailError) as caught:
        verify_model(model(text, *head))
    assert says in str(caught.value)


def swap(graph):
    """The second node before the first."""
    first = graph[0]
    graph.remove(first)
    graph.append(first)


def lose_producer(graph):
    graph.remove(graph[0])


def lose_name(graph):
    graph[0].outputs[0].name = None


def store_other_type(graph):
    graph.initializers["k"].const_value = ir.tensor([1, 2])


EDITS = [
    (swap, "reads 'a' before it is defined"),
    (lose_producer, "reads 'a' before it is defined"),
    (lose_name, "Relu 'first': a value has no name"),
    (store_other_type, "initializer 'k' holds INT64, its value is FLOAT"),
]


@pytest.mark.parametrize(("edit", "says"), EDITS, ids=[edit.__name__ for edit, _ in EDITS])
def test_broken_edits(edit, says):
    nodes = "[first] a = Relu (x)  [second] y = Add (a, k)"
    broken = model("g (float[2] x) => (float[2] y) <float[2] k = {1, 2}> {" + nodes + "}")
    verify_model(broken)
    edit(broken.graph)
    with pytest.raises(DovetailError) as caught:
        verify_model(broken, changed="my-pass")
    assert says in str(caught.value)
    assert "the model is not correct after my-pass" in str(caught.value)


def test_at_most_five_problems_are_listed():
    text = "  ".join(f"[n{i}] y{i} = Add (x, h)" for i in range(8))
    with pytest.raises(DovetailError, match="and 3 more") as caught:
        verify_model(model("g (float[2] x, float16[2] h) => (float[2] y0) {" + text + "}"))
    assert len(str(caught.value).splitlines()) == 7


CORRECT = [
    "g (float[2] x) => (float[2] y, float[2] y2) { [a] y = Relu (x)  [b] y2 = Relu (x) }",
    "g (float[2] x) => (float[2] x) { }",
    "g (float[2] x, bool c) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] p) { p = Neg (x) },"
    " else_branch = e () => (float[2] q) { q = Relu (x) }> }",
    "g (float[2] x) => (float[2] y) { y = com.acme.Anything (x) }",
    "g (float[2] x) => (float[2] y, float16[2] z) { y = Relu (x)  z = Cast <to = 10> (x) }",
]


@pytest.mark.parametrize("text", CORRECT)
def test_correct_models(text):
    correct = model(text, '<ir_version: 10, opset_import: ["": 22, "com.acme": 1]>\n')
    assert found_in(correct) == ""


def found_in(model):
    """What the verifier says of a model; nothing if it is correct."""
    try:
        verify_model(model)
    except DovetailError as error:
        return str(error)
    return ""
