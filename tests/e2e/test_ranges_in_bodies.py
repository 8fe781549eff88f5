"""Value ranges in the bodies of control flow: of all the times that they run."""

import json

import dovetail
import numpy as np
import pytest

SOLVERS = ["forward", "fixpoint", "min-cut"]
BODIES = {
    "a loop": (
        """g (float[4,8] x, bool go) => (float[4,8] y) <float[8,8] w, int64 count = {3}, float k = {40}> {
          [before] a = MatMul (x, w)
          [loop] l, all = Loop (count, go, a) <
            body = b (int64 i, bool c, float[4,8] s) => (bool d, float[4,8] t, float[4,8] e) {
              d = Identity (c)  [inner] p = MatMul (s, w)  e = Relu (p)  [grow] t = Mul (p, k) }>
          [small] n = Tanh (l)  [after] y = MatMul (n, w) }""",
        {"loop/body/t": "grow"},
    ),
    "a loop that never runs": (
        """g (float[4,8] x, bool go) => (float[4,8] y) <float[8,8] w, int64 count = {0}, float k = {40}> {
          [before] a = MatMul (x, w)
          [loop] l = Loop (count, go, a) <body = b (int64 i, bool c, float[4,8] s) => (bool d, float[4,8] t) {
              d = Identity (c)  [inner] p = MatMul (s, w)  [grow] t = Mul (p, k) }>
          [after] y = MatMul (l, w) }""",
        {},
    ),
    "a branch": (
        """g (float[4,8] x, bool go) => (float[4,8] y) <float[8,8] w, float k = {1e6}> {
          [before] a = MatMul (x, w)
          [if] l = If (go) <then_branch = t () => (float[4,8] p) { q = MatMul (a, w)  [grow] p = Mul (q, k) },
                            else_branch = e () => (float[4,8] r) { [other] r = MatMul (a, w) }>
          [small] n = Tanh (l)  [after] y = MatMul (n, w) }""",
        {"if/then_branch/p": "grow"},
    ),
    "a scan in a branch": (
        """g (float[4,8] x, bool go) => (float[4,8] y) <float[8,8] w, float k = {1e6}> {
          [before] a = MatMul (x, w)
          [if] l = If (go) <then_branch = t () => (float[4,8] p) {
                [scan] p = Scan <num_scan_inputs = 1, body = b (float[8] s) => (float[8] o) {
                    m = MatMul (s, w)  [grow] g = Mul (m, k)  o = Tanh (g) }> (a) },
              else_branch = e () => (float[4,8] r) { [other] r = MatMul (a, w) }>
          [after] y = MatMul (l, w) }""",
        {"if/then_branch/scan/body/g": "grow"},
    ),
}  # fmt: skip


@pytest.mark.generated
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("text", "large"), BODIES.values(), ids=BODIES)
def test_bodies_are_measured_each_time_that_they_run(weighted, text, large, solver):
    feeds = {"x": np.full((4, 8), 10, np.float32), "go": np.array(True)}
    result = dovetail.compile(weighted(text), ["gpu-fp16"], data=feeds, solver=solver)
    ranges = json.loads(result.files["ranges.json"])
    beyond = {name for name, known in ranges.items() if known["absmax"] > 65504}
    assert beyond >= large.keys()
    assert bool(beyond) == bool(large)
    chosen = {node.name: str(node.precision) for node in result.plan.nodes}
    assert {name: chosen[name] for name in ("before", *large.values())} == {
        "before": "float16", **dict.fromkeys(large.values(), "float32"),
    }  # fmt: skip
    assert result.verification.worst_snr_db > 50


def test_the_ranges_of_a_loop_are_those_of_all_its_turns(weighted):
    text = """g (float[N] x, bool go) => (float[N] y) <int64 count = {5}, float k = {-3}> {
      [loop] y = Loop (count, go, x) <body = b (int64 i, bool c, float[N] s) => (bool d, float[N] t) {
          d = Identity (c)  t = Mul (s, k) }> }"""
    feeds = {"x": np.array([0.5, 2, 0], np.float32), "go": np.array(True)}
    result = dovetail.compile(weighted(text), ["gpu-fp16"], data=feeds, verify=False)
    ranges = json.loads(result.files["ranges.json"])
    assert ranges["loop/body/t"] == {"min": -486, "max": 162, "absmax": 486, "smallest": 1.5}
    assert ranges["loop/body/s"] == {"min": -54, "max": 162, "absmax": 162, "smallest": 0.5}
    assert ranges["y"] == {"min": -486, "max": 0, "absmax": 486, "smallest": 121.5}


def test_no_value_leaves_bfloat16_so_loops_are_measured_on_one_batch(weighted):
    text = """g (float[2] x, bool go) => (float[2] y, float[2] z) <int64 count = {3}, float two = {2}> {
      [loop] y = Loop (count, go, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
          d = Identity (c)  t = Mul (s, two) }>
      [if] z = If (go) <then_branch = f () => (float[2] p) { p = Mul (x, two) },
                        else_branch = e () => (float[2] q) { q = Sub (x, two) }> }"""
    data = [{"x": np.array([1, number], np.float32), "go": np.array(number > 1)} for number in (10, 1)]
    result = dovetail.compile(weighted(text), "cpu-bf16", data=data, verify=False)
    ranges = json.loads(result.files["ranges.json"])
    assert ranges["loop/body/t"]["absmax"] == 80
    assert (ranges["if/then_branch/p"]["absmax"], ranges["if/else_branch/q"]["absmax"]) == (20, 1)
    assert (ranges["y"]["min"], ranges["y"]["max"]) == (1, 80)  # of both batches


def test_nothing_is_measured_where_every_node_is_high(weighted):
    text = "g (float[4,8] x) => (float[4,8] y) <float[8,8] w> { y = MatMul (x, w) }"
    data = {"x": np.ones((4, 8), np.float32)}
    assert "ranges.json" not in dovetail.compile(weighted(text), "cpu-bf16", data=data, high="*").files
    assert "ranges.json" in dovetail.compile(weighted(text), "cpu-bf16", data=data).files


def test_a_value_may_be_empty(weighted):
    text = """g (float[N,8] x) => (float[M,8] y) <float[8,8] w, float limit = {1e3}> {
      [first] a = MatMul (x, w)  m = ReduceMax <axes = [1], keepdims = 0> (a)  k = Greater (m, limit)
      b = Compress <axis = 0> (a, k)  [last] y = MatMul (b, w) }"""
    feeds = {"x": np.ones((4, 8), np.float32)}
    result = dovetail.compile(weighted(text), ["gpu-fp16"], data=feeds)
    ranges = json.loads(result.files["ranges.json"])
    assert "a" in ranges
    assert "b" not in ranges
