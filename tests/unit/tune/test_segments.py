"""Segments: where a model may be cut, and which parts are alike."""

import math

import dovetail
import numpy as np
import pytest
from dovetail.compiler import Driver
from dovetail.passes import Context, Request
from dovetail.plugin import load_plugins
from dovetail_tune.exact_values import ExactValues
from dovetail_tune.mixing import affordable
from dovetail_tune.segments import crossings_of, segments_of
from dovetail_verify.runners import reference_runner
from onnx import parser

PLUGINS = load_plugins()

RESIDUAL = """<ir_version: 10, opset_import: ["": 22]>
g (float[1, 4] x) => (float[1, 4] y) {
    [a] a = Relu (x)
    [b] b = Sigmoid (a)
    [c] c = Add (a, b)
    [d] y = Tanh (c)
}"""

BLOCKS = """<ir_version: 10, opset_import: ["": 22]>
g (float[1, 4] x) => (float[1, 4] y)
<float[4, 4] v = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1},
 float[4, 4] w = {2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2}> {
    [m1] a = MatMul (x, v)
    [r1] b = Relu (a)
    [m2] c = MatMul (b, w)
    [r2] d = Relu (c)
    [m3] e = MatMul (d, v)
    [s3] y = Sigmoid (e)
}"""


def opened(text):
    return dovetail.open(parser.parse_model(text))


def prepared(text):
    ctx = Context(Request.of("host"), plugins=PLUGINS)
    ctx.load_backends()
    return Driver(opened(text), ctx).prepare()


def test_values_that_are_read_later_cross():
    # Between `a` and `c` two values cross: `a` and what is made of it.
    assert crossings_of(prepared(RESIDUAL)) == [0, 1, 2, 1, 0]


def test_an_input_that_is_read_later_crosses_too():
    text = RESIDUAL.replace("Add (a, b)", "Add (x, b)")
    assert crossings_of(prepared(text)) == [0, 2, 2, 1, 0]


def test_an_output_crosses_only_as_far_as_it_is_read():
    text = RESIDUAL.replace("(float[1, 4] y)", "(float[1, 4] y, float[1, 4] a)")
    assert crossings_of(prepared(text)) == [0, 1, 2, 1, 0]


def test_segments_are_models_that_compute_the_whole_one_after_the_other():
    model = prepared(BLOCKS)
    segments = segments_of(model)
    x = np.float32([[1, -2, 3, -4]])
    ctx = Context(Request(), plugins=PLUGINS)
    values = {"x": x}
    for segment in segments:
        (name,) = [value.name for value in segment.model.graph.inputs if not value.is_initializer()]
        values |= reference_runner(segment.model, ctx)({name: values[name]})
    assert len(segments) > 1
    assert np.array_equal(values["y"], reference_runner(model, ctx)({"x": x})["y"])


def test_repeated_blocks_have_one_key_whatever_their_weights():
    keys = {segment.nodes: segment.key for segment in segments_of(prepared(BLOCKS), most=3)}
    assert list(keys) == [("m1",), ("r1", "m2"), ("r2", "m3", "s3")] or len(keys) == 3
    one = segments_of(prepared(BLOCKS.replace("{2, 0, 0, 0", "{9, 0, 0, 0")), most=3)
    assert [segment.key for segment in one] == list(keys.values())


def test_other_shapes_or_attributes_make_another_key():
    keys = [segment.key for segment in segments_of(prepared(BLOCKS), most=3)]
    other = BLOCKS.replace("float[1, 4]", "float[7, 4]")
    assert all(one != two for one, two in zip(keys, [s.key for s in segments_of(prepared(other), most=3)]))


def test_the_noise_of_a_segment_is_that_of_the_outputs_if_it_alone_is_inexact(tmp_path):
    model = prepared(BLOCKS)
    segments = segments_of(model, most=3)
    (tmp_path / "data").mkdir()
    x = np.float32([[0.1, 0.2, 0.3, 0.4]])
    np.savez(tmp_path / "data" / "0.npz", x=x)
    values = ExactValues(model, segments, tmp_path / "data", tmp_path, PLUGINS)
    first = segments[0]
    name = first.model.graph.outputs[0].name
    inexact = np.float32([[0.1, 0.2, 0.3, 0.6]])  # the first segment gives x itself
    (tmp_path / "outputs").mkdir()
    np.savez(tmp_path / "outputs" / "0.npz", **{name: inexact})

    def whole(given):
        return 1 / (1 + np.exp(-2.0 * given.astype(np.float64)))

    expected = np.sum((whole(inexact) - whole(x)) ** 2) / np.sum(whole(x) ** 2)
    assert values.noise_of(first, tmp_path / "outputs") == [pytest.approx(expected, rel=1e-3)]


STREAMS = """<ir_version: 10, opset_import: ["": 22]>
g (float[1, 4] x) => (float[1, 4] y) {
    [a] a = Relu (x)
    [b] b = Sigmoid (a)
    [c] c = Add (a, b)
    [d] d = Tanh (b)
    [e] e = Mul (c, d)
    [f] f = Add (e, a)
    [h] h = Mul (f, d)
    [i] i = Add (h, f)
    [j] y = Add (i, a)
}"""


def test_a_model_without_single_values_is_cut_where_few_cross(tmp_path):
    model = prepared(STREAMS)
    segments = segments_of(model)
    assert len(segments) >= 4
    x = np.float32([[1, -2, 3, 0.5]])
    ctx = Context(Request(), plugins=PLUGINS)
    values = {"x": x}
    for segment in segments:
        given = {v.name: values[v.name] for v in segment.model.graph.inputs}
        values |= reference_runner(segment.model, ctx)(given)
    assert np.array_equal(values["y"], reference_runner(model, ctx)({"x": x})["y"])


def test_values_that_pass_a_segment_by_are_exact_when_its_noise_is_measured(tmp_path):
    model = prepared(STREAMS)
    segments = segments_of(model)
    (tmp_path / "data").mkdir()
    x = np.float32([[1, -2, 3, 0.5]])
    np.savez(tmp_path / "data" / "0.npz", x=x)
    values = ExactValues(model, segments, tmp_path / "data", tmp_path, PLUGINS)
    ctx = Context(Request(), plugins=PLUGINS)
    for segment in segments[1:-1]:  # `a` passes all of these by
        with np.load(next(iter(values.inputs_of(segment).glob("*.npz")))) as file:
            exact = reference_runner(segment.model, ctx)(dict(file))
        outputs = tmp_path / f"outputs_{segment.index}"
        outputs.mkdir()
        np.savez(outputs / "0.npz", **exact)
        assert values.noise_of(segment, outputs) == [0.0]
        np.savez(outputs / "0.npz", **{name: array + 1 for name, array in exact.items()})
        assert values.noise_of(segment, outputs)[0] > 0.01


@pytest.mark.parametrize(
    ("compile_seconds", "run_seconds", "remaining", "expected"),
    [
        ([1, 1, 1, 1], 0.001, math.inf, (4, 10)),
        ([1, 4, 4, 4], 0.001, 60, (4, 10)),
        ([1, 4, 4, 4], 0.001, 30, (3, 5)),  # one candidate fewer, so that there are segments enough
        ([1, 4, 4, 4], 0.001, 20, (2, 5)),
        ([1, 4, 4, 4], 0.2, 60, (3, 5)),  # running segments takes time, too
        ([1, 4, 4, 4], 0.001, 5, (0, 0)),  # compiling all segments would take longer than there is time
        ([1, 40], 0.001, 60, (0, 0)),
    ],
)
def test_as_much_is_profiled_as_there_is_time_for(compile_seconds, run_seconds, remaining, expected):
    assert affordable(compile_seconds, run_seconds, remaining) == expected


@pytest.mark.slow
def test_cutting_is_linear():
    nodes = "\n".join(f"[n{i}] v{i + 1} = Relu (v{i})" for i in range(3000))
    text = f'<ir_version: 10, opset_import: ["": 22]> g (float[1] v0) => (float[1] v3000) {{ {nodes} }}'
    model = opened(text)
    assert crossings_of(model) == [0, *[1] * 2999, 0]
    assert len(segments_of(prepared(text))) == 10
