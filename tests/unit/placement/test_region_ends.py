"""`region.last` is known right after placement: whether no reader of a node is on the same backend."""

import dovetail
import pytest
from dovetail_onnx.opening import open_text

FILE = """
backend: {name}
device: npu
opset: 13..26
dynamic: accept
precision: {{low: float16, high: float32}}
types:
  f: float16
  end: {{dtype: float32, when: {{region.last: true}}}}
ops:
  Conv: {{policy: lower, types: {{X: f, W: f, Y: [f, end]}}}}
  Relu: {{policy: lower, types: f}}
  Sigmoid: {{policy: lower, types: f, limits: {{region.last: true}}}}
place: {{strategy: autocast}}
emit: {{engines: [onnxruntime-cpu]}}
"""

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[1,3,8,8] x) => (float[1,3,8,8] y, float[1,3,8,8] z) {
  [one] a = Relu (x)
  [middle] b = Sigmoid (a)
  [two] c = Relu (b)
  [last] y = Sigmoid (c)
  [elsewhere] d = Tanh (c)
  [again] z = Relu (d)
}"""


@pytest.fixture
def plan(with_backend):
    def make(text, **request):
        plugins = with_backend(FILE.format(name="npu"))
        return dovetail.plan(open_text(text, "model"), "npu", plugins=plugins, **request)

    return make


def test_a_node_that_may_only_be_last_is_there_where_it_is(plan):
    where = {node.name: node.backend for node in plan(MODEL).nodes}
    assert where == {"one": "npu", "middle": "host", "two": "npu", "last": "npu", "elsewhere": "host", "again": "npu"}


def test_the_remark_names_the_limit(plan):
    found = plan(MODEL)
    (said,) = [remark for remark in found.remarks if remark.node == "middle" and remark.rule == "region-end"]
    assert "region.last" in said.why
    assert said.source == "inline.yaml:13"


def test_readers_come_first_so_that_a_producer_becomes_the_last_one(plan):
    """`second` is lost because `third` reads it; so `first` becomes the last one, and may stay."""
    text = (
        MODEL[: MODEL.index("{")]
        + """{
  [first] a = Sigmoid (x)
  [second] b = Sigmoid (a)
  [third] y = Relu (b)
  [other] z = Relu (x)
}"""
    )
    where = {node.name: node.backend for node in plan(text).nodes}
    assert where == {"first": "npu", "second": "host", "third": "npu", "other": "npu"}
