"""Models whose nodes are not in topological order: ONNX Runtime sorts them, and so does every request."""

import dovetail
import numpy as np
import onnx
import onnx_ir as ir
import pytest

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[n,4] x, bool c) => (float[n,4] y) <float[4,4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}> {
    [last] y = Add (s, b)
    [branch] b = If (c) <then_branch = t () => (float[n,4] tb) { tb = Neg (ta) ta = Relu (s) },
                         else_branch = e () => (float[n,4] eb) { eb = Identity (p) }>
    [soft] s = Softmax (p)
    [first] p = MatMul (x, w)
}"""
DATA = {"x": np.ones((2, 4), np.float32), "c": np.array(True)}


def proto():
    return onnx.parser.parse_model(TEXT)


def opened():
    """A model whose graph somebody has looked at before."""
    model = dovetail.open(proto())
    assert len(model.graph) == 4
    return model


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("source", [proto, opened], ids=["proto", "opened"])
@pytest.mark.parametrize("request_", [{}, {"data": [DATA]}, {"data": [DATA], "verify": True}], ids=str)
def test_every_request_works(source, request_):
    compiled = dovetail.compile(source(), ["cpu-bf16"], **request_)
    assert any(remark.rule == "sort" for remark in compiled.remarks)
    outputs = compiled.run(DATA)
    assert outputs["y"].shape == (2, 4)


def test_a_graph_of_onnx_ir():
    sorted_first = proto()
    nodes = list(sorted_first.graph.node)[::-1]
    model = ir.from_proto(sorted_first)
    assert [node.name for node in model.graph] == [node.name for node in nodes][::-1]
    compiled = dovetail.compile(model, ["cpu-bf16"], data=[DATA])
    assert compiled.run(DATA)["y"].shape == (2, 4)
    assert [node.name for node in model.graph] == ["last", "branch", "soft", "first"]  # the caller's graph stays


def test_a_cycle_is_an_error():
    cyclic = proto()
    cyclic.graph.node[3].input[0] = "y"
    with pytest.raises(dovetail.DovetailError, match="computed from its own result"):
        dovetail.compile(cyclic, ["cpu-bf16"], data=[DATA])
