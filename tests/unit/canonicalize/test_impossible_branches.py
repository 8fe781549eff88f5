"""A branch that fixed extents make impossible is an error when it is taken, and no obstacle when it is not."""

import dovetail
import numpy as np
import onnx.parser
import pytest
from dovetail.errors import DovetailError

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,n] x, bool six) => (float[1,m] y) {
  [choose] r = If (six) <
    then_branch = of_six () => (float[1,p] a) { a = MatMul (x, w) },
    else_branch = of_eight () => (float[1,q] b) { [product] b0 = MatMul (x, v)  b = Relu (b0) }>
  [last] y = Tanh (r) }"""


def model():
    proto = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((6, 3)), "v": rng.standard_normal((8, 4))}
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()
    )
    return proto


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize(("length", "taken"), [(6, True), (8, False)])
@pytest.mark.parametrize("backend", ["host", "cpu-bf16", "cpu-int8"])
def test_the_other_branch_runs_on_a_fast_engine(backend, length, taken):
    data = {"x": np.random.default_rng(1).standard_normal((1, length)).astype(np.float32), "six": np.array(taken)}
    right = dovetail.compile(model(), "host").run(data)
    fixed = dovetail.compile(model(), backend, fix_shapes={"x": [1, length]}, verify=False, high=["*"])
    np.testing.assert_allclose(fixed.run(data)["y"], right["y"], rtol=1e-5)
    assert not fixed.warnings()
    assert "product" not in {node.name for node in fixed.plan.nodes} or length == 8
    with pytest.raises(DovetailError, match="sequence"):
        fixed.run({**data, "six": np.array(not taken)})


def test_both_stay_where_both_can_run_or_none_is_known_to():
    free = dovetail.compile(model(), "host")
    assert {node.op_type for node in free.model.nodes()} == {"If", "MatMul", "Relu", "Tanh"}
    neither = dovetail.compile(model(), "host", fix_shapes={"x": [1, 7]}, verify=False)
    assert not any(remark.rule == "impossible-branch" for remark in neither.remarks)
