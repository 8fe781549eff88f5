"""Whatever the normal form changes, the model computes the same."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail.passes import Context, Pipeline
from dovetail.plugin import load_plugins
from dovetail_onnx.opening import open_model
from dovetail_onnx.saving import save_model
from onnxruntime import InferenceSession

PIPELINE = "normalize{opset=22},fold-constants,remove-identity,fold-batchnorm,dead-code"

MODELS = {
    "opset 9": """<ir_version: 4, opset_import: ["": 9]>
        g (float[2,3,4] x, bool c) => (float[2,4] y, float[3,2,4] z, float[2,3,4] d) {
          s = ReduceSum <axes = [1], keepdims = 0> (x)
          y = Clip <min = -0.5, max = 0.5> (s)
          u = Unsqueeze <axes = [0]> (x)
          q = Squeeze <axes = [0]> (u)
          z = Transpose <perm = [1, 0, 2]> (q)
          d = Dropout <ratio = 0.5> (x)
        }""",
    "opset 12 softmax": """<ir_version: 7, opset_import: ["": 12]>
        g (float[2,3,4] x, bool c) => (float[2,3,4] y) { y = Softmax <axis = 1> (x) }""",
    "opset 9 slice": """<ir_version: 4, opset_import: ["": 9]>
        g (float[2,3,4] x, bool c) => (float[2,2,4] y, float[2,1,4] a, float[2,2,4] b) {
          y = Slice <axes = [1], starts = [1], ends = [3]> (x)
          a, b = Split <axis = 1, split = [1, 2]> (x)
        }""",
    "shape arithmetic": """<ir_version: 8, opset_import: ["": 17]>
        g (float[2,3,4] x, bool c) => (float[2,12] y, float[N] z) {
          s = Shape (x)
          i = Constant <value_ints = [0]> ()
          n = Gather (s, i)
          m = Constant <value_ints = [-1]> ()
          t = Concat <axis = 0> (n, m)
          y = Reshape (x, t)
          one = Constant <value_float = 1.0> ()
          two = Add (one, one)
          flat = Reshape (x, m)
          z = Mul (flat, two)
        }""",
    "pooled constants": """<ir_version: 8, opset_import: ["": 17]>
        g (float[2,3,4] x, bool c) => (float[2,3,4] y) {
          k = Constant <value = float[1,3,2] {1.0, 5.0, 3.0, 2.0, 4.0, 6.0}> ()
          p = GlobalMaxPool (k)
          y = Mul (x, p)
        }""",
    "bodies": """<ir_version: 8, opset_import: ["": 13]>
        g (float[2,3,4] x, bool c) => (float[2,3,4] y, float[2,3,4] z) {
          a = Identity (x)
          k = Constant <value_float = 2.0> ()
          y = If (c) <
            then_branch = t () => (float[2,3,4] p) {
              k2 = Constant <value_float = 3.0> ()  i = Identity (a)  p = Mul (i, k2) },
            else_branch = e () => (float[2,3,4] q) { unread = Exp (a)  q = Mul (a, k) }
          >
          n = Constant <value = int64 {3}> ()
          z = Loop (n, , a) <
            body = b (int64 i, bool g, float[2,3,4] v) => (bool g1, float[2,3,4] w) {
              g1 = Identity (g)  v1 = Identity (v)  w = Add (v1, k) }
          >
        }""",
    "local functions": """<ir_version: 8, opset_import: ["": 17, "local": 1]>
        g (float[2,3,4] x, bool c) => (float[2,3,4] y) {
          a = local.scaled <by = 2.0> (x)  y = local.scaled <by = 0.5> (a) }
        <domain: "local", opset_import: ["": 17]> scaled <by> (v) => (w) {
          k = Constant <value_float: float = @by> ()  w = Mul (v, k) }""",
}  # fmt: skip


@pytest.mark.parametrize("text", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("condition", [True, False])
def test_the_result_is_the_same(tmp_path, text, condition):
    source, target = tmp_path / "m.onnx", tmp_path / "normal.onnx"
    source.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    plugins = load_plugins()
    model = open_model(source)
    Pipeline.parse(PIPELINE, plugins.registry).run(model, Context(plugins=plugins))
    save_model(model, target)
    onnx.checker.check_model(str(target), full_check=True)
    assert model.opset == 22
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    feeds = {"x": x, "c": np.asarray(condition)}
    before, after = (run(path, feeds) for path in (source, target))
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6)


def run(path, feeds):
    """By ONNX Runtime: onnx's reference knows some operators in their newest form only."""
    session = InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})


def test_constants_are_computed_as_their_opset_says(tmp_path):
    """Softmax worked on all axes from the given one on, before opset 13."""
    source = tmp_path / "m.onnx"
    proto = onnx.parser.parse_model(
        """<ir_version: 7, opset_import: ["": 12]> g (float[2,2,2] x) => (float[2,2,2] y)
        <float[1,2,2] k = {1, 2, 3, 4}> { s = Softmax <axis = 1> (k)  y = Mul (x, s) }"""
    )
    source.write_bytes(proto.SerializeToString())
    plugins = load_plugins()
    model = open_model(source)
    Pipeline.parse("normalize,fold-constants,dead-code", plugins.registry).run(model, Context(plugins=plugins))
    save_model(model, tmp_path / "folded.onnx")
    feeds = {"x": np.ones((2, 2, 2), np.float32)}
    np.testing.assert_allclose(run(tmp_path / "folded.onnx", feeds)[0], run(source, feeds)[0], rtol=1e-6)


DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


def test_names_of_a_file_survive_the_opset(tmp_path):
    """onnx's converter drops them; what is folded away keeps its name as an origin."""
    names = {node.name for node in onnx.load(DIGITS).graph.node}
    plugins = load_plugins()
    model = open_model(DIGITS)
    Pipeline.parse("normalize{opset=22}", plugins.registry).run(model, Context(plugins=plugins))
    assert {node.name for node in model.nodes()} == names
