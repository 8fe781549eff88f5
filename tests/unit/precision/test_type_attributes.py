"""Types that stand in attributes become what the readers want; where only a shape is read, any type will do."""

import dovetail
import numpy as np
import pytest
from dovetail.passes import Context, Pipeline, Request
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[2,8] x, int64[8] i, uint8[8] bytes) => (float[2,8] y) <float[8,8] w, float[8,8] v> {{
  [product] a = MatMul (x, w)
  {carried}
  [reader] b = Add (a, c)
  [last] y = MatMul (b, v)
}}"""
CASES = {
    "a filling": ("s = Shape (a)  [carried] c = ConstantOfShape <value = float[1] {0.5}> (s)", "value", 2),
    "bytes": ("[carried] c = Cast <to = 1> (bytes)", "to", 2),
    "whole numbers of any size": ("[carried] c = Cast <to = 1> (i)", None, 2),
    "ones": ("[carried] c = EyeLike <dtype = 1> (a)", "dtype", 2),
    "random numbers": ("[carried] c = RandomNormal <shape = [2, 8]> ()", "dtype", 2),
    "random numbers in a shape": ("[carried] c = RandomUniformLike <dtype = 1> (a)", "dtype", 2),
    "random choices": ("[carried] c = Bernoulli (x)", "dtype", 2),
    "random numbers with a seed": ("[carried] c = RandomNormal <shape = [2, 8], seed = 1.0> ()", None, 3),
    "what float16 does not hold": (
        "s = Shape (a)  [carried] c = ConstantOfShape <value = float[1] {100000}> (s)",
        None,
        3,
    ),
}


@pytest.mark.parametrize("solver", ["fixpoint", "min-cut"])
@pytest.mark.parametrize(("carried", "attribute", "joins"), CASES.values(), ids=CASES)
def test_attributes_follow_their_readers(fp16, carried, attribute, joins, solver):
    model = open_text(TEXT.format(carried=carried), "test")
    ctx = Context(Request.of("test-fp16", solver=solver), plugins=fp16)
    Pipeline.parse("normalize,edge-kinds,place,assign-types,join", fp16.registry).run(model, ctx)
    node = next(node for node in model.graph if node.name == "carried")
    assert (node.outputs[0].dtype.name == "FLOAT16") == (attribute is not None)
    assert sum(other.op_type == "Cast" for other in model.graph if other is not node) == joins
    said = [remark.node for remark in ctx.remarks if remark.rule == "type-attribute"]
    assert said == (["carried"] if attribute else [])


def test_forward_does_so_where_all_readers_are_low(fp16):
    text = TEXT.format(carried="s = Shape (a)  [carried] c = ConstantOfShape <value = float[1] {0.5}> (s)")
    text = text.replace("Add (a, c)", "MatMul (c, w)")
    model = open_text(text, "test")
    ctx = Context(Request.of("test-fp16"), plugins=fp16)
    Pipeline.parse("normalize,edge-kinds,place,assign-types,join", fp16.registry).run(model, ctx)
    carried = next(node for node in model.graph if node.name == "carried")
    assert carried.attributes["value"].as_tensor().dtype.name == "FLOAT16"


@pytest.mark.parametrize("integers", ["int16", "uint16", "int32", "int64"])
@pytest.mark.parametrize("backend", ["host", "cpu-bf16"])
def test_integers_that_float16_rounds_are_rounded(backend, integers):
    text = f"""<ir_version: 10, opset_import: ["": 22]>
    g ({integers}[2,3] i) => (float[2,3] y) {{ a = Cast <to = 10> (i)  y = Cast <to = 1> (a) }}"""
    numbers = np.array([[0, 5, 2049], [32767, 3001, 17]], integers)
    result = dovetail.compile(open_text(text, "test"), backend, verify=False)
    np.testing.assert_array_equal(result.run({"i": numbers})["y"], numbers.astype(np.float16).astype(np.float32))
