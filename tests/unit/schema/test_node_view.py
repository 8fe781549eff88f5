"""A node as limits see it: one line holds for all opsets."""

import numpy as np
import pytest
from dovetail_onnx.signatures import port_names
from dovetail_schemas.node_view import NodeView
from dovetail_schemas.terms import ABSENT, Unknown


def view(node, opset=22, **arguments):
    return NodeView(node, opset, arguments.pop("constants", {}), arguments.pop("facts", {}), **arguments)


CONV = "(float[1,3,8,9] x, float[4,3,3,5] w) => (float[a,b,c,d] y) "
POOL = "(float[1,3,8,9] x) => (float[a,b,c,d] y) "
DATA = "(float[2,1,4] x) => (float[a,b] y) "
ANY = "(float x) => (float y) "


@pytest.mark.parametrize(
    ("text", "opset", "name", "value"),
    [
        # attributes of windows, written out
        (CONV + "{ y = Conv(x, w) }", 22, "kernel_shape", (3, 5)),
        (CONV + "{ y = Conv(x, w) }", 22, "strides", (1, 1)),
        (CONV + "{ y = Conv(x, w) }", 22, "dilations", (1, 1)),
        (CONV + "{ y = Conv(x, w) }", 22, "pads", (0, 0, 0, 0)),
        (CONV + "{ y = Conv(x, w) }", 22, "group", 1),
        (CONV + "{ y = Conv<strides=[2,1]>(x, w) }", 22, "strides", (2, 1)),
        (CONV + '{ y = Conv<auto_pad="VALID">(x, w) }', 22, "pads", (0, 0, 0, 0)),
        (CONV + '{ y = Conv<auto_pad="SAME_UPPER", strides=[2,2]>(x, w) }', 22, "pads", (0, 2, 1, 2)),
        (CONV + '{ y = Conv<auto_pad="SAME_LOWER", strides=[2,2]>(x, w) }', 22, "pads", (1, 2, 0, 2)),
        (CONV + "{ y = ConvTranspose(x, w) }", 22, "output_padding", (0, 0)),
        (POOL + "{ y = MaxPool<kernel_shape=[2,2]>(x) }", 22, "strides", (1, 1)),
        (POOL + "{ y = MaxPool<kernel_shape=[2,2]>(x) }", 1, "pads", (0, 0, 0, 0)),
        ("(float x, float w) => (float y) { y = Conv(x, w) }", 22, "kernel_shape", Unknown("kernel_shape")),
        ("(float x, float w) => (float y) { y = Conv(x, w) }", 22, "strides", Unknown("strides")),
        # axes count from the front
        (DATA + "{ y = Softmax(x) }", 13, "axis", 2),
        (DATA + "{ y = Concat<axis=-3>(x) }", 13, "axis", 0),
        (ANY + "{ y = Softmax(x) }", 13, "axis", Unknown("axis")),
        (DATA + "{ y = ReduceMean<axes=[-1, 0]>(x) }", 13, "axes", (0, 2)),
        (DATA + "{ y = ReduceMean(x) }", 13, "axes", (0, 1, 2)),
        (DATA + "{ y = ReduceMean(x) }", 18, "axes", (0, 1, 2)),
        (DATA + "{ y = ReduceMean<noop_with_empty_axes=1>(x) }", 18, "axes", ()),
        (DATA + "{ y = Squeeze(x) }", 13, "axes", (1,)),
        # an attribute that became an input keeps one name
        (DATA + "{ a = Constant<value_ints=[-1]>() y = ReduceMean(x, a) }", 18, "axes", (2,)),
        (DATA + "{ a = Constant<value_ints=[-1]>() y = Unsqueeze(x, a) }", 13, "axes", (3,)),
        (DATA + "{ y = Unsqueeze<axes=[-1]>(x) }", 11, "axes", (3,)),
        (DATA + "<int64[2] s = {1, 3}> { y, z = Split<axis=2>(x, s) }", 13, "split", (1, 3)),
        (DATA + "{ y, z = Split<axis=-1, split=[1,3]>(x) }", 11, "split", (1, 3)),
        (DATA + "{ y, z, u = Split<axis=-1, num_outputs=3>(x) }", 18, "split", (2, 2, 0)),
        (DATA + "{ y, z = TopK<k=3>(x) }", 9, "K", 3),
        (DATA + "<int64[1] k = {3}> { y, z = TopK(x, k) }", 22, "K", (3,)),
        ("(float[2] x, int64[1] k) => (float y) { y, z = TopK(x, k) }", 22, "K", Unknown("K", "constant")),
        (DATA + "<int64[2] s = {0, 0}, int64[2] e = {1, 1}> { y = Slice(x, s, e) }", 13, "axes", (0, 1)),
        (DATA + "<int64[2] s = {0, 0}, int64[2] e = {1, 1}> { y = Slice(x, s, e) }", 13, "steps", (1, 1)),
        (DATA + "{ y = Slice<starts=[0], ends=[1]>(x) }", 9, "axes", (0,)),
        (DATA + "{ y = Transpose(x) }", 13, "perm", (2, 1, 0)),
        (DATA + "{ y = Clip<max=6.0>(x) }", 6, "max", 6.0),
        (DATA + "<float m = {6.0}> { y = Clip(x, , m) }", 13, "max", 6.0),
        (DATA + "<float m = {6.0}> { y = Clip(x, , m) }", 13, "min", ABSENT),
        # the rest
        (DATA + "{ y = Softmax(x) }", 22, "version", 13),
        (DATA + "{ y = Softmax(x) }", 11, "version", 11),
        (DATA + "{ y, z = TopK<k=3>(x) }", 9, "outputs", 2),
        (DATA + "<float c = {1.0}> { y = Add(x, c) }", 22, "constants", 1),
        (DATA + "<float c = {1.0}> { y = Add(x, c) }", 22, "B.constant", True),
        (DATA + "<float c = {1.0}> { y = Add(x, c) }", 22, "in0.constant", False),
        (DATA + "{ y = Relu(x) }", 22, "X.rank", 3),
        (ANY + "{ y = Relu(x) }", 22, "X.rank", 0),
        (DATA + "{ y = Relu(x) }", 22, "Y.is_output", True),
        (DATA + "{ y = Sum(x, x, x) }", 22, "in2.consumers", 3),
        (DATA + "{ y = Relu(x) }", 22, "region.last", Unknown("region.last", "region")),
        (DATA + "{ y = Relu(x) }", 22, "nonsense", ABSENT),
    ],
)
def test_value_of_a_name(text, opset, name, value, node):
    if text.startswith("(float x") and value in (Unknown("kernel_shape"), Unknown("strides"), Unknown("axis")):
        found = node(text, opset)
        for operand in found.inputs:
            operand.shape = None
    else:
        found = node(text, opset)
    assert view(found, opset)[name] == value


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (CONV + '{ y = Conv<auto_pad="SAME_UPPER", strides=[0,0]>(x, w) }', "pads"),
        (DATA + "{ y, z = Split<axis=7>(x) }", "split"),
        (DATA + '<string[1] a = {"b"}> { y = ReduceMean(x, a) }', "axes"),
    ],
)
def test_an_invalid_node_has_no_effective_value(text, name, node):
    assert view(node(text))[name] == Unknown(name)


def test_facts_and_region_and_constants_come_from_outside(node):
    relu = node(DATA + "{ y = Relu(x) }")
    seen = view(relu, facts={"deep": lambda n: n.op_type == "Relu", "far": lambda n: None}, region={"last": True})
    assert (seen["deep"], seen["far"], seen["region.last"]) == (True, Unknown("far"), True)
    assert view(relu, constants={"x": np.zeros((2, 1, 4), np.float32)})["X.constant"] is True


def test_commutative_operators_are_seen_in_both_orders(node):
    add = view(node("(float[2] a, float[3] b) => (float y) { y = Add(a, b) }"))
    assert add.extents("A") == add.swap().extents("B") == [2]
    assert view(node("(float[2] a, float[3] b) => (float y) { y = Sub(a, b) }")).swap() is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (CONV + "{ y = Conv(x, w) }", (("X", "W"), ("Y",))),
        (DATA + "{ y = Concat<axis=0>(x, x) }", (("in0", "in1"), ("concat_result",))),
        (DATA + "{ y, z = Split<num_outputs=2>(x) }", (("input",), ("out0", "out1"))),
        (DATA + "{ y = com.acme.Own(x) }", (("in0",), ("out0",))),
        (DATA + "{ y = com.microsoft.FusedMatMul(x, x) }", (("A", "B"), ("Y",))),
    ],
)
def test_names_of_ports(text, names, node):
    assert port_names(node(text, domains=', "com.acme": 1, "com.microsoft": 1'), 22) == names
