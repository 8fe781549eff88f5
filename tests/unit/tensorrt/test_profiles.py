"""Bounds of a model's inputs are carried to the inputs of its regions."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.plugin import load_plugins
from dovetail_tensorrt.profiles.bounds import bounds_from
from dovetail_tensorrt.profiles.of_region import KnownBounds

HEADER = '<ir_version: 10, opset_import: ["": 20]>'


def known(text, **given):
    model = dovetail.open(onnx.parser.parse_model(f"{HEADER} {text}"))
    evaluator = load_plugins().registry.engine["reference"]()
    return KnownBounds(model, {name: bounds_from(name, points) for name, points in given.items()}, evaluator)


def test_extents_follow_from_those_of_the_input():
    bounds = known(
        "g (float[N,3,H,8] x) => (float[a,b,c,d] y) { y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }",
        x=((1, 3, 4, 8), (2, 3, 8, 8), (4, 3, 32, 8)),
    )
    assert bounds.of("y").shapes == ((1, 3, 2, 4), (2, 3, 4, 4), (4, 3, 16, 4))


def test_extents_that_integers_decide_follow_where_these_come_from_extents():
    bounds = known(
        """g (float[N,3,8] x) => (float[a,b] y)
            <int64 zero = {0}, int64 two = {2}, int64[1] rest = {-1}, int64[1] axis = {0}> {
            s = Shape(x)  n = Gather(s, zero)  half = Div(n, two)  h = Unsqueeze(half, axis)
            shape = Concat<axis=0>(h, rest)  y = Reshape(x, shape) }""",
        x=((2, 3, 8), (4, 3, 8), (8, 3, 8)),
    )
    assert bounds.of("y").shapes == ((1, 48), (2, 48), (4, 48))
    assert bounds.of("shape").values == ((1, -1), (2, -1), (4, -1))


def test_an_extent_that_shrinks_while_its_input_grows_is_turned_round():
    bounds = known(
        """g (float[N,3] x) => (float[a] y)
            <int64[1] ten = {10}, int64[1] start = {0}, int64[1] end = {1}, float one = {1}> {
            s = Shape(x)  n = Slice(s, start, end)  k = Sub(ten, n)  y = Expand(one, k) }""",
        x=((1, 3), (2, 3), (8, 3)),
    )
    assert bounds.of("y").shapes == ((2,), (8,), (9,))


def test_names_of_extents_hold_for_all_inputs():
    bounds = known("g (float[N,3] x, float[N,1] z) => (float[a,b] y) { y = Add(x, z) }", x=((1, 3), (2, 3), (8, 3)))
    assert bounds.of("z").shapes == ((1, 1), (2, 1), (8, 1))


def test_numbers_of_an_input_may_be_extents():
    bounds = known(
        "g (float[1,1] x, int64[2] s) => (float[a,b] y) { y = Expand(x, s) }",
        s={"values": ((1, 8), (2, 8), (4, 9))},
    )
    assert bounds.of("y").shapes == ((1, 8), (2, 8), (4, 9))


def test_the_node_that_loses_an_extent_is_named():
    bounds = known(
        "g (float[N,3] x) => (float[a,b] y) { i = NonZero(x)  f = Cast<to=1>(i)  y = Relu(f) }",
        x=((1, 3), (2, 3), (8, 3)),
    )
    assert bounds.of("y") is None
    assert bounds.open_axes("y") == "axis 1"
    assert bounds.lost("y").producer().op_type == "NonZero"
    assert bounds.text("i", ("MIN", "MAX")) == ["2xMIN", "2xMAX"]


def test_the_input_that_leaves_extents_open_is_named():
    bounds = known("g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }")
    assert bounds.of("y") is None
    assert bounds.lost("y").name == "x"


def test_bounds_of_a_value_inside_may_be_given():
    bounds = known(
        "g (float[2,3] x) => (float[a,b] y) { i = NonZero(x)  f = Cast<to=1>(i)  y = Relu(f) }",
        i=((2, 0), (2, 3), (2, 6)),
    )
    assert bounds.of("y").shapes == ((2, 0), (2, 3), (2, 6))


def attributes_of(compiled):
    (call,) = [node for node in compiled.model.graph if node.domain == "dovetail.tensorrt"]
    return {name: attribute.value for name, attribute in call.attributes.items()}


def test_an_engine_operator_records_its_profile(convolution):
    compiled = dovetail.compile(
        convolution(), "tensorrt", profiles={"x": ((1, 4, 8, 8), (2, 4, 8, 8), (4, 4, 8, 8))}, workspace="1GiB"
    )
    found = attributes_of(compiled)
    assert [found[f"{point}_shapes"] for point in ("min", "opt", "max")] == [
        ("x:1x4x8x8",), ("x:2x4x8x8",), ("x:4x4x8x8",),
    ]  # fmt: skip
    assert found["workspace"] == 1 << 30
    assert (found["enable_fp16"], found["enable_bf16"], found["enable_int8"]) == (1, 0, 0)


def test_the_data_gives_bounds_and_a_replay_needs_none(convolution, tmp_path):
    batches = [{"x": np.ones((n, 4, 8, 8), np.float32)} for n in (2, 3, 3, 7)]
    compiled = dovetail.compile(convolution(), "tensorrt", data=batches, workspace="1GiB")
    found = attributes_of(compiled)
    assert [found[f"{point}_shapes"] for point in ("min", "opt", "max")] == [
        ("x:2x4x8x8",), ("x:3x4x8x8",), ("x:7x4x8x8",),
    ]  # fmt: skip
    compiled.save(tmp_path / "out")
    again = dovetail.compile(convolution(), plan=tmp_path / "out" / "plan.yaml")
    assert attributes_of(again) == found


def test_open_extents_are_a_note_that_says_what_to_give(builder, convolution):
    compiled = dovetail.compile(convolution(), "tensorrt")
    assert "max_shapes" not in attributes_of(compiled)
    (note,) = [note for note in compiled.notes() if "has no engine" in note]
    assert "axis 0 of 'x' stays open" in note
    assert "--profile x:MINx4x8x8:OPTx4x8x8:MAXx4x8x8, or --data, gives bounds" in note
    result = compiled.run({"x": np.ones((3, 4, 8, 8), np.float32)})
    assert result["y"].shape == (3, 4, 8, 8)


@pytest.mark.parametrize("batch", [1, 4])
def test_fixed_extents_need_no_profile(convolution, batch):
    found = attributes_of(dovetail.compile(convolution(str(batch)), "tensorrt"))
    assert found["min_shapes"] == found["max_shapes"] == (f"x:{batch}x4x8x8",)


def test_integers_of_fixed_extents_beside_data():
    model = onnx.parser.parse_model(
        f"{HEADER} g (int64[1,4] words) => (float[1,4,2] y)"
        " <float[3,2] table = {1,2,3,4,5,6}> { y = Gather(table, words) }"
    )
    compiled = dovetail.compile(model, "tensorrt", data={"words": np.array([[0, 1, 2, 0]])})
    assert compiled.coverage().startswith("tensorrt 1/1")
    assert not [remark for remark in compiled.remarks if remark.kind == "failed"]


def test_extents_that_data_decides_may_be_given_where_they_arise(builder, with_backend):
    text = """
backend: eager-trt
device: cuda
precision: {low: float16, high: float32}
opset: 13..24
dynamic: profile
unlisted: {}
ops: {NonZero: refuse}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu], artifacts: [tensorrt-engine]}
"""
    model = onnx.parser.parse_model(
        f"{HEADER} g (float[2,3] x) => (float[2,K] y) {{ [find] i = NonZero(x)  f = Cast<to=1>(i)  y = Relu(f) }}"
    )
    plugins = with_backend(text)
    compiled = dovetail.compile(model, "eager-trt", plugins=plugins)
    (note,) = [note for note in compiled.notes() if "has no engine" in note]
    assert "axis 1 of 'i' is not known: node 'find' (NonZero) decides it by numbers" in note
    assert "--profile i:2xMIN:2xOPT:2xMAX" in note
