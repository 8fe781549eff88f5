"""What flows where: data, indices, shapes, in graphs where that is not obvious."""

import pytest
from dovetail.passes import Context, Pipeline
from dovetail.planning import kind_of
from dovetail.plugin import load_plugins
from dovetail_onnx.opening import open_text

HEAD = '<ir_version: 10, opset_import: ["": 22]>\n'

CASES = {
    "a shape that is given out": (
        "g (float[N,4] x) => (int64[2] s) { s = Shape (x) }",
        {"s": "shape"},
    ),
    "arithmetic on extents": (
        """g (float[N,4] x, float[M,4] o) => (float[N,4] y) {
             two = Constant <value_ints = [2]> ()  a = Shape (x)  b = Shape (o)  m = Max (a, b)
             half = Div (m, two)  y = Expand (x, half) }""",
        {"a": "shape", "m": "shape", "half": "shape", "y": "data"},
    ),
    "an extent that becomes a float is data": (
        "g (float[N,4] x) => (float[N,4] y) { s = Size (x)  f = Cast <to = 1> (s)  y = Div (x, f) }",
        {"s": "shape", "f": "data", "y": "data"},
    ),
    "integers that are computed on are data": (
        "g (int64[3] a, int64[3] b) => (int64[3] y) { y = Add (a, b) }",
        {"y": "data"},
    ),
    "an integer input that indexes": (
        "g (float[8,4] table, int64[3] ids) => (float[3,4] y) { i = Identity (ids)  y = Gather (table, i) }",
        {"i": "index", "y": "data"},
    ),
    "integers that index and are given out are data": (
        "g (float[8,4] t, int64[3] ids) => (float[3,4] y, int64[3] z) { z = Neg (ids)  y = Gather (t, z) }",
        {"z": "data", "y": "data"},
    ),
    "the places of the largest": (
        "g (float[4,8] x, int64[1] k) => (float[4,2] v, int64[4,2] i) { v, i = TopK (x, k) }",
        {"v": "data"},
    ),
    "the number of a round": (
        """g (float[4] x, int64 n) => (float[4] y, float[N] z) { y, z = Loop (n, , x) <
             body = b (int64 i, bool g, float[4] v) => (bool g1, float[4] w, float r) {
               g1 = Identity (g)  j = Add (i, i)  r = Gather (v, j)  w = Relu (v) }> }""",
        {"j": "shape", "r": "data", "w": "data"},
    ),
    "a shape that only a body reads": (
        """g (float[N,4] x, bool c) => (float[M] y) { s = Constant <value_ints = [-1]> ()  y = If (c) <
             then_branch = t () => (float[M] p) { p = Reshape (x, s) },
             else_branch = e () => (float[M] q) { r = Neg (x)  q = Reshape (r, s) }> }""",
        {"s": "shape", "p": "data"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_kinds(text, expected):
    plugins = load_plugins()
    model = open_text(HEAD + text, "test")
    Pipeline.parse("normalize,edge-kinds", plugins.registry).run(model, Context(plugins=plugins))
    kinds = {node.outputs[0].name: kind_of(node) for node in model.nodes()}
    assert {name: kinds[name] for name in expected} == expected
