"""The error of every node of a result: alone on exact inputs, accumulated, and at the outputs of the model."""

import contextlib
import functools
import io
import json
import math

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError, UsageError, VerificationError
from dovetail_runtime.processor import has_bfloat16
from dovetail_verify.accuracy.per_node_errors import ErrorSums

FILE = """
backend: npu
device: npu
opset: 13..26
precision: {low: int8, high: float32}
types:
  q8: {dtype: int8, scheme: symmetric}
  w8: {dtype: int8, scheme: symmetric, granularity: channel, axis: 0}
  b32: {dtype: int32, scale: X*W}
ops:
  Conv: {role: active, types: {X: q8, W: w8, B: b32, Y: q8}}
  Relu, MaxPool: {role: passive, types: q8, same_scale: true}
  Add: {role: active, types: {A: q8, B: q8, C: q8}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""

NET = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,4,8,8] x) => (float[1,4,4,4] y) <float[4,4,3,3] w1, float[4] b1, float[4,4,3,3] w2, float[4] b2> {
  [conv1] a = Conv <pads = [1,1,1,1]> (x, w1, b1)
  [relu] r = Relu (a)
  [pool] p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)
  [conv2] c = Conv <pads = [1,1,1,1]> (p, w2, b2)
  [add] s = Add (p, c)
  [out] y = Tanh (s)
}"""
DIGITS, SAMPLES = "examples/digits/digits.onnx", "examples/digits/test.npz"


def net(text=NET):
    """A net in ONNX text whose weights are small normal numbers."""
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(text)
    for value in list(proto.graph.value_info):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = (rng.standard_normal(shape) * 0.3).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        proto.graph.value_info.remove(value)
    return proto


@pytest.fixture(scope="module")
def samples():
    return {"x": np.random.default_rng(1).standard_normal((16, 4, 8, 8)).astype(np.float32)}


@pytest.fixture(scope="module")
def plugins(with_backend_of_module):
    return with_backend_of_module(FILE)


@pytest.fixture(scope="module")
def analyzed(plugins, samples):
    """Compile a net, once for all tests, and look at its layers."""

    @functools.cache
    def compiled_from(source, backend):
        model = dovetail.open(source, plugins)
        data = SAMPLES if source == DIGITS else samples
        compiled = dovetail.compile(model, backend, data=data, plugins=plugins, verify=False)
        compiled.verification = dovetail.verify(
            model, compiled, data, plugins=plugins
        )  # on what layers are measured on
        return model, data, compiled

    def make(source, backend="npu", **options):
        model, data, compiled = compiled_from(source if source == DIGITS else source.SerializeToString(), backend)
        return compiled, dovetail.layer_errors(model, compiled, data, plugins=plugins, **options)

    return make


def by_name(errors):
    return {layer.node: layer for layer in errors.layers}


def exact_values(proto, x):
    """All values of a model on one sample."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    names = [output for node in proto.graph.node for output in node.output]
    copy.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names if name != "y")
    session = onnxruntime.InferenceSession(copy.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, {"x": x}))) | {"x": x}


def snr(exact, given):
    exact, given = np.concatenate(exact).astype(np.float64), np.concatenate(given).astype(np.float64)
    return 10 * math.log10(np.sum(exact**2) / np.sum((given - exact) ** 2))


def test_a_node_alone_is_measured_on_exact_inputs(analyzed, samples):
    """What a Conv in int8 does to exact inputs, computed by hand: everything rounded to the scales of the plan."""
    proto = net()
    compiled, errors = analyzed(proto)
    scales = {name: compiled.plan.values[name][0]["scale"] for name in ("x", "a")}

    def rounded(array, scale):
        return np.clip(np.rint(array / scale), -127, 127) * scale

    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    first = NET[: NET.index("  [relu]")] + "}"
    alone = net(first.replace("a = Conv", "y = Conv").replace("[1,4,4,4] y", "[1,4,8,8] y"))
    del alone.graph.initializer[:]
    for name in ("w1", "b1"):
        array = weights[name]
        if name == "w1":
            array = rounded(array, np.abs(array).max(axis=(1, 2, 3), keepdims=True) / 127)
        alone.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    session = onnxruntime.InferenceSession(alone.SerializeToString(), providers=["CPUExecutionProvider"])
    exact, given = [], []
    for row in samples["x"]:
        exact.append(exact_values(proto, row[None])["a"].ravel())
        (result,) = session.run(None, {"x": rounded(row[None], scales["x"]).astype(np.float32)})
        given.append(rounded(result, scales["a"]).ravel())
    assert by_name(errors)["conv1"].alone.snr_db == pytest.approx(snr(exact, given), abs=0.05)


def test_errors_accumulate_up_to_the_outputs(analyzed):
    compiled, errors = analyzed(net())
    (output,) = compiled.verification.outputs
    last = by_name(errors)["out"]
    assert last.accumulated.snr_db == pytest.approx(output.snr_db, abs=0.1)
    assert last.accumulated.cosine == pytest.approx(output.cosine, abs=1e-5)
    assert last.alone is None, "Tanh is computed in float32"
    assert all(layer.accumulated.snr_db <= layer.alone.snr_db + 1 for layer in errors.layers if layer.alone)


def test_nodes_that_only_move_numbers_follow_the_one_before(analyzed):
    _, errors = analyzed(net())
    assert {layer.node: layer.moving for layer in errors.layers} == {
        "conv1": ("relu", "pool"),
        "conv2": (),
        "add": (),
        "out": (),
    }


def is_as_predicted(measured, predicted, tolerance, backend):
    """Errors are those of the plan. A CPU without bfloat16 computes in float32, which is nearer to the original."""
    if backend == "cpu-bf16" and has_bfloat16() is False:
        return measured > predicted - tolerance
    return measured == pytest.approx(predicted, abs=tolerance)


@pytest.mark.processor
@pytest.mark.slow
@pytest.mark.parametrize(("backend", "tolerance"), [("npu", 1), ("cpu-bf16", 6)])
def test_the_effect_at_the_outputs_is_that_of_a_result_with_nothing_else_low(plugins, analyzed, backend, tolerance):
    """Measured against compilations with everything else high; an engine rounds elsewhere than the host does."""
    compiled, errors = analyzed(DIGITS, backend)
    low = [layer for layer in errors.layers if layer.alone]
    assert len(low) >= 3
    names = {node.name for node in compiled.plan.nodes}
    for layer in low[:3]:
        high = sorted(names - {layer.node, *layer.moving})
        alone = dovetail.compile(DIGITS, backend, data=SAMPLES, high=[f"name:{name}" for name in high], plugins=plugins)
        found = dovetail.verify(DIGITS, alone, SAMPLES, plugins=plugins)  # on all samples, as the layers are
        assert is_as_predicted(found.worst_snr_db, layer.at_outputs, tolerance, backend)


@pytest.mark.slow
@pytest.mark.processor
def test_results_in_bfloat16_have_layers_too(analyzed):
    compiled, errors = analyzed(DIGITS, "cpu-bf16")
    found = by_name(errors)
    assert found["conv_2"].precision == "bfloat16" and found["conv_2"].moving == ("relu_2", "pool_1")
    assert 40 < found["conv_2"].alone.snr_db < 60
    assert is_as_predicted(compiled.verification.worst_snr_db, found["softmax_1"].accumulated.snr_db, 1, "cpu-bf16")


@pytest.mark.parametrize(
    ("by", "figure"),
    [
        ("accumulated", lambda layer: layer.accumulated.snr_db),
        ("alone", lambda layer: layer.alone.snr_db if layer.alone else math.inf),
        ("outputs", lambda layer: math.inf if layer.at_outputs is None else layer.at_outputs),
        ("cosine", lambda layer: layer.accumulated.cosine),
        ("mse", lambda layer: -layer.accumulated.mse),
    ],
)
def test_the_worst_comes_first(analyzed, by, figure):
    _, errors = analyzed(net(), by=by)
    figures = [figure(layer) for layer in errors.layers]
    assert figures == sorted(figures) and len(set(figures)) > 1


def test_only_so_many_nodes_are_measured_at_the_outputs(analyzed):
    _, errors = analyzed(net(), outputs=1)
    measured = [layer for layer in errors.layers if layer.at_outputs is not None]
    assert measured == [max((layer for layer in errors.layers if layer.alone), key=lambda layer: layer.alone.share)]


def test_every_sample_counts_and_batches_add_up(analyzed, samples):
    """The figures of all samples are those of the sums over parts of them."""
    _, whole = analyzed(net())
    assert whole.batches == 16
    proto = net()
    model = dovetail.open(proto)
    sums = ErrorSums()
    for row in samples["x"]:
        values = exact_values(proto, row[None])
        sums.add(values["y"], values["y"] + 0.01)
    assert sums.elements == by_name(whole)["out"].accumulated.elements
    assert sums.mse == pytest.approx(1e-4, rel=1e-4) and model is not None


def test_a_result_that_lost_its_numbers(analyzed, samples):
    """An infinite result is broken, and first."""
    text = NET.replace("[out] y = Tanh (s)", "[square] q = Mul (s, s)  [cube] k = Mul (q, s)  [root] y = Sqrt (k)")
    text = text.replace("float[1,4,4,4] y", "float[1,4,4,4] y")
    _, errors = analyzed(net(text.replace("[root] y = Sqrt (k)", "[root] y = Log (k)")))
    assert errors.layers[0].node == "root", "logarithms of rounded zeros and negative numbers"
    assert errors.layers[0].accumulated.snr_db < 20
    json.dumps(errors.as_dict(), allow_nan=False)


def test_bodies_count_as_one_node(analyzed):
    """A loop is one layer; nothing inside of it is looked at."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,3,3] w1, float[4] b1> {
      [conv1] a = Conv <pads = [1,1,1,1]> (x, w1, b1)
      [trips] n = Constant <value = int64 {3}> ()
      [yes] c = Constant <value = bool {1}> ()
      [loop] y = Loop (n, c, a) <body = b (int64 i, bool k, float[1,4,8,8] v) => (bool o, float[1,4,8,8] w)
        { o = Identity (k)  w = Tanh (v) }>
    }"""
    _, errors = analyzed(net(text), "cpu-bf16")
    assert {"conv1", "loop"} >= {layer.node for layer in errors.layers} >= {"loop"}


def test_no_data(plugins):
    compiled = dovetail.compile(DIGITS, "cpu-bf16", plugins=plugins)
    with pytest.raises(UsageError, match="there is no data to look at layers with"):
        dovetail.layer_errors(DIGITS, compiled, None, plugins=plugins)
    with pytest.raises(DovetailError, match="holds no batch"):
        dovetail.layer_errors(DIGITS, compiled, [], plugins=plugins)
    with pytest.raises(UsageError, match="there is no data to look at layers with"):
        dovetail.compile(DIGITS, "cpu-bf16", layers=True, plugins=plugins)


def test_another_model(plugins, samples):
    compiled = dovetail.compile(DIGITS, "cpu-bf16", plugins=plugins)
    with pytest.raises(DovetailError, match="no node of the result is in the original"):
        dovetail.layer_errors(net(), compiled, samples, plugins=plugins)


def test_what_is_no_result(plugins, samples):
    with pytest.raises(UsageError, match="is no result of a compilation"):
        dovetail.layer_errors(DIGITS, DIGITS, SAMPLES, plugins=plugins)


def test_an_order_that_does_not_exist(plugins):
    compiled = dovetail.compile(DIGITS, "cpu-bf16", plugins=plugins)
    with pytest.raises(UsageError, match="ranked by 'cosin'.*did you mean 'cosine'"):
        dovetail.layer_errors(DIGITS, compiled, SAMPLES, by="cosin", plugins=plugins)


def test_channels_that_were_rescaled(plugins, samples):
    """Values between the layers have other scales then, which is no error."""
    chain = NET.replace("[add] s = Add (p, c)", "[add] s = Add (c, c)")
    compiled = dovetail.compile(net(chain), "npu", data=samples, plugins=plugins, refine="equalize,bias")
    assert compiled.plan.summary["refined"]["changed"]["equalize"]
    with pytest.raises(DovetailError, match="'equalize' gave channels other scales") as caught:
        dovetail.layer_errors(net(chain), compiled, samples, plugins=plugins)
    assert "--refine bias" in caught.value.hint
    refined = dovetail.compile(net(chain), "npu", data=samples, plugins=plugins, refine="bias")
    assert dovetail.layer_errors(net(chain), refined, samples, plugins=plugins).layers


def test_a_backend_that_is_gone(plugins, samples):
    compiled = dovetail.compile(net(), "npu", data=samples, plugins=plugins)
    with pytest.raises(DovetailError, match="compiled for the backend 'npu', which is not installed"):
        dovetail.layer_errors(net(), compiled, samples)


def test_a_model_that_cannot_run(plugins, samples):
    """The message is that of the engine, and the result is kept."""
    text = NET.replace("[out] y = Tanh (s)", "[grow] z = Reshape (s, t)  [out] y = Tanh (z)")
    text = text.replace("float[4] b2>", "float[4] b2, int64[1] t = {7}>").replace("float[1,4,4,4] y", "float[A] y")
    compiled = dovetail.compile(net(text), "cpu-bf16", plugins=plugins, try_engines=False)
    with pytest.raises(DovetailError, match="grow"):
        dovetail.layer_errors(net(text), compiled, samples, plugins=plugins)
    kept = []
    with pytest.raises(VerificationError):
        dovetail.compile(
            net(text), "cpu-bf16", data=samples, layers=True, plugins=plugins, try_engines=False, keep=kept.append
        )
    assert len(kept) == 1


@pytest.fixture(scope="module")
def compiled_with_layers(tmp_path_factory):
    """A folder with a result whose plan has the figures of its layers, and what the command printed."""
    out = tmp_path_factory.mktemp("layers") / "out"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["compile", DIGITS, "--backend", "cpu-bf16", "--data", SAMPLES, "--layers", "-o", str(out)]) == 0
    return out, printed.getvalue()


@pytest.fixture
def saved(compiled_with_layers):
    """The folder; tests only read it."""
    return compiled_with_layers[0]


def test_compile_prints_the_worst_layer(compiled_with_layers):
    assert "worst layer by accumulated: 'conv_3' (Conv): SNR " in compiled_with_layers[1]


def test_compile_writes_the_ranking_into_the_plan(saved, capsys):
    plan = dovetail.load(saved).plan
    assert plan.summary["layers"]["by"] == "accumulated" and plan.summary["layers"]["batches"] == 11, "of what judges"
    assert [row["node"] for row in plan.summary["layers"]["layers"]][:2] == ["conv_3", "dense_2"]
    assert main(["explain", str(saved), "conv_3"]) == 0
    said = capsys.readouterr().out
    assert "dB alone on exact inputs" in said and "number 1 of 6 layers by accumulated" in said
    assert main(["explain", str(saved), "relu_3"]) == 0
    assert "it moves the numbers of 'conv_3': SNR" in capsys.readouterr().out


def test_the_same_request_is_recognized_with_its_layers(saved, tmp_path, capsys):
    again = ["compile", str(saved / "model.onnx"), "--backend", "cpu-bf16", "--data", SAMPLES, "--layers"]
    assert main([*again, "-o", str(tmp_path / "b")]) == 0
    assert dovetail.load(tmp_path / "b").plan.summary["layers"] == dovetail.load(saved).plan.summary["layers"]


@pytest.mark.slow
def test_the_command_shows_the_worst(saved, capsys):
    command = ["verify", DIGITS, str(saved), "--data", SAMPLES, "--layers"]
    assert main([*command, "--top", "2", "--by", "alone"]) == 0
    out = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in out if line[:1] in ("1", "2")][:2]
    assert [row[:3] for row in rows] == [["1", "conv_3", "Conv"], ["2", "conv_2", "Conv"]]
    assert "2 layers of 6, worst first by alone, on 6 batches; 4 more with --top" in out
    assert out[-1].startswith("note: 360 rows of 'image' are run in parts of 64")
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["layers"]
    assert document["by"] == "accumulated" and len(document["layers"]) == 6
    first = document["layers"][0]
    assert first["moving"] == ["relu_3", "pool_2", "flatten_1"] and 0.99 < first["accumulated"]["cosine"] < 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--layers"], 2, "there is no data to look at layers with"),
        (["--layers", "--data", SAMPLES, "--top", "-1"], 2, "a number from 0 is expected"),
        (["--layers", "--data", SAMPLES, "--by", "loudness"], 2, "invalid choice"),
        (["--layers", "--data", "gone.npz"], 1, "gone.npz"),
    ],
)
def test_mistakes_on_the_command_line(saved, capsys, arguments, code, says):
    try:
        found = main(["verify", DIGITS, str(saved), *arguments])
    except SystemExit as error:
        found = error.code
    assert found == code and says in capsys.readouterr().err


def test_a_source_model_that_is_gone(saved, capsys):
    assert main(["verify", "gone.onnx", str(saved), "--data", SAMPLES, "--layers"]) in (1, 2)
    assert "gone.onnx" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("exact", "given", "snr_db", "cosine", "mse"),
    [
        ([3.0, 4.0], [3.0, 4.0], math.inf, 1.0, 0.0),
        ([3.0, 4.0], [-3.0, -4.0], -10 * math.log10(4), -1.0, 50.0),
        ([3.0, 4.0], [0.0, 0.0], 0.0, 0.0, 12.5),
        ([0.0, 0.0], [0.0, 0.0], math.inf, 1.0, 0.0),
        ([0.0, 0.0], [1.0, 0.0], 0.0, 0.0, 0.5),
        ([3.0, 4.0], [4.0, -3.0], -10 * math.log10(2), 0.0, 25.0),
        ([3.0, np.inf], [3.0, np.inf], math.inf, 1.0, 0.0),
    ],
)
def test_sums(exact, given, snr_db, cosine, mse):
    sums = ErrorSums()
    sums.add(np.array(exact, np.float32), np.array(given, np.float32))
    assert sums.snr_db == pytest.approx(snr_db) and sums.cosine == pytest.approx(cosine, abs=1e-9)
    assert sums.mse == pytest.approx(mse)
