"""Whole graphs in integers: what stays as the plan says, what is left in floats, and random graphs."""

import os

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.planning import get_placement

from .integer_models import CONVERSIONS, FORMATS, IMAGE, executed, file_for, model_of, proto_of
from .integer_reference import run

CONV = "float[4,4,3,3] w, float[4] b"
RESIDUAL = f"a = Conv <pads = [1,1,1,1]> (x, w, b) r = Relu (a) y = Add (r, x) | {CONV}"
WITHOUT_PASS = ("arithmetic: integers", "arithmetic: floats")


def test_plan_and_names_are_those_without_the_pass(plugins_in_integers):
    proto = model_of(RESIDUAL)
    data = {"x": np.random.default_rng(0).standard_normal((2, 4, 6, 7)).astype(np.float32)}
    results = [
        dovetail.compile(proto, "npu", data=data, plugins=plugins_in_integers(file_for("int8"), dropped))
        for dropped in (False, True)
    ]
    plans = [result.plan.as_dict() for result in results]
    assert plans[0] == plans[1]
    integers, between = (result.model.graph for result in results)
    planned = {node.name for node in results[0].plan.nodes}
    assert {node.name for node in integers} >= planned
    assert {value.name for node in integers for value in node.outputs} >= {"r", "y"}
    regions = {get_placement(node).region for node in integers if get_placement(node).backend == "npu"}
    assert regions == {get_placement(node).region for node in between if get_placement(node).backend == "npu"}


def test_a_backend_that_does_not_ask_keeps_its_conversions(both):
    found = both(RESIDUAL, IMAGE, "int8", WITHOUT_PASS)
    assert CONVERSIONS & found.operators()
    assert "ConvInteger" not in found.operators()


def test_every_engine_gives_the_same_numbers(both, tmp_path):
    found = both(RESIDUAL, opset=21)
    for optimized in (True, False):
        given = executed(found.integers, found.feeds, tmp_path, optimized)
        assert np.array_equal(given["y"], found.expected["y"])
    assert np.array_equal(found.integers.run(found.feeds)["y"], found.expected["y"])
    reference = onnx.reference.ReferenceEvaluator(proto_of(found.integers, tmp_path))
    assert np.array_equal(reference.run(None, found.feeds)[0], found.expected["y"])


def test_values_for_other_backends_leave_as_floats(both):
    found = both('s = Sigmoid (x) e = Einsum <equation = "nchw->nhwc"> (s) y = Relu (e)')
    nodes = {node.name: node for node in found.integers.model.graph}
    reader = nodes["e"].inputs[0].producer()
    assert (reader.op_type, get_placement(reader).backend) == ("DequantizeLinear", "host")
    assert not CONVERSIONS & found.operators()
    found.agrees()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Softmax (x)", "Softmax has no definition in integers"),
        ('Resize <mode = "linear"> (x, , scales) | float[4] scales = {1, 1, 2, 2}', "its mode is linear"),
    ],
)
def test_what_has_no_definition_computes_floats_and_says_so(text, why, both):
    found = both(text)
    assert found.operators() >= {"DequantizeLinear"}
    assert_left_in_floats(found.integers, why)


def assert_left_in_floats(result, why):
    (remark,) = [remark for remark in result.remarks if remark.rule == "computed-in-floats"]
    assert (remark.kind, remark.node) == ("missed", "y")
    assert remark.why == f"it computes floats between integers: {why}"


@pytest.mark.parametrize(
    ("text", "before", "after", "why"),
    [
        (
            "Conv (x, w, b) | float[3,4,3,3] w, float[3] b",
            "B: b, Y: [a, tail]}, fuses",
            "B: float32, Y: [a, tail]}, fuses",
            "its bias is not in integers",
        ),
        (
            "Neg (x)",
            "a: {dtype: int8, scheme: symmetric}",
            "a: {dtype: int8, scheme: symmetric, granularity: channel, axis: 1}",
            "'y_int8' has a scale per channel",
        ),
    ],
)
def test_formats_that_integer_operators_do_not_take_compute_floats(text, before, after, why, plugins_in_integers):
    proto = model_of(text)
    data = {"x": np.random.default_rng(0).standard_normal((2, 4, 6, 7)).astype(np.float32)}
    plugins = plugins_in_integers(file_for("int8", (before, after)))
    assert_left_in_floats(dovetail.compile(proto, "npu", data=data, plugins=plugins), why)


TWO_OBSERVERS = (
    "  Add, Sub, Sum, Mul: {types: a, fuses: [Relu, Clip]}",
    """\
  Add, Sub, Sum: {types: a, fuses: [Relu, Clip]}
  Mul: {types: {A: other, B: other, C: a}}""",
)
OTHER = (
    "types:\n  a:",
    "types:\n  other: {dtype: int8, scheme: symmetric, observer: {name: percentile, percentile: 90}}\n  a:",
)


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("format_", FORMATS)
def test_one_value_in_two_scales_is_quantized_again_from_integers(format_, both):
    found = both("s = Tanh (x) n = Neg (s) m = Mul (s, s) y = Add (n, m)", IMAGE, format_, TWO_OBSERVERS, OTHER)
    assert len({entry["scale"] for entry in found.integers.plan.values["s"]}) == 2
    assert not CONVERSIONS & found.operators()
    found.agrees()


def test_a_bias_beyond_the_sums_of_int32_is_added_exactly(both):
    proto = model_of("Conv (x, w, b) | float[3,4,3,3] w, float[3] b")
    for tensor in proto.graph.initializer:
        factor = np.float32(1e-4 if tensor.name == "w" else 3e3)
        array = onnx.numpy_helper.to_array(tensor) * factor
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    for changes in ((), (("Y: [a, tail]", "Y: [tail, a]"),)):
        found = both(proto, IMAGE, "int8", *changes)
        biases = [
            array
            for array in map(onnx.numpy_helper.to_array, found.between.graph.initializer)
            if array.dtype == np.int32
        ]
        assert np.abs(biases[0].astype(np.int64)).max() > 1 << 30
        assert not CONVERSIONS & found.operators()
        found.agrees()


def test_sums_that_may_leave_int32_compute_floats(both):
    proto = model_of("MatMul (x, w) | float[140000,1] w", "float[1,140000] x")
    remarks = both(proto).integers.remarks
    assert any("a sum of 140000 products may be too large for int32" in remark.why for remark in remarks)


def test_a_replayed_plan_gives_the_same_integers(both, plugins_in_integers, tmp_path):
    found = both(RESIDUAL)
    again = dovetail.compile(
        model_of(RESIDUAL), plan=found.integers.plan, plugins=plugins_in_integers(file_for("int8"))
    )
    assert "ConvInteger" in {node.op_type for node in again.model.graph}
    assert np.array_equal(executed(again, found.feeds, tmp_path)["y"], found.expected["y"])


def test_refined_weights_are_those_of_the_integers(both):
    found = both(RESIDUAL, refine="bias,rounding,equalize")
    assert not CONVERSIONS & found.operators()
    found.agrees()


def test_layers_are_those_of_the_form_between_conversions(plugins_in_integers):
    proto = model_of(
        f"a = Conv <pads = [1,1,1,1]> (x, w, b) r = Relu (a) p = MaxPool <kernel_shape = [2,2]> (r) "
        f"s = Sigmoid (p) y = Softmax (s) | {CONV}"
    )
    data = {"x": np.random.default_rng(0).standard_normal((2, 4, 6, 7)).astype(np.float32)}
    listed = []
    for dropped in (False, True):
        result = dovetail.compile(proto, "npu", data=data, plugins=plugins_in_integers(file_for("int8"), dropped))
        found = dovetail.layer_errors(proto, result, data, plugins=plugins_in_integers(file_for("int8"), dropped))
        listed.append({layer.node: layer for layer in found.layers})
    integers, between = listed
    between["a"] = between.pop("r")  # computed together with the convolution, which has no result of its own
    assert integers.keys() == between.keys()
    for name, layer in integers.items():
        other = between[name]
        assert layer.backend == other.backend
        assert layer.accumulated.snr_db == pytest.approx(other.accumulated.snr_db, abs=0.5)
        assert (layer.alone is None) == (other.alone is None)
    assert integers["a"].operator == "Conv"
    assert integers["a"].alone.snr_db == pytest.approx(between["a"].accumulated.snr_db, abs=0.5)


def random_graph(rng):
    """A graph of up to sixteen operators; weights stand behind a bar."""
    same, lines, weights = ["x"], [], []
    for number in range(rng.integers(6, 16)):
        one, other = (same[rng.integers(len(same))] for _ in range(2))
        v = f"v{number}"
        kind = rng.integers(13)
        if kind <= 2:
            weights += [f"float[4,{4 if kind else 1},3,3] w{number}", f"float[4] b{number}"]
            group = "" if kind else ", group = 4"
            lines.append(f"h{number} = Conv <pads = [1,1,1,1]{group}> ({one}, w{number}, b{number})")
            lines.append(f"{v} = {rng.choice(['Relu', 'Tanh', 'Identity'])} (h{number})")
        elif kind == 3:
            lines.append(f"{v} = {rng.choice(['Add', 'Sub', 'Mul', 'Max', 'Min'])} ({one}, {other})")
        elif kind == 4:
            lines.append(
                f"{v} = {rng.choice(['Sigmoid', 'LeakyRelu', 'HardSigmoid', 'Abs', 'Neg', 'Softplus'])} ({one})"
            )
        elif kind == 5:
            lines.append(f"{v} = MaxPool <kernel_shape = [3,3], pads = [1,1,1,1]> ({one})")
        elif kind == 6:
            counted = rng.integers(2)
            lines.append(
                f"{v} = AveragePool <kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = {counted}> ({one})"
            )
        elif kind == 7:
            weights += [f"float[4,8,1,1] w{number}"]
            lines.append(f"c{number} = Concat <axis = 1> ({one}, {other})")
            lines.append(f"{v} = Conv (c{number}, w{number})")
        elif kind == 8:
            lines.append(f"p{number}, q{number} = Split <axis = 1> ({one})")
            lines.append(f"{v} = Concat <axis = 1> (q{number}, p{number})")
        elif kind == 9:
            lines.append(f"m{number} = {rng.choice(['GlobalAveragePool', 'GlobalMaxPool'])} ({one})")
            lines.append(f"{v} = Mul (m{number}, {other})")
        elif kind == 10:
            lines.append(f"t{number} = Transpose <perm = [0,1,3,2]> ({one})")
            lines.append(f"k{number} = MatMul ({one}, t{number})")
            lines.append(f"{v} = MatMul (k{number}, {other})")
        elif kind == 11:
            lines.append(f"g{number} = Sum ({one}, {other}, {one})")
            lines.append(f"{v} = Clip (g{number}, low, high)")
        else:
            lines.append(f"e{number} = ReduceMean <axes = [1], keepdims = 1> ({one})")
            lines.append(f"{v} = Sub ({other}, e{number})")
        same.append(v)
    lines.append(f"y = Add ({same[-1]}, {same[-2]})")
    weights += ["float low = {-0.5}", "float high = {2}"]
    return f"{' '.join(lines)} | {', '.join(weights)}"


@pytest.mark.generated
@pytest.mark.parametrize("seed", range(120 if os.environ.get("DOVETAIL_SLOW") == "1" else 16))
def test_random_graphs_compute_the_integers_of_the_reference(seed, both):
    rng = np.random.default_rng(seed)
    found = both(random_graph(rng), IMAGE, list(FORMATS)[seed % 4])
    assert not CONVERSIONS & found.operators()
    found.agrees()


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("march", ["bernoulli2", "bayes"])
def test_digits_on_the_bpu_are_those_of_the_reference(march, tmp_path):
    from dovetail.plugin import load_plugins

    samples = np.load("examples/digits/test.npz")
    data, feeds = {"image": samples["image"][:80]}, {"image": samples["image"][80:88]}
    results = []
    for dropped in (True, False):
        plugins = load_plugins()
        if dropped:
            plugins.registry.pass_.drop("integer-arithmetic")
        results.append(
            dovetail.compile(
                "examples/digits/digits.onnx", f"bpu-int8:march={march}", data=data, plugins=plugins,
                fix_shapes={"image": [8, 1, 8, 8]},
            )
        )  # fmt: skip
    between, integers = results
    proto = proto_of(between, tmp_path)
    expected = run(proto, feeds)["probabilities"]
    # Softmax computes floats on the host, in float32 here and there.
    assert np.allclose(integers.run(feeds)["probabilities"], expected, atol=1e-6)
    (read,) = [node.input[0] for node in proto.graph.node if node.op_type == "Softmax"]
    del proto.graph.output[:]
    proto.graph.output.add(name=read)
    graph = integers.model.graph
    graph.outputs[:] = [node.inputs[0] for node in graph if node.op_type == "Softmax"]
    (found,) = executed(integers, feeds, tmp_path).values()
    assert np.array_equal(found, run(proto, feeds)[read])
    snr = [result.verification.outputs[0].snr_db for result in results]
    assert snr[1] > snr[0] - 0.5


def test_the_bpu_computes_floats_between_conversions_where_asked():
    proto = model_of("Conv <pads = [1,1,1,1]> (x, w, b) | float[4,4,3,3] w, float[4] b")
    data = {"x": np.random.default_rng(0).standard_normal((2, 4, 6, 7)).astype(np.float32)}
    for backend, operator in (("bpu-int8", "ConvInteger"), ("bpu-int8:arithmetic=floats", "Conv")):
        result = dovetail.compile(proto, backend, data=data, verify=False)
        assert operator in {node.op_type for node in result.model.graph}


def test_both_is_not_blind(both, monkeypatch):
    """The comparison fails where an integer is off by one."""
    found = both("Relu (x)")
    found.given["y"] = np.nextafter(found.given["y"], np.float32(9))
    with pytest.raises(AssertionError, match="differ"):
        found.agrees()
