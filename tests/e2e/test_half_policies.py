"""gpu-fp16:accumulate=half keeps in float32 what overflows or loses most where sums are in float16."""

import dovetail
import numpy as np
import onnx.parser
import pytest

HEAD = '<ir_version: 10, opset_import: ["": 17]>\n'


@pytest.mark.parametrize(
    "call",
    ["GlobalAveragePool(c)", "AveragePool <kernel_shape = [20, 20]> (c)", "ReduceMean <axes = [2, 3]> (c)"],
)
def test_means_whose_sums_overflow_are_right(call):
    model = onnx.parser.parse_model(
        HEAD
        + f"""g (float[1,4,20,20] x, float[4,4,1,1] w) => (float[1,4,1,1] y) {{
          c = Conv(x, w) [mean] m = {call} y = Conv(m, w) }}"""
    )
    weights = np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1)
    feeds = {"x": np.full((1, 4, 20, 20), 300, np.float32), "w": weights}
    compiled = dovetail.compile(model, "gpu-fp16:accumulate=half", data=feeds)
    assert {node.backend for node in compiled.plan.nodes} == {"gpu-fp16"}
    assert compiled.run(feeds)["y"].ravel().tolist() == [300] * 4
    (why,) = {remark.rule for remark in compiled.remarks if remark.node == "mean" and remark.rule.startswith("policy")}
    assert why == "policy-fp32-accumulate"
    default = dovetail.compile(model, "gpu-fp16", data=feeds).plan
    assert "policy-fp32-accumulate" not in {remark.rule for remark in default.remarks if remark.node == "mean"}
