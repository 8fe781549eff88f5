"""A net that eight bits are too few for: one channel is far larger than those that decide the output."""

import numpy as np
import onnx_ir as ir
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,1,1] w, float[4,4,1,1] v, float[4,4,1,1] u> {
  [one] a = Conv (x, w) [act] b = Relu (a) [two] c = Conv (b, v) [sig] d = Sigmoid (c) [three] y = Conv (d, u) }"""


def net():
    """Its second convolution reads values that int8 makes of the first one's channels: 0 wherever they matter."""
    model = open_text(TEXT, "m")
    rng = np.random.default_rng(3)
    weights = {name: rng.standard_normal((4, 4, 1, 1)).astype(np.float32) for name in "wvu"}
    weights["w"][0] *= 400
    weights["v"][:, 0] = 0
    for name, array in weights.items():
        model.graph.initializers[name].const_value = ir.tensor(array, name=name)
    return model


def pictures(number=4):
    """Data for it."""
    return {"x": np.random.default_rng(5).standard_normal((number, 4, 8, 8)).astype(np.float32)}
