"""An If with a constant condition becomes the branch that it takes, at every depth; the other one blocks nothing."""

import dovetail
import numpy as np
import onnx.parser
import pytest

HEAD = '<ir_version: 8, opset_import: ["": 16]>'

# Squeeze of an axis if its extent is 1, as TorchScript writes `squeeze(x, 1)`. With four channels, it can never run.
SQUEEZED = """
  {p}s = Shape (x)
  {p}d = Gather ({p}s, one)
  {p}c = Equal ({p}d, one)
  {p}i = If ({p}c) <
    then_branch = a{p} () => (float[K] {p}t) {{ [{p}dead] {p}t = Squeeze (x, ax) }},
    else_branch = b{p} () => (float[M] {p}e)
      <float {p}k = {{3}}> {{ {p}m = Mul (x, {p}k)  {p}e = Sub ({p}m, half) }}>
  {p}y = Sigmoid ({p}i)"""

CONSTANTS = "<int64 one = {1}, int64[1] ax = {1}, float half = {0.5}, int64 trip = {2}, bool go = {1}>"


def squeezed(prefix):
    return SQUEEZED.format(p=prefix)


MODELS = {
    "main graph": f"""g (float[N,C,L] x, bool flag) => (float[N,C,L] y) {CONSTANTS} {{
        {squeezed('a')} y = Identity (ay) }}""",
    "output of the model": f"g (float[N,C,L] x, bool flag) => (float[N,C,L] ai) {CONSTANTS} {{ {squeezed('a')} }}",
    "If": f"""g (float[N,C,L] x, bool flag) => (float[N,C,L] y) {CONSTANTS} {{
        r = If (flag) <then_branch = p () => (float[P] ay) {{ {squeezed('a')} }},
                       else_branch = q () => (float[Q] by) {{ {squeezed('b')} }}>
        y = Neg (r) }}""",
    "If in an If": f"""g (float[N,C,L] x, bool flag) => (float[N,C,L] y) {CONSTANTS} {{
        no = Not (flag)
        y = If (flag) <then_branch = p () => (float[P] w) {{
            w = If (no) <then_branch = u () => (float[U] by) {{ {squeezed('b')} }},
                         else_branch = v () => (float[V] dy) {{ {squeezed('d')} }}> }},
                       else_branch = q () => (float[Q] cy) {{ {squeezed('c')} }}> }}""",
    "Loop": f"""g (float[N,C,L] x, bool flag) => (float[N,C,L] y) {CONSTANTS} {{
        y = Loop (trip, go, x) <body = p (int64 i, bool c, float[N,C,L] v) => (bool c1, float[N,C,L] v1) {{
            {squeezed('a')} c1 = Identity (c)  v1 = Add (v, ay) }}> }}""",
    "Scan": f"""g (float[N,C,L] x, bool flag) => (float[N,C,L] y, float[N,C,L] k) {CONSTANTS} {{
        y, k = Scan <num_scan_inputs: int = 1, body = p (float[N,C,L] v, float[C,L] e) =>
            (float[N,C,L] v1, float[C,L] e1) {{ {squeezed('a')} v1 = Add (v, ay)  e1 = Identity (e) }}> (x, x) }}""",
}  # fmt: skip


@pytest.mark.parametrize("place", MODELS)
def test_a_branch_that_can_never_run_is_dropped(place):
    model = onnx.parser.parse_model(HEAD + MODELS[place])
    data = {"x": np.random.default_rng(0).standard_normal((2, 4, 3)).astype(np.float32), "flag": np.array(True)}
    right = dovetail.compile(model, "host").run(data)
    compiled = dovetail.compile(model, "cpu-bf16", data=data, fix_shapes={"x": [2, 4, 3]})
    operators = [node.op_type for node in compiled.model.nodes()]
    assert "Squeeze" not in operators
    assert operators.count("If") == {"If": 1, "If in an If": 2}.get(place, 0)
    assert all(value.shape is not None for node in compiled.model.nodes() for value in node.outputs)
    assert any("always taken" in remark.why for remark in compiled.remarks)
    assert "reference" not in compiled.summary() + " ".join(map(str, compiled.engines.values()))
    for name, value in compiled.run(data).items():
        np.testing.assert_allclose(value, right[name], rtol=2e-2, atol=2e-2)


def test_a_default_of_an_input_decides_nothing():
    model = onnx.parser.parse_model(
        HEAD
        + """g (float[2] x, bool flag = {1}) => (float[2] y) {
        y = If (flag) <then_branch = p () => (float[2] t) { t = Neg (x) },
        else_branch = q () => (float[2] e) { e = Abs (x) }>
        }"""
    )
    compiled = dovetail.compile(model, "host")
    x = np.array([-1, 2], np.float32)
    np.testing.assert_array_equal(compiled.run({"x": x, "flag": np.array(False)})["y"], [1, 2])
