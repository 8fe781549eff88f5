"""Nodes that a pass inserts one by one: names, types, placement, and what goes with a replaced node."""

import numpy as np
import onnx_ir as ir
import pytest
from dovetail.ir import FLOAT32
from dovetail.passes import Context, Request
from dovetail.planning import Placement, get_placement
from dovetail_onnx import open_text
from dovetail_transforms import NewNodes

NET = """<ir_version: 10, opset_import: ["" : 22]>
net (float[2,3] x) => (float[2,3] y) <float[1] three = {3}>
{ [scaled] s = Mul (x, three) [swish] y = HardSwish (s) }"""


@pytest.fixture
def model():
    return open_text(NET, "net")


def build(model, placement=None):
    """HardSwish in two operators, as the page on passes writes it."""
    nodes, (_, node) = NewNodes(model, Context(Request()), placement), list(model.graph)
    like = (node.outputs[0].dtype, node.outputs[0].shape)
    gate = nodes.add(node, "HardSigmoid", [node.inputs[0]], "swish", like, alpha=1 / 6)
    nodes.replace(node, nodes.add(node, "Mul", [node.inputs[0], gate], "product", like))
    return nodes


def test_a_node_is_replaced_under_its_names(model):
    build(model)
    assert [(node.name, node.op_type) for node in model.graph] == [
        ("scaled", "Mul"), ("swish_1", "HardSigmoid"), ("swish", "Mul"),
    ]  # fmt: skip
    assert [value.name for value in model.graph.outputs] == ["y"]
    assert all(value.dtype is ir.DataType.FLOAT for node in list(model.graph)[1:] for value in node.outputs)


@pytest.mark.parametrize("placement", [None, Placement("acme-npu", FLOAT32)])
def test_new_nodes_are_placed_if_the_model_is(model, placement):
    build(model, placement)
    assert [get_placement(node) for node in list(model.graph)[1:]] == [placement, placement]


def test_results_of_one_node_have_types_of_their_own(model):
    nodes, first = NewNodes(model, Context(Request())), model.graph[0]
    shape = ir.Shape([2, 1])
    like = {"top": (ir.DataType.FLOAT, shape), "place": (ir.DataType.INT64, shape)}
    one = nodes.constant(ir.Tensor(np.array([1]), name="three"))
    found = nodes.add_several(first, "TopK", [model.graph.inputs[0], one], "best", like)
    assert [(value.name, value.dtype) for value in found] == [("top", ir.DataType.FLOAT), ("place", ir.DataType.INT64)]
    assert one.name == "three_1" and one.name in model.graph.initializers


def test_what_nothing_reads_is_dropped_with_its_constants(model):
    nodes, (_, node) = NewNodes(model, Context(Request())), list(model.graph)
    read = node.inputs[0]
    node.replace_input_with(0, model.graph.inputs[0])
    nodes.drop_unread(read)
    assert [node.name for node in model.graph] == ["swish"] and not model.graph.initializers
