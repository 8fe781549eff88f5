"""Edits change the edge they are asked to change, and no other."""

import onnx_ir as ir
import pytest
from dovetail.ir import insert_after_value, insert_on_edge, replace_uses_except
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[2] x) => (float[2] y, float[2] z) {
  [a] p = Relu (x)  [b] q = Neg (p)  [c] y = Add (p, p)  [d] z = Add (p, q) }"""


@pytest.fixture
def graph():
    return open_text(TEXT, "test").graph


def reads(graph):
    return {node.name: [value.name for value in node.inputs] for node in graph}


def cast(value):
    return ir.node("Cast", [value], {"to": 16}, name="cast", outputs=[ir.Value(name="cast_out")])


def test_insert_on_edge_changes_one_edge(graph):
    insert_on_edge(graph[2], 1, cast)
    assert [node.name for node in graph] == ["a", "b", "cast", "c", "d"]
    assert reads(graph) == {"a": ["x"], "b": ["p"], "cast": ["p"], "c": ["p", "cast_out"], "d": ["p", "q"]}


def test_replace_uses_except_does_not_wire_a_node_onto_itself(graph):
    node = cast(graph[0].outputs[0])
    insert_after_value(graph, graph[0].outputs[0], node)
    assert replace_uses_except(graph[0].outputs[0], node.outputs[0], keep=[node, graph[2]]) == 3
    assert reads(graph) == {"a": ["x"], "cast": ["p"], "b": ["p"], "c": ["cast_out"] * 2, "d": ["cast_out", "q"]}


def test_an_edge_that_is_not_there(graph):
    node = ir.node("Clip", [graph.inputs[0], None])
    with pytest.raises(ValueError, match="absent"):
        insert_on_edge(node, 1, cast)
