"""Loops on OpenVINO, called again and again: those whose trips are known run there, all others on the host.

OpenVINO cuts trip counts to 32 bits, takes -1 for "no limit", and gives the scan outputs of an earlier call where a
loop makes no trip.
"""

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest

LOOP = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,4] x, int64 n, bool go, float[Q,3] q) => ({results}) <
  float[4,4] w = {{1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}}, float two = {{2}}, int64 zero = {{0}}, int64 one = {{1}},
  int64 four = {{4}}, int64 huge = {{9223372036854775807}}, int64 wide = {{4294967297}}, int64 minus = {{-1}},
  int64 many = {{100000000}}, bool yes = {{1}}, bool no = {{0}}> {{
  m = MatMul(x, w) extents = Shape(q) rows = Gather(extents, zero) least = Max(rows, one)
  late = Less(zero, n)
  [loop] {outputs} = Loop({trips}, m) <
    body = b (int64 i, bool c, float[2,4] s) => (bool d, float[2,4] t{scans}) {{
      t = Add(s, two) {collect} d = {goes} }}> }}"""
ALWAYS, WITHIN = "Identity(c)", "Less(i, rows)"
NEVER = ""  # the place of a loop that never runs, which is not there any more
SCANS = [  # trips and initial condition, what the body's condition is, and where a loop with scan outputs runs
    ("four, yes", ALWAYS, "cpu-bf16"),
    ("four, yes", WITHIN, "cpu-bf16"),
    ("four, ", WITHIN, "cpu-bf16"),
    ("huge, yes", WITHIN, "cpu-bf16"),
    (", yes", WITHIN, "cpu-bf16"),
    ("least, ", ALWAYS, "cpu-bf16"),
    ("rows, ", ALWAYS, "host"),
    ("n, ", ALWAYS, "host"),
    ("four, go", ALWAYS, "host"),
    ("four, late", ALWAYS, "host"),
    ("four, no", ALWAYS, NEVER),
    ("zero, ", ALWAYS, NEVER),
    ("minus, ", WITHIN, NEVER),
    ("wide, ", WITHIN, "host"),
    ("many, ", WITHIN, "host"),
]
CARRIED = [  # the same of a loop without scan outputs
    ("rows, ", ALWAYS, "cpu-bf16"),
    ("four, go", ALWAYS, "cpu-bf16"),
    ("huge, late", WITHIN, "cpu-bf16"),
    ("wide, ", WITHIN, "cpu-bf16"),
    ("n, ", ALWAYS, "cpu-bf16"),
    ("n, yes", WITHIN, "cpu-bf16"),
    ("zero, ", ALWAYS, NEVER),
    ("minus, ", WITHIN, NEVER),
]
CALLS = (2, 0, 3, -1, 1, -3, 0, 2)


def loop(trips, goes, scans):
    collect, more = ("o = Mul(t, two)", ", float[2,4] o") if scans else ("", "")
    outputs, results = ("last, all", "last, all") if scans else ("last", "last")
    text = LOOP.format(trips=trips, goes=goes, collect=collect, scans=more, outputs=outputs, results=results)
    return onnx.parser.parse_model(text)


def calls(model):
    """Inputs of one call after the other, with other numbers and trips each time."""
    for number, trips in enumerate(CALLS):
        feeds = {"x": np.full((2, 4), number, np.float32), "n": np.array(trips), "go": np.array(trips > 0)}
        feeds["q"] = np.zeros((max(trips, 0), 3), np.float32)
        yield {value.name: feeds[value.name] for value in model.graph.input}


@pytest.mark.generated
@pytest.mark.parametrize(
    ("trips", "goes", "place", "scans"),
    [*((*case, True) for case in SCANS), *((*case, False) for case in CARRIED)],
)
def test_no_call_sees_the_rows_of_another(trips, goes, place, scans):
    model = loop(trips, goes, scans)
    compiled = dovetail.compile(model, ["cpu-bf16"], verify=False)
    assert {node.backend for node in compiled.plan.nodes if node.name == "loop"} == {place} - {NEVER}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for feeds in calls(model):
        expected = dict(zip([value.name for value in model.graph.output], session.run(None, feeds)))
        got = compiled.run(feeds)
        for name, array in expected.items():
            assert got[name].shape == array.shape, (name, feeds)
            np.testing.assert_allclose(got[name], array, rtol=1e-2)


@pytest.mark.parametrize(
    ("trips", "goes", "scans", "why"),
    [
        ("n, ", ALWAYS, True, "trips = any; allowed: some"),
        ("rows, ", ALWAYS, True, "trips = any; allowed: some"),
        ("many, ", WITHIN, True, "reserved_rows = 100000000; allowed: ..1048576"),
    ],
)
def test_a_remark_says_why_a_loop_runs_elsewhere(trips, goes, scans, why):
    compiled = dovetail.compile(loop(trips, goes, scans), ["cpu-bf16"], verify=False)
    assert any(why in remark.why for remark in compiled.plan.remarks if remark.node == "loop")


READ = {  # bodies of two carried values, and where a loop that may make no trip runs
    "t = Add(s, one_) u = Mul(r, half)": "cpu-bf16",
    "t = Add(r, one_) u = Mul(s, half)": "cpu-bf16",
    "t = Mul(s, r) u = Exp(e)": "cpu-bf16",
    "t = Tanh(e) u = Mul(r, half)": "host",
    "t = Add(s, one_) u = Mul(s, half)": "host",
    "t = Tanh(e) u = Exp(e)": "host",
    # an inner loop returns what it begins with where it may make no trip, and where its trips read it
    "t = Loop(two, , s) <inner> u = Mul(r, half)": "host",
    "t = Loop(two, , s) <inner reading> u = Mul(r, half)": "cpu-bf16",
    "k = Shape(s) t = Expand(one_, k) u = Mul(r, half)": "host",
}
INNER = """<body = b2 (int64 j, bool k, float[N,4] p) => (bool l, float[N,4] q) { l = Identity(k) q = Sub(e, half) }>"""


@pytest.mark.parametrize("body", READ)
def test_carried_values_that_the_body_does_not_read_need_a_trip(body):
    written = body.replace("<inner>", INNER).replace("<inner reading>", INNER.replace("Sub(e", "Sub(p"))
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> g (float[N,4] x, int64 n) => (y, z) <
        float half = {{0.5}}, float one_ = {{1}}, int64 two = {{2}}> {{ e = Exp(x)
        [loop] y, z = Loop(n, , x, e) <body = b (int64 i, bool c, float[N,4] s, float[N,4] r) =>
            (bool d, float[N,4] t, float[N,4] u) {{ d = Identity(c) {written} }}> }}""")
    compiled = dovetail.compile(model, ["cpu-bf16"], verify=False)
    assert {node.backend for node in compiled.plan.nodes if node.name == "loop"} == {READ[body]}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for number, (trips, rows) in enumerate([(2, 2), (0, 3), (3, 1), (0, 4), (1, 2), (0, 2)]):
        feeds = {"x": np.full((rows, 4), 0.1 * number, np.float32), "n": np.array(trips)}
        for got, expected in zip(compiled.run(feeds).values(), session.run(None, feeds)):
            np.testing.assert_allclose(got, expected, rtol=2e-2)


def test_counts_beyond_32_bits_are_large():
    compiled = dovetail.compile(loop("n, yes", WITHIN, False), ["cpu-bf16"], verify=False)
    feeds = {"x": np.zeros((2, 4), np.float32), "go": np.array(True), "q": np.zeros((4, 3), np.float32)}
    for count in (2**32, 2**31, 2**63 - 1, 2):
        assert compiled.run(feeds | {"n": np.array(count)})["last"].max() == min(2.0 * count, 10.0)
