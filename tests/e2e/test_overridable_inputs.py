"""Inputs with a default, given by data: everything computes with what is given, and nothing is folded into it."""

import dovetail
import numpy as np
import onnxruntime
import pytest
from dovetail.errors import DovetailError
from onnx import TensorProto, helper, numpy_helper, save

RANDOM = np.random.default_rng(0)
HIDDEN = 8


def numbers(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def model(nodes, inputs, outputs, constants):
    values = [
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in side] for side in (inputs, outputs)
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "net", *values, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def branch(operator, name):
    made = [helper.make_node(operator, ["x", "s"], [name], f"{name} node")]
    return helper.make_graph(made, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8])])


F, B = TensorProto.FLOAT, TensorProto.BOOL
NETS = {
    "states of an LSTM": (
        model(
            [
                helper.make_node("LSTM", ["x", "w", "r", "b", "", "h0", "c0"], ["y", "yh"], "lstm", hidden_size=HIDDEN),
                helper.make_node("Squeeze", ["y", "one"], ["s"], "squeeze"),
                helper.make_node("MatMul", ["s", "wo"], ["o"], "product"),
            ],
            [("x", F, [5, 2, 4]), ("h0", F, [1, 2, HIDDEN]), ("c0", F, [1, 2, HIDDEN])],
            [("o", F, [5, 2, 3]), ("yh", F, [1, 2, HIDDEN])],
            {
                "w": numbers(1, 4 * HIDDEN, 4), "r": numbers(1, 4 * HIDDEN, HIDDEN), "b": numbers(1, 8 * HIDDEN),
                "h0": np.zeros((1, 2, HIDDEN), np.float32), "c0": np.zeros((1, 2, HIDDEN), np.float32),
                "one": np.array([1]), "wo": numbers(HIDDEN, 3),
            },
        ),
        {"x": numbers(5, 2, 4), "h0": numbers(1, 2, HIDDEN), "c0": numbers(1, 2, HIDDEN)},
    ),
    "weights of a product, and a scale whose default has other extents": (
        model(
            [
                helper.make_node("MatMul", ["x", "w"], ["a"], "product"),
                helper.make_node("Mul", ["a", "s"], ["b"], "scaled"),
                helper.make_node("MatMul", ["b", "w2"], ["y"], "second"),
            ],
            [("x", F, ["N", 8]), ("w", F, [8, 8]), ("s", F, ["M", 8])],
            [("y", F, ["N", 4])],
            {"w": np.eye(8, dtype=np.float32), "s": np.ones((1, 8), np.float32), "w2": numbers(8, 4)},
        ),
        {"x": numbers(8, 8), "w": numbers(8, 8), "s": numbers(8, 8)},
    ),
    "kernel, bias, normalization and a shape": (
        model(
            [
                helper.make_node("Conv", ["x", "k", "kb"], ["a"], "conv", pads=[1, 1, 1, 1]),
                helper.make_node("BatchNormalization", ["a", "g", "be", "me", "va"], ["b"], "norm"),
                helper.make_node("Reshape", ["b", "shape"], ["y"], "reshape"),
            ],
            [("x", F, [1, 3, 6, 6]), ("k", F, [4, 3, 3, 3]), ("kb", F, [4]), ("g", F, [4]),
             ("shape", TensorProto.INT64, [2])],
            [("y", F, ["P", "Q"])],
            {
                "k": numbers(4, 3, 3, 3), "kb": numbers(4), "g": np.ones(4, np.float32), "be": numbers(4),
                "me": numbers(4), "va": np.abs(numbers(4)) + 1, "shape": np.array([1, -1]),
            },
        ),
        {"x": numbers(1, 3, 6, 6), "k": numbers(4, 3, 3, 3), "kb": numbers(4), "g": numbers(4),
         "shape": np.array([4, -1])},
    ),
    "a condition, and what bodies capture": (
        model(
            [
                helper.make_node(
                    "If", ["c"], ["i"], "if", then_branch=branch("Mul", "t"), else_branch=branch("Add", "e")
                ),
                helper.make_node("MatMul", ["i", "w"], ["y"], "product"),
            ],
            [("x", F, [4, 8]), ("c", B, []), ("s", F, [8])],
            [("y", F, [4, 8])],
            {"c": np.array(True), "s": np.ones(8, np.float32), "w": numbers(8, 8)},
        ),
        {"x": numbers(4, 8), "c": np.array(False), "s": numbers(8)},
    ),
    "a scale of the source's own quantization, an output, and one that nothing reads": (
        model(
            [
                helper.make_node("QuantizeLinear", ["x", "sc", "zp"], ["q"], "quantize"),
                helper.make_node("DequantizeLinear", ["q", "sc", "zp"], ["d"], "dequantize"),
                helper.make_node("MatMul", ["d", "w"], ["a"], "product"),
                helper.make_node("Add", ["a", "bias"], ["y"], "biased"),
                helper.make_node("Identity", ["bias"], ["z"], "copy"),
            ],
            [("x", F, [4, 8]), ("sc", F, []), ("bias", F, [8]), ("unused", F, [3])],
            [("y", F, [4, 8]), ("z", F, [8])],
            {
                "sc": np.array(0.02, np.float32), "zp": np.array(0, np.int8), "w": numbers(8, 8),
                "bias": np.zeros(8, np.float32), "unused": numbers(3),
            },
        ),
        {"x": numbers(4, 8), "sc": np.array(0.05, np.float32), "bias": numbers(8), "unused": numbers(3)},
    ),
}  # fmt: skip


def by_onnxruntime(proto, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds)))


def decibels(expected, given):
    signal, noise = (np.square(part.astype(float)).sum() for part in (expected, expected.astype(float) - given))
    return 10 * np.log10(signal / noise) if noise else np.inf


def decibels_of(result, proto, feeds):
    expected, given = by_onnxruntime(proto, feeds), result.run(feeds)
    assert all(given[name].shape == array.shape for name, array in expected.items())
    return min(decibels(array, given[name]) for name, array in expected.items())


@pytest.mark.generated
@pytest.mark.parametrize("backend", ["cpu-bf16", "gpu-fp16", "cpu-int8", "ppl-int8"])
@pytest.mark.parametrize("name", NETS)
def test_a_result_computes_with_what_is_given_and_with_the_defaults(name, backend):
    proto, feeds = NETS[name]
    needed = {value.name for value in proto.graph.input} - {tensor.name for tensor in proto.graph.initializer}
    result = dovetail.compile(proto, backend, data=feeds)
    assert decibels_of(result, proto, feeds) > 25
    if backend != "cpu-int8":  # its scales are of what was given
        assert decibels_of(result, proto, {key: feeds[key] for key in needed}) > 25
    one = next(key for key in feeds if key not in needed)
    assert decibels_of(result, proto, {key: feeds[key] for key in {*needed, one}}) > (
        25 if backend != "cpu-int8" else 8
    )


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("name", NETS)
def test_verification_measures_on_what_is_given(name):
    proto, feeds = NETS[name]
    result = dovetail.compile(proto, "cpu-bf16", data=feeds)
    (worst,) = [min(o.snr_db for o in result.verification.outputs if o.snr_db is not None)]
    assert worst == pytest.approx(decibels_of(result, proto, feeds), abs=0.5)


@pytest.mark.slow
def test_tools_that_take_a_model_apart_compute_with_what_is_given(fp16):
    proto, feeds = NETS["kernel, bias, normalization and a shape"]
    result = dovetail.compile(proto, "test-fp16", data=feeds, plugins=fp16)
    found = dovetail.layer_errors(proto, result, feeds, plugins=fp16)
    assert {layer.node: layer.alone.snr_db > 40 for layer in found.layers if layer.alone is not None} == {"conv": True}
    reduced = dovetail.reduce(proto, "test-fp16", data=feeds, min_snr=100, plugins=fp16)
    assert reduced.nodes == ["conv"] and {"k", "kb"} <= reduced.feeds.keys()


def test_a_session_takes_the_feeds_that_onnxruntime_takes():
    proto, feeds = NETS["states of an LSTM"]
    native = onnxruntime.InferenceSession(proto.SerializeToString())
    session = dovetail.InferenceSession(proto, backend="cpu-bf16")
    for names in ("get_inputs", "get_overridable_initializers"):
        assert [one.name for one in getattr(session, names)()] == [one.name for one in getattr(native, names)()]
    for given in ({"x"}, {"x", "h0"}, {"x", "c0"}, {"x", "h0", "c0"}):
        some = {name: feeds[name] for name in given}
        assert all(
            decibels(expected, found) > 35 for expected, found in zip(native.run(None, some), session.run(None, some))
        )


def test_data_in_files_and_tuples(tmp_path):
    proto, feeds = NETS["states of an LSTM"]
    (tmp_path / "files").mkdir()
    for name, array in feeds.items():
        np.save(tmp_path / "files" / f"{name}.npy", array)
    result = dovetail.compile(proto, "cpu-bf16")
    expected = result.run(feeds)
    for data in (tmp_path / "files", [tuple(feeds[name] for name in ("x", "h0", "c0"))], [feeds]):
        given = result.run_on(data)
        assert all((given[name] == expected[name]).all() for name in expected)
    alone = result.run({"x": feeds["x"]})
    assert all((result.run_on([(feeds["x"],)])[name] == alone[name]).all() for name in alone)


def test_an_unknown_name_is_an_error_that_knows_inputs_with_a_default():
    proto, feeds = NETS["states of an LSTM"]
    with pytest.raises(DovetailError, match="the model has no input 'h'") as caught:
        dovetail.compile(proto, "cpu-bf16", data={**feeds, "h": feeds["h0"]})
    assert "h0" in caught.value.hint


def test_frozen_they_cannot_be_given():
    proto, feeds = NETS["states of an LSTM"]
    with pytest.raises(DovetailError, match="'h0' is a constant of this model") as caught:
        dovetail.compile(proto, "cpu-bf16", data=feeds, freeze_inputs=True)
    assert "--freeze-inputs" in caught.value.hint


def test_the_command(tmp_path, capsys):
    from dovetail.cli.main import main

    proto, feeds = NETS["states of an LSTM"]
    save(proto, tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", **feeds)
    data = ["--data", str(tmp_path / "d.npz")]
    words = [str(tmp_path / "m.onnx"), "--backend", "cpu-bf16", *data, "-o", str(tmp_path / "out")]
    assert main(["compile", *words]) == 0
    assert (
        main(["run", str(tmp_path / "out"), *data, "-o", str(tmp_path / "y.npz"), "--trace", str(tmp_path / "t")]) == 0
    )
    given = dict(np.load(tmp_path / "y.npz"))
    assert all(decibels(array, given[name]) > 35 for name, array in by_onnxruntime(proto, feeds).items())
