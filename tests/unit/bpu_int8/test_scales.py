"""The scales that nodes of the BPU share, and those that they do not."""

import dovetail
import numpy as np
import onnx_ir as ir
import pytest
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["": 11]>
g (float[1,4,16,16] x) => (float[1,4,{left},{left}] y) <float[4,4,1,1] w, float[4,4,1,1] v> {{
  [one] a = Conv (x, w) [pool] b = {pool} (a) [two] y = Conv (b, v) }}"""

POOLS = {
    "GlobalAveragePool": 1,
    "AveragePool <kernel_shape = [4, 4], strides = [4, 4]>": 4,
}


@pytest.mark.parametrize("pool", POOLS)
def test_what_an_average_reads_keeps_a_scale_of_its_own(pool):
    """The vendor's logs give a pool a threshold of its own (314 where the layer behind it has 21.6).

    With that of the average, all that is much larger than an average would saturate.
    """
    model, rng = open_text(TEXT.format(pool=pool, left=POOLS[pool]), "m"), np.random.default_rng(0)
    for name in "wv":
        array = rng.standard_normal((4, 4, 1, 1)).astype(np.float32)
        model.graph.initializers[name].const_value = ir.tensor(array, name=name)
    data = {"x": rng.standard_normal((8, 4, 16, 16)).astype(np.float32)}
    compiled = dovetail.compile(model, "bpu-int8:march=bayes,observer=minmax", data=data)
    scales = {name: held[0]["scale"] for name, held in compiled.plan.values.items() if name in "ab"}
    assert scales["a"] > 3 * scales["b"]
    assert compiled.coverage().startswith("bpu-int8 3/")
    assert compiled.verification.worst_snr_db > 25


RESIZE = """<ir_version: 10, opset_import: ["": 11]>
g (float[1,4,8,8] x) => (float[1,4,16,16] y)
<float[4,4,1,1] w, float[4,4,1,1] v, float[4] s = {1, 1, 2, 2}, float[0] r> {
  [one] a = Conv (x, w)
  [up] b = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (a, r, s)
  [two] y = Conv (b, v) }"""


def test_the_scales_of_a_resize_are_not_said_to_have_missed_a_type():
    plan = dovetail.plan(open_text(RESIZE, "m"), "bpu-int8:march=bayes")
    said = [(remark.kind, remark.why) for remark in plan.remarks if remark.node == "up"]
    assert said == [("passed", "int8[symmetric], the type of its input")]
