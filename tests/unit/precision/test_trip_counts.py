"""What runs in a loop costs as often as it goes around."""

import pytest
from dovetail.ir import FlatGraph, Format
from dovetail_onnx.opening import open_text
from dovetail_precision.choices import uniform
from dovetail_precision.costs import MovedBytes, cost_of
from dovetail_precision.def_use import trip_counts
from dovetail_precision.solvers.min_cut import solve_min_cut

LOOP = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,8] x, int64 given, bool go) => (float[4,8] y) <float[8,8] w, {counts}> {{
  a = MatMul (x, w)
  l = Loop ({count}, go, a) <body = b (int64 i, bool c, float[4,8] s) => (bool d, float[4,8] t) {{
        d = Identity (c)  e = Exp (s)  t = Log (e) }}>
  y = MatMul (l, w)
}}"""
SCAN = """<ir_version: 10, opset_import: ["": 22]>
g (float[{extent},4] x) => (float[{extent},4] y) {{
  y = Scan <num_scan_inputs = 1, body = b (float[4] s) => (float[4] t) {{ t = Exp (s) }}> (x)
}}"""
NESTED = """<ir_version: 10, opset_import: ["": 22]>
g (float[3,5,4] x, bool c) => (float[3,5,4] y) {
  y = Scan <num_scan_inputs = 1, body = outer (float[5,4] s) => (float[5,4] t) {
        t = If (c) <then_branch = yes () => (float[5,4] p) {
              p = Scan <num_scan_inputs = 1, body = inner (float[4] u) => (float[4] v) { v = Exp (u) }> (s) },
            else_branch = no () => (float[5,4] q) { q = Neg (s) }> }> (x)
}"""


def loop(count, counts="int64 three = {3}, int64 huge = {9223372036854775807}"):
    return LOOP.format(count=count, counts=counts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (loop("three"), {"b": 3}),
        (loop("given"), {"b": 64}),
        (loop(""), {"b": 64}),
        (loop("huge"), {"b": 64}),
        (SCAN.format(extent=7), {"b": 7}),
        (SCAN.format(extent="N"), {"b": 64}),
        (NESTED, {"outer": 3, "yes": 3, "no": 3, "inner": 15}),
    ],
    ids=["a constant", "an input", "until it ends", "the largest number", "a scan", "a scan of any length", "nested"],
)
def test_how_often_bodies_run(text, expected):
    model = open_text(text, "test")
    flat = FlatGraph(model)
    counts = trip_counts(flat)
    assert {graph.name: counts[id(graph)] for graph in flat.graphs if id(graph) in counts} == expected


def test_conversions_stand_around_a_loop_rather_than_in_it(placed):
    """Two joins either way, and a low state would move fewer bytes, but the loop would convert 3 times."""
    problem = placed(loop("three").partition("\n")[2])
    solve_min_cut(problem)
    state = next(variable for variable in problem.variables if variable.node.op_type == "Loop")
    assert state.format is Format.of("float32")
    unaware = MovedBytes(problem.costs.table)
    as_it_is = cost_of(problem), cost_of(problem, unaware)
    state.chosen = uniform(Format.of("float16"))
    low = cost_of(problem), cost_of(problem, unaware)
    assert low[0] > as_it_is[0]
    assert low[1] < as_it_is[1]
