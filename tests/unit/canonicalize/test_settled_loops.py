"""A Loop that never runs, or runs once, is replaced by what it comes to, which is what ONNX Runtime computes."""

import itertools

import dovetail
import numpy as np
import onnx.parser
import onnxruntime
import pytest

HEAD = '<ir_version: 8, opset_import: ["": {opset}]>'
CARRIED = """g (float[2,3] x) => (float[2,3] y, float[t,2,3] scan)
  <int64 limit = {{{limit}}}, bool condition = {{{condition}}}, bool always = {{1}}> {{
    r = Neg (x)
    y0, scan = Loop (limit, condition, r) <body = trip (int64 i, bool c, float[2,3] s) =>
      (bool c1, float[2,3] s1, float[2,3] k) {{
        f = Cast <to = 1> (i)  g0 = Add (s, f)
        s1 = If (always) <then_branch = p () => (float[2,3] a) {{ a = Mul (g0, r) }},
                          else_branch = q () => (float[2,3] b) {{ b = Sub (g0, x) }}>
        k = Mul (s1, x)  c1 = Identity (c) }}>
    y = Neg (y0) }}"""
OUTPUTS = """g (float[2,3] x) => (float[2,3] y, int64 n, float[t,2,3] scan)
  <int64 limit = {{{limit}}}, int64 seven = {{7}}> {{
    y, n, scan = Loop (limit, "", x, seven) <body = trip (int64 i, bool c, float[2,3] s, int64 m) =>
      (bool c1, float[2,3] s1, int64 m1, float[2,3] k) {{
        c1 = Identity (c)  s1 = Relu (s)  m1 = Add (m, i)  k = Neg (s) }}> }}"""
PASSED = """g (float[2,3] x) => (float[2,3] y, bool d, int64[t] numbers) <int64 limit = {{{limit}}}, bool no = {{0}}> {{
    y, d, numbers = Loop (limit, "", x, no) <body = trip (int64 i, bool c, float[2,3] s, bool e) =>
      (bool c1, float[2,3] s1, bool e1, int64 j) {{
        c1 = Identity (c)  s1 = Identity (s)  e1 = Identity (c)  j = Identity (i) }}> }}"""
OPEN = """g (float[a,3] x) => (float[t,b,3] scan) <int64 limit = {{{limit}}}> {{
    y, scan = Loop (limit, "", x) <body = trip (int64 i, bool c, float[a,3] s) =>
      (bool c1, float[a,3] s1, float[a,3] k) {{ c1 = Identity (c)  s1 = Relu (s)  k = Neg (s) }}> }}"""
INNER = """g (float[2,3] x, bool flag) => (float[2,3] y) <int64 limit = {{{limit}}}> {{
    y = If (flag) <then_branch = p () => (float[2,3] a) {{
        a = Loop (limit, "", x) <body = trip (int64 i, bool c, float[2,3] s) => (bool c1, float[2,3] s1) {{
          c1 = Identity (c)  s1 = Mul (s, x) }}> }},
      else_branch = q () => (float[2,3] b) {{ b = Neg (x) }}> }}"""
CASES = {"carried": CARRIED, "outputs": OUTPUTS, "passed on": PASSED, "open": OPEN, "inner": INNER}


@pytest.mark.generated
@pytest.mark.parametrize("opset", [11, 17, 21])
@pytest.mark.parametrize(
    ("case", "limit", "condition"), [("carried", 5, 0), *itertools.product(CASES, [0, -3, 1], [1])]
)
def test_it_computes_the_same_without_a_loop(case, limit, condition, opset):
    text = f"{HEAD}{CASES[case]}".format(opset=opset, limit=limit, condition=condition)
    model = onnx.parser.parse_model(text)
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32), "flag": np.array(True)}
    feeds = {value.name: feeds[value.name] for value in model.graph.input}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    right = session.run(None, feeds)
    compiled = dovetail.compile(model, "host")
    assert "Loop" not in {node.op_type for node in compiled.model.nodes()}
    found = compiled.run(feeds)
    for value, wanted in zip(model.graph.output, right, strict=True):
        assert found[value.name].dtype == wanted.dtype
        np.testing.assert_allclose(found[value.name], wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "changed",
    [
        ("int64 limit = {1}, bool", "int64 limit = {2}, bool"),  # more trips
        ("Loop (limit, condition, r)", "Loop (many, condition, r)"),  # a number that is given at run time
        ("Loop (limit, condition, r)", "Loop (limit, maybe, r)"),
    ],
)
def test_a_loop_whose_trips_are_not_known_stays(changed):
    text = f"{HEAD}{CARRIED}".format(opset=17, limit=1, condition=1)
    text = text.replace("(float[2,3] x)", "(float[2,3] x, int64 many, bool maybe)").replace(*changed)
    compiled = dovetail.compile(onnx.parser.parse_model(text), "host")
    assert "Loop" in {node.op_type for node in compiled.model.nodes()}
