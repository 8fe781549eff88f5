"""`set:` of a backend file: attributes that go with the low precision."""

from dovetail.passes import Context, Pipeline, Request
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[2,8] x) => (float[2,8] y, float[2,8] z) <float[8,8] w, float[8] one> {
  [product] a = MatMul (x, w)
  [low] b = LayerNormalization <stash_type = 16> (a, one)
  [last] y = MatMul (b, w)
  [high] z = LayerNormalization <stash_type = 16> (x, one)
}"""


def test_attributes_are_set_where_the_node_goes_low(fp16):
    model = open_text(TEXT, "test")
    ctx = Context(Request.of("test-fp16"), plugins=fp16)
    Pipeline.parse("normalize,edge-kinds,place,assign-types,join", fp16.registry).run(model, ctx)
    stash = {node.name: node.attributes["stash_type"].value for node in model.graph if "stash_type" in node.attributes}
    assert stash == {"low": 1, "high": 16}
    said = [remark for remark in ctx.remarks if remark.rule == "set-attribute"]
    assert [(remark.node, remark.why) for remark in said] == [
        ("low", "stash_type is 1, as the file of test-fp16 asks for in float16")
    ]
