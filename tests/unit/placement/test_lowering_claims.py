"""A backend whose tools read an older opset takes only nodes that can be brought there; the model keeps its opset."""

import dovetail
import pytest
from dovetail_onnx.opening import open_text

FILE = """
backend: old-tools
device: npu
opset: 10..11
dynamic: accept
precision: {{low: float16, high: float32}}
policies: fp16
types: {{f: [float16, float32]}}
unlisted: {{types: f}}
place: {{strategy: autocast}}
emit: {{engines: [onnxruntime-cpu]{artifacts}}}
"""

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[2,4] x, float[1,2,2,2] grid, float[1,1,4,4] image) => (float[2,4] y, float[1,1,2,2] z) {
  [relu] a = Relu (x)
  [gelu] y = Gelu (a)
  [sample] z = GridSample (image, grid)
}"""


@pytest.fixture
def placed(with_backend):
    def make(artifacts):
        plugins = with_backend(FILE.format(artifacts=artifacts))
        return dovetail.plan(open_text(MODEL, "model"), "old-tools", plugins=plugins)

    return make


def test_what_has_no_form_for_the_tools_goes_elsewhere_with_the_reason(placed):
    """Gelu is written as its function; GridSample came with opset 16."""
    plan = placed(", artifacts: [some-emitter]")
    assert {node.name: node.backend for node in plan.nodes} == {
        "relu": "old-tools", "gelu": "old-tools", "sample": "host",
    }  # fmt: skip
    (said,) = [remark.why for remark in plan.remarks if remark.node == "sample" and remark.rule == "not-supported"]
    assert "GridSample" in said and "opset 11" in said


def test_a_backend_without_tools_of_its_own_takes_the_same_nodes(placed):
    """Its file knows the operators of opset 10 and 11; its engine says itself that it reads the model's opset."""
    assert [(node.name, node.backend) for node in placed("").nodes] == [
        (node.name, node.backend) for node in placed(", artifacts: [some-emitter]").nodes
    ]
