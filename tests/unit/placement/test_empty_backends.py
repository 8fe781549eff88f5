"""A backend that gets no node is said to have none, with the reason, and with what would help where that was tried."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.compiler import Driver
from dovetail.passes import Context, Request
from dovetail.planning import IN_FLOATS
from onnx import TensorProto, helper, numpy_helper


def net(*operators):
    """A chain of operators on images, with a weight for every Conv."""
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(0, 0.5, (4, 4, 1, 1)).astype(np.float32), "w")
    nodes, value = [], "x"
    for number, op_type in enumerate(operators):
        given = [value, "w"] if op_type == "Conv" else [value]
        nodes.append(helper.make_node(op_type, given, [f"v{number}"], name=f"{op_type.lower()}_{number}"))
        value = f"v{number}"
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 4, 4]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


DATA = {"x": np.ones((1, 4, 4, 4), np.float32)}


def notes(model, backend, **request):
    compiled = dovetail.compile(model, backend, data=DATA, **request)
    return compiled, [note for note in compiled.notes() if "got no node" in note]


def test_a_strategy_that_would_claim_some_is_named_with_their_number():
    compiled, (note,) = notes(net("Conv", "Tanh", "Conv"), "ppl-int8")
    assert compiled.coverage() == "ppl-int8 0/3 nodes, host 3; 0 conversions"
    assert "its file takes 2 nodes, and strategy 'conv-to-conv' keeps none of them" in note
    option = note.partition("--backend ")[2].split()[0]
    helped, said = notes(net("Conv", "Tanh", "Conv"), option)
    assert not said and helped.coverage().startswith("ppl-int8 ")


def test_without_a_node_that_the_backend_takes_the_commonest_reason_is_given():
    _, (note,) = notes(net("Tanh", "Tanh"), "ppl-int8")
    assert "2 nodes because ppl-int8 does not list Tanh" in note and "would claim" not in note


def test_a_backend_with_nodes_has_no_such_note():
    assert notes(net("Conv", "Relu", "Conv"), "ppl-int8")[1] == []


def test_a_backend_behind_one_that_takes_all_is_said_to_stand_behind_it():
    """No strategy of its own would help, so none is tried."""
    model = net("Conv", "Relu", "Conv")
    compiled = dovetail.compile(model, ["gpu-fp16", "cpu-bf16"])
    (note,) = [note for note in compiled.notes() if "got no node" in note]
    assert note.startswith("cpu-bf16 got no node") and "would claim" not in note
    assert "3 nodes that its file takes went to gpu-fp16, named before it" in note
    assert compiled.coverage().startswith("gpu-fp16 3/3 nodes in 1 region, cpu-bf16 0; ")


def test_a_backend_that_is_named_first_is_not_said_to_stand_behind_another():
    """Its own strategy leaves the nodes to the following backend; another one would claim them."""
    model = net("Conv", "Tanh", "Conv")
    compiled, (note,) = notes(model, ["ppl-int8", "cpu-bf16"])
    assert compiled.coverage().startswith("ppl-int8 0/3 nodes, cpu-bf16 3/3 nodes")
    assert "named before it" not in note and "strategy 'conv-to-conv' keeps none of them" in note
    option = note.partition("--backend ")[2].split()[0]
    helped, said = notes(model, [option, "cpu-bf16"])
    assert not said and helped.coverage().startswith("ppl-int8 2/3 nodes")


def test_nodes_of_which_some_were_left_to_a_backend_are_not_all_said_to_be_taken():
    """The first backend takes the products; the second one's strategy keeps nothing of what is left."""
    model = net("Conv", "Tanh", "Relu")
    compiled, (note,) = notes(model, ["gpu-fp16", "ppl-int8"], pins=["type:Relu=host"])
    assert "1 node that its file takes went to gpu-fp16, named before it" in note


def test_the_parts_of_control_flow_are_counted_as_a_whole():
    """A file that takes the parts of an If one by one, but not the If, takes none of them."""
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
      g (float[2] x, bool c) => (float[2] y) { [choose] y = If (c) <
        then_branch = one () => (float[2] p) { [first] a = Relu (x) [second] p = Sigmoid (a) },
        else_branch = other () => (float[2] q) { [third] q = Relu (x) }> }""")
    (note,) = [note for note in dovetail.compile(proto, "ppl-int8").notes() if "got no node" in note]
    assert "4 nodes because ppl-int8 does not list If" in note and "its file takes" not in note


def test_an_opset_that_is_too_old_is_the_reason_for_every_node_with_the_way_out(with_backend, float_backend):
    """A Dropout that drops in inference has no form in newer opsets, so that the model keeps its own."""
    plugins = with_backend(float_backend("acme-new", "Relu, Dropout").replace("13..26", "22..23"))
    proto = onnx.parser.parse_model("""<ir_version: 3, opset_import: ["": 6]>
      g (float[2] x) => (float[2] y) {
        [first] a = Relu (x) [drop] b = Dropout <is_test = 0> (a) [last] y = Relu (b) }""")
    plan = dovetail.plan(proto, "acme-new", plugins=plugins)
    (said,) = [remark for remark in plan.remarks if remark.rule == "no-nodes"]
    assert "its tools read opset 22 to 23, the model has 6" in said.why
    assert said.suggest == "export the model with an opset from 22 to 23"
    assert {remark.node for remark in plan.remarks if remark.rule == "left-out"} == {"first", "last"}


def test_what_the_user_moved_is_not_laid_at_the_door_of_the_strategy():
    pins = ["type:Conv=host", "type:Relu=host"]
    _, (note,) = notes(net("Conv", "Relu", "Conv"), "ppl-int8", pins=pins)
    assert note.endswith("as a whole: 3 nodes are pinned elsewhere")
    _, (note,) = notes(net("Conv", "Relu", "Conv"), "ppl-int8", pins=["type:Conv=host"])
    assert "2 nodes are pinned elsewhere; its file takes 1 node, and strategy 'conv-to-conv' keeps none of them" in note


@pytest.mark.parametrize("asked", [IN_FLOATS, "high"])
def test_what_a_goal_moved_is_not_laid_at_the_door_of_the_strategy(asked):
    model = dovetail.open(net("Conv", "Relu", "Conv"))
    ctx = Context(Request.of("ppl-int8", data=DATA), plugins=dovetail.load_plugins())
    Driver(model, ctx).compile({node.name: (asked, "--min-snr 60") for node in model.graph})
    (said,) = [remark.why for remark in ctx.remarks if remark.rule in ("no-nodes", "nothing-left")]
    assert "as --min-snr 60" in said and "keeps none" not in said and "would claim" not in said


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("backend", ["bpu-int8", "ppl-int8", "cpu-bf16", "cpu-int8", "gpu-fp16"])
def test_a_goal_that_leaves_nothing_low_is_met_in_float32_and_said(backend):
    data = [{"x": np.random.default_rng(seed).standard_normal((1, 4, 4, 4)).astype(np.float32)} for seed in range(24)]
    how = {"data": data, "min_snr": 100}
    compiled = dovetail.compile(net("Conv", "Relu", "Conv"), backend, **how)
    assert compiled.plan.summary["accuracy"]["met"] is True
    assert compiled.verification.worst_snr_db >= 100
    (note,) = [note for note in compiled.notes() if "got no node" in note or "nothing is left" in note]
    assert "--min-snr 100" in note
    assert "refused" not in compiled.coverage() and not any("takes none of" in note for note in compiled.notes())


def test_floats_that_the_user_asks_for_are_no_error():
    compiled, (note,) = notes(net("Conv", "Relu", "Conv"), "bpu-int8", high=["*"])
    assert "3 nodes because bpu-int8 does not compute it in float32, as --high" in note
    assert compiled.coverage().startswith("bpu-int8 0/3 nodes, host 3")
