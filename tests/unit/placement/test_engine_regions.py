"""Regions for engines that are built ahead of time: what is in them, what is not, and why."""

import os

import dovetail
import numpy as np
import onnx_ir as ir
import pytest
from dovetail.errors import DovetailError
from dovetail.ir import reads_of
from dovetail.planning import Placement, in_order, placed_backend, set_placement
from dovetail.plugin import Registry
from dovetail_onnx.opening import open_text
from dovetail_placement.regions.partitioners import formed_regions
from hypothesis import given, settings
from hypothesis import strategies as st

ENGINE = """
backend: acme-engine
device: cuda
opset: 13..26
dynamic: accept
precision: {low: float16, high: float32}
policies: fp16
types: {f: [float16, float32], any: [float16, float32, int32, int64]}
ops:
  Conv, MatMul, Relu, Sigmoid, Tanh: {types: f}
  Add, Mul, Concat, Gather, Reshape, Slice, Shape, Transpose, Squeeze, If: {types: any}
place: {strategy: engine-regions, regions: engine-regions%s}
emit: {engines: [onnxruntime-cpu]}
"""

# A detector's head: the boxes are made from an engine's result on the host, in shapes that both sides compute with.
DETECTOR = """
<ir_version: 10, opset_import: ["": 20]>
agraph (float[n, 3, 16, 16] image, float[8, 3, 3, 3] w1, float[8, 8, 3, 3] w2)
  => (float[p, q] picked, float[n, 8, 256] flat)
<int64[1] zero = {0}, int64[1] eight = {8}, int64[1] rest = {-1}, int64[1] eights = {2}>
{
  [conv_1] a = Conv <pads = [1, 1, 1, 1]> (image, w1)
  [relu_1] b = Relu (a)
  [conv_2] c = Conv <pads = [1, 1, 1, 1]> (b, w2)
  [extents] s = Shape (c)
  [batch] m = Gather (s, zero)
  [wanted] t = Concat <axis = 0> (m, eight, rest)
  [flat] flat = Reshape (c, t)
  [scores] e = Softplus (c)
  [boxes] f = Reshape (e, t)
  [last] g = ReduceMax <keepdims = 0> (f, eights)
  [pick] picked = Neg (g)
}
"""


@pytest.fixture
def engine(with_backend):
    return with_backend(ENGINE % "")


def model_of(text):
    return open_text(text, "detector.onnxtxt")


def weights(rng):
    return {
        "w1": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "w2": rng.normal(size=(8, 8, 3, 3)).astype(np.float32),
    }


def test_a_detector_is_one_engine_and_its_shapes_do_not_cross(engine):
    compiled = dovetail.compile(model_of(DETECTOR), "acme-engine", plugins=engine)
    placed = {node.name: node.backend for node in compiled.plan.nodes}
    assert placed["wanted"] == "acme-engine"
    assert placed["boxes"] == "host"
    copies = [node.name for node in compiled.model.graph if node.name.endswith("_copy")]
    assert copies == ["extents_copy", "batch_copy", "wanted_copy"]
    regions = {node.meta["dovetail.placement"].region for node in compiled.model.graph
               if node.meta["dovetail.placement"].backend == "acme-engine"}  # fmt: skip
    assert len(regions) == 1
    rng = np.random.default_rng(7)
    feed = {"image": rng.normal(size=(2, 3, 16, 16)).astype(np.float32), **weights(rng)}
    expected = dovetail.compile(model_of(DETECTOR), "acme-engine", pins=["*=host"], plugins=engine).run(feed)
    found = compiled.run(feed)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0.05, atol=0.05)


def test_copies_are_no_nodes_of_their_own(engine):
    compiled = dovetail.compile(model_of(DETECTOR), "acme-engine", plugins=engine)
    # Eleven nodes of the plan; the conversions and copies do not count.
    assert compiled.coverage() == "acme-engine 7/11 nodes in 1 region, host 4; 4 conversions"


def test_the_same_request_and_a_replay_give_the_same_bytes(engine, tmp_path):
    source = tmp_path / "detector.onnxtxt"
    source.write_text(DETECTOR)
    first = dovetail.compile(str(source), "acme-engine", plugins=engine)
    first.save(tmp_path / "first")
    dovetail.compile(str(source), "acme-engine", plugins=engine).save(tmp_path / "second")
    one, two = ((tmp_path / name / "model.onnx").read_bytes() for name in ("first", "second"))
    assert one == two
    replayed = dovetail.compile(str(source), "acme-engine", plan=str(tmp_path / "first" / "plan.yaml"), plugins=engine)
    assert [node.name for node in replayed.model.graph] == [node.name for node in first.model.graph]


def remarks(plan, rule):
    return {remark.node: remark for remark in plan.remarks if remark.rule == rule}


@pytest.mark.parametrize(
    ("inputs", "body", "culprit", "suggest"),
    [
        ("float[] x", "o = Neg (x) [reader] y = Relu (o)", "the model gives none", "--fix-shape x:1x3x224x224"),
        ("float[n, 4] x", "[lost] o = Squeeze (x) p = Neg (o) [reader] y = Relu (p)", "'lost' (Squeeze) lost it",
         "--fix-shape x:1x4"),
        ("float[n, 4] x, int64[r] s", "[lost] o = Reshape (x, s) p = Neg (o) [reader] y = Relu (p)",
         "'lost' (Reshape) lost it", "--fix-shape s:1"),
        ("float[4] x, int64[n] i", "z = NonZero (x) g = Gather (z, i) s = Squeeze (g) [lost] o = Reshape (x, s) "
         "p = Neg (o) [reader] y = Relu (p)", "(Squeeze) lost it", ""),
        ("float[n] x, int64 i", "z = NonZero (x) s = Gather (z, i) [lost] o = Reshape (x, s) p = Neg (o) "
         "[reader] y = Relu (p)", "'lost' (Reshape) lost it", ""),
    ],
)  # fmt: skip
def test_what_reads_a_value_without_a_shape_goes_back(engine, inputs, body, culprit, suggest):
    text = f'<ir_version: 10, opset_import: ["": 20]> agraph ({inputs}) => (float[] y) {{ {body} }}'
    plan = dovetail.plan(model_of(text), "acme-engine", plugins=engine)
    remark = remarks(plan, "lost-shape")["reader"]
    assert culprit in remark.why
    assert remark.suggest.startswith(suggest) and bool(remark.suggest) == bool(suggest)
    assert {node.backend for node in plan.nodes if node.name == "reader"} == {"host"}


def test_a_shape_that_helps_brings_the_reader_back(engine):
    body = "[lost] o = Squeeze (x) p = Neg (o) [reader] y = Relu (p)"
    text = f'<ir_version: 10, opset_import: ["": 20]> agraph (float[n, 4] x) => (float[] y) {{ {body} }}'
    plan = dovetail.plan(model_of(text), "acme-engine", plugins=engine, fix_shapes={"x": (1, 4)})
    assert "lost-shape" not in {remark.rule for remark in plan.remarks}


CHAIN = """
<ir_version: 10, opset_import: ["": 20]>
agraph (float[64, 64] x, float[64, 64] w) => (float[64, 64] y) {
  [first] a = MatMul (x, w)
  [det] b = Softplus (a)
  [lone] c = Relu (b)
  [other] d = Softplus (c)
  [second] y = MatMul (d, w)
}
"""


def test_a_cheap_node_between_two_others_is_not_worth_an_engine(engine):
    plan = dovetail.plan(model_of(CHAIN), "acme-engine", plugins=engine)
    assert {node.name: node.backend for node in plan.nodes}["lone"] == "host"
    assert (
        "saves 32768 bytes, against 32768 bytes that cross the border and 1048576"
        in remarks(plan, "not-worth-it")["lone"].why
    )


def test_the_price_is_an_option_of_the_file(with_backend):
    """Where starting costs nothing and bytes that cross hardly count, even a cheap node may stay."""
    plugins = with_backend(ENGINE % ", launch: 0, border: 0")
    plan = dovetail.plan(model_of(CHAIN), "acme-engine", plugins=plugins)
    assert {node.name: node.backend for node in plan.nodes}["lone"] == "acme-engine"


def test_a_price_below_zero_is_an_error(with_backend):
    with pytest.raises(DovetailError, match=r"launch: -1 is no price"):
        dovetail.plan(model_of(CHAIN), "acme-engine", plugins=with_backend(ENGINE % ", launch: -1"))


def test_a_pin_keeps_it(engine):
    plan = dovetail.plan(model_of(CHAIN), "acme-engine", plugins=engine, pins=["lone=acme-engine"])
    assert {node.name: node.backend for node in plan.nodes}["lone"] == "acme-engine"
    said = "\n".join(dovetail.explain(dovetail.plan(model_of(CHAIN), "acme-engine", plugins=engine), "lone",
                                      model=model_of(CHAIN), plugins=engine))  # fmt: skip
    assert "tried: --pin lone=acme-engine brings it to acme-engine" in said


def test_a_cut_says_over_which_node_and_why_that_is_outside(engine):
    plan = dovetail.plan(model_of(CHAIN), "acme-engine", plugins=engine)
    remark = remarks(plan, "cut")["second"]
    assert remark.because == ("other",)
    assert "apart from that of 'first': 'second' waits for 'other', which waits for that region" in remark.why
    assert "not on acme-engine: acme-engine does not list Softplus" in remark.why


def test_control_flow_is_cut_whole(engine):
    text = """
    <ir_version: 10, opset_import: ["": 20]>
    agraph (float[64, 64] x, bool c, float[64, 64] w) => (float[64, 64] y) {
      [first] a = MatMul (x, w)
      [branch] b = If (c) <then_branch = t () => (float[64, 64] p) { [bad] p = Softplus (a) },
                           else_branch = e () => (float[64, 64] q) { [good] q = Relu (a) }>
      [second] y = MatMul (b, w)
    }
    """
    plan = dovetail.plan(model_of(text), "acme-engine", plugins=engine)
    assert {node.name: node.backend for node in plan.nodes}["good"] == "host"
    assert "'bad' in its body is not on acme-engine" in remarks(plan, "cut")["second"].why


@pytest.fixture(scope="module")
def partitioners():
    made = Registry("acme")
    made.partitioner("topological", "dovetail_placement.regions.topological:Topological")
    made.partitioner("engine-regions", "dovetail_placement.engine_regions.partitioner:EngineRegions")
    return made


@settings(max_examples=60 if os.environ.get("DOVETAIL_SLOW") else 25, deadline=None)
@given(st.data())
def test_regions_of_several_backends_run_after_another(partitioners, data):
    """Two backends with this partitioner, and two that `topological` cuts around them: `formed_regions` refuses any
    cycle.
    """
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    values, nodes = [x], []
    for number in range(data.draw(st.integers(1, 24))):
        read = data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique_by=id))
        node = ir.node("Sum", read, name=f"n{number}")
        set_placement(node, Placement(data.draw(st.sampled_from("abcd"))))
        node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = f"v{number}", x.type, x.shape
        nodes.append(node)
        values.append(node.outputs[0])
    graph = ir.Graph([x], [values[-1]], nodes=nodes, opset_imports={"": 17}, name="g")
    partitioner_of = {"a": "engine-regions", "b": "engine-regions", "c": "topological", "d": "topological"}
    regions = formed_regions(graph, partitioner_of, partitioners, placed_backend)
    assert in_order([region.nodes for region in regions], reads_of(graph))
