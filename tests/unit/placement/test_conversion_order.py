"""Conversions join the region that reads them only if regions can still run in the order of their numbers."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.planning import get_placement

MODEL = """<ir_version: 9, opset_import: ["" : 19]>
g (float[N,4] x, bool flag) => (float[N,4] p)
<float s = {{0.05}}, uint8 z = {{120}}, float[1] ws = {{0.01}}, int64 trip = {{2}}, bool go = {{1}},
 int8[4,4] wq = {{9,1,2,3,-4,8,6,7,5,-1,2,0,1,3,7,-6}}, int8[1] wz = {{0}}> {{
   xq = QuantizeLinear (x, s, z)
   xd = DequantizeLinear (xq, s, z)
   w = DequantizeLinear <axis: int = 1> (wq, ws, wz)
   [first] m = MatMul (xd, w)
   mq = QuantizeLinear (m, s, z)
   shared = DequantizeLinear (mq, s, z)
   {reader}
   [last] p = Mul (shared, y) }}"""

READERS = {
    "If": "[flow] y = If (flag) <then_branch = a () => (float[N,4] t) { t = Tanh (shared) },"
    " else_branch = b () => (float[N,4] e) { e = Neg (shared) }>",
    "nested If": "[flow] y = If (flag) <then_branch = a () => (float[N,4] t) { t = If (flag) <then_branch = c () =>"
    " (float[N,4] u) { u = Tanh (shared) }, else_branch = d () => (float[N,4] v) { v = Neg (shared) }> },"
    " else_branch = b () => (float[N,4] e) { e = Neg (x) }>",
    "Loop": "[flow] y = Loop (trip, go, x) <body = a (int64 i, bool c, float[N,4] l) => (bool c1, float[N,4] l1)"
    " { c1 = Identity (c)  l1 = Add (l, shared) }>",
    "Scan": "[flow] y, k = Scan <num_scan_inputs: int = 1, body = a (float[N,4] l, float[4] e) =>"
    " (float[N,4] l1, float[4] e1) { l1 = Add (l, shared)  e1 = Identity (e) }> (x, x)",
}


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8"])
@pytest.mark.parametrize("reader", READERS)
def test_a_value_that_control_flow_captures_is_computed_before(reader, backend):
    x, flag = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4), np.array(True)
    data = {"x": x, "flag": flag}
    model = onnx.parser.parse_model(MODEL.format(reader=READERS[reader]))
    compiled = dovetail.compile(model, backend, data=data, pins=["flow=host"])
    regions = {node.name: get_placement(node).region for node in compiled.model.graph}
    assert regions["first"] <= regions["flow"] <= regions["last"]
    right = dovetail.compile(model, "host").run(data)["p"]
    np.testing.assert_allclose(compiled.run(data)["p"], right, atol=0.02)
