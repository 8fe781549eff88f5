"""The flat graph of a model: one walk shared by all passes that keep the structure."""

import onnx_ir as ir
from dovetail.ir import FlatGraph
from dovetail.passes import Context
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[2] x, bool c) => (float[2] y) {
  [a] p = Relu (x)
  [b] y = If (c) <then_branch = t () => (float[2] q) { [t1] q = Neg (p) },
                  else_branch = e () => (float[2] r) { [e1] r = Abs (p) }> }"""


def test_nodes_come_before_those_of_their_bodies():
    model = open_text(TEXT, "test")
    flat, (relu, branch) = FlatGraph(model), model.graph
    assert [node.name for node in flat.nodes] == ["a", "b", "t1", "e1"]
    assert [graph.name for graph in flat.graphs] == ["g", "t", "e"]
    assert [flat.holders.get(id(graph)) for graph in flat.graphs] == [None, branch, branch]
    assert [[node.name for node in flat.body_nodes(holder)] for holder in (relu, branch)] == [[], ["t1", "e1"]]


def test_an_analysis_holds_until_the_model_is_touched():
    model = open_text(TEXT, "test")
    ctx = Context(model=model)
    before = ctx.analysis(FlatGraph)
    model.graph.append(ir.node("Neg", [model.graph[0].outputs[0]], name="late"))
    assert ctx.analysis(FlatGraph) is before
    model.touch()
    assert [node.name for node in ctx.analysis(FlatGraph).nodes] == ["a", "b", "t1", "e1", "late"]
