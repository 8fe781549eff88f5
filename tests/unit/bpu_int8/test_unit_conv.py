"""The edit `bpu-unit-conv`."""

import dovetail
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text


def edited(graph, edit):
    model = open_text(f'<ir_version: 10, opset_import: ["": 21]>\ng {graph}', "m")
    return dovetail.plan(model, "bpu-int8", edits=(edit,))


@pytest.mark.parametrize("side", ["before", "after"])
def test_it_stands_on_that_side_with_a_group_per_channel(side):
    plan = edited(
        "(float[1,4,8,8] x) => (float[1,4,8,8] y) { [act] a = Relu (x) [neg] y = Neg (a) }", f"bpu-unit-conv=act:{side}"
    )
    names = [node.name for node in plan.nodes]
    assert names == (["act_unit", "act", "neg"] if side == "before" else ["act", "act_unit", "neg"])


def test_an_output_of_the_model_keeps_its_name():
    plan = edited("(float[1,4,8,8] x) => (float[1,4,8,8] y) { [act] y = Relu (x) }", "bpu-unit-conv=act:after")
    assert [(node.name, node.output) for node in plan.nodes][-1] == ("act_unit", "y")


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        ("(float[4,8] x) => (float[4,8] y) { [act] y = Relu (x) }", "'y' has shape"),
        ("(float[1,c,8,8] x) => (float[1,c,8,8] y) { [act] y = Relu (x) }", "with a known number of channels"),
        ("(float[1,4,8,8] x) => (bool[1,4,8,8] y) { [act] y = Greater (x, x) }", "'y' holds no floats"),
    ],
)
def test_what_is_no_image_of_floats_is_an_error_with_a_way_out(graph, reason):
    with pytest.raises(DovetailError) as caught:
        edited(graph, "bpu-unit-conv=act:after")
    assert reason in caught.value.message
    assert "bpu-unit-conv after 'act'" in caught.value.message
    assert caught.value.hint
