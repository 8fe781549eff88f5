"""A plan that a solver made replays to the same bytes, whatever types it gave to branches and loops."""

import dovetail
import onnx
import pytest

BODIES = {
    "If": """[if] y = If(c) <
        then_branch = t () => (float[2,4] p) { a = Tanh(m) p = Add(a, a) },
        else_branch = e () => (float[2,4] q) { b = Neg(m) q = Add(b, b) }>""",
    "a branch in a branch": """[if] y = If(c) <
        then_branch = t () => (float[2,4] p) { a = Tanh(m) p = If(c) <
            then_branch = tt () => (float[2,4] pp) { pp = MatMul(a, w) },
            else_branch = te () => (float[2,4] pq) { pq = Identity(a) }> },
        else_branch = e () => (float[2,4] q) { q = Exp(m) }>""",
    "Loop": """[loop] y, all = Loop(three, , m) <
        body = b (int64 i, bool g, float[2,4] s) => (bool d, float[2,4] u, float[2,4] o) {
            d = Identity(g) u = MatMul(s, w) o = Tanh(u) }>""",
    "two carried values": """[loop] y, z = Loop(three, , m, x) <
        body = b (int64 i, bool g, float[2,4] s, float[2,4] r) => (bool d, float[2,4] u, float[2,4] v) {
            d = Identity(g) u = MatMul(s, w) v = Exp(r) }>""",
    "Scan": """[scan] y, all = Scan<num_scan_inputs = 1,
        body = b (float[4] s, float[4] r) => (float[4] u, float[4] o) { u = Add(s, r) o = Tanh(u) }>(k, m)""",
}


def saved(compiled, folder):
    compiled.save(folder)
    model = onnx.load(folder / "model.onnx")
    del model.metadata_props[:]
    return model.SerializeToString(deterministic=True)


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("solver", ["forward", "fixpoint", "min-cut"])
@pytest.mark.parametrize("backend", ["gpu-fp16:policies=lean", "cpu-bf16"])
@pytest.mark.parametrize("body", BODIES)
def test_a_replay_is_the_same(body, backend, solver, tmp_path):
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> g (float[2,4] x) => (y) <
        float[4,4] w = {{1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}}, float zero = {{0}}, int64 three = {{3}},
        float[4] k = {{1,2,3,4}}> {{ [product] m = MatMul(x, w) r0 = ReduceMean<keepdims = 0>(m) c = Greater(r0, zero)
        {BODIES[body]} }}""")
    onnx.save(model, tmp_path / "m.onnx")
    first = dovetail.compile(tmp_path / "m.onnx", [backend], solver=solver)
    expected = saved(first, tmp_path / "first")
    again = dovetail.compile(tmp_path / "m.onnx", plan=tmp_path / "first" / "plan.yaml")
    assert saved(again, tmp_path / "again") == expected
