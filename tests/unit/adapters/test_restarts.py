"""A session whose result was kept starts without loading it, and computes bit by bit what the first one did."""

import json
import os
import shutil
import subprocess
import sys

import dovetail
import numpy as np
import onnx
import pytest
from dovetail import api
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail.plugin import Availability
from dovetail_adapters import opening, result_key
from dovetail_cpu_bf16.engine import OpenVinoCpu

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
GENERATOR = np.random.default_rng(0)


def tensor(*shape, dtype=np.float32):
    return GENERATOR.standard_normal(shape).astype(dtype)


NETS = {
    "open extents": (
        "g (float[N, 4] x) => (float[N, 4] y) <float[4] w> { h = Mul(x, w)  y = Softmax(h) }",
        (3, 4),
        "Softmax",
    ),
    "convolution": (
        "g (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y, float[1, 4, 1, 1] z) <float[4, 4, 3, 3] w, float[4] b> {"
        " c = Conv<pads = [1, 1, 1, 1]>(x, w, b)  s = Sigmoid(c)  y = Add(s, c)  z = GlobalAveragePool(y) }",
        (1, 4, 8, 8),
        "Sigmoid",
    ),
    "booleans and integers": (
        "g (float[N, 4] x) => (bool[N, 4] y, int64[N] z) <float[4, 4] w, float k> {"
        " h = MatMul(x, w)  y = Greater(h, k)  z = ArgMax<axis = 1, keepdims = 0>(h) }",
        (3, 4),
        "ArgMax",
    ),
    "recurrent": (
        "g (float[5, N, 4] x) => (float[5, 1, N, 4] y, float[1, N, 4] z)"
        " <float[1, 16, 4] w, float[1, 16, 4] r> { a = Tanh(x)  y, z = LSTM<hidden_size = 4>(a, w, r) }",
        (5, 2, 4),
        "Tanh",
    ),
    "half": (
        "g (float16[N, 4] x) => (float16[N, 4] y) <float[4, 4] w> {"
        " a = Cast<to = 1>(x)  h = MatMul(a, w)  s = Tanh(h)  y = Cast<to = 10>(s) }",
        (3, 4),
        "Tanh",
    ),
}
"""Nets, the shape of an input, and an operator that is computed elsewhere or otherwise."""
REQUESTS = {
    "bfloat16": {"backend": "cpu-bf16"},
    "float32 inside": {"backend": "cpu-bf16", "high": ["type:{operator}"]},
    "bfloat16 at the border": {"backend": "cpu-bf16", "keep_io_types": False},
    "integers": {"backend": "cpu-int8"},
    "with the host": {"backend": "cpu-bf16", "pins": ["type:{operator}=host"]},
    "host": {"backend": "host"},
}


@pytest.fixture
def loaded(monkeypatch):
    """What was loaded or compiled as a whole."""
    found = []

    def count(module, name):
        known = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, **keywords: (found.append(name), known(*a, **keywords))[1])

    count(api, "load")
    count(opening, "compile")
    return found


def net(tmp_path, name="open extents"):
    """Write a net; return its path and the shape of its input."""
    text, shape, _ = NETS[name]
    model = onnx.parser.parse_model(f"{HEAD} {text}")
    for value in model.graph.value_info:  # weights
        extents = [extent.dim_value for extent in value.type.tensor_type.shape.dim]
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(tensor(*extents), "f"), value.name))
    del model.graph.value_info[:]
    onnx.save(model, tmp_path / "net.onnx")
    return tmp_path / "net.onnx", shape


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def said(session):
    ports = (session.get_inputs(), session.get_outputs(), session.get_overridable_initializers())
    facts = [[(value.name, value.type, list(value.shape)) for value in values] for values in ports]
    return facts, session.get_modelmeta(), session.get_providers(), session.get_provider_options()


@pytest.mark.generated(one_of=5)
@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("name", NETS)
def test_it_computes_the_same_and_says_the_same(cache, loaded, tmp_path, name, request_):
    path, shape = net(tmp_path, name)
    operator = NETS[name][2]
    request = {
        key: [one.format(operator=operator) for one in given] if isinstance(given, list) else given
        for key, given in REQUESTS[request_].items()
    }
    if request["backend"] == "cpu-int8":
        kind = np.float16 if name == "half" else np.float32
        request["data"] = {"x": tensor(*shape, dtype=kind)}
    first = dovetail.InferenceSession(path, **request)
    loaded.clear()
    again = dovetail.InferenceSession(path, **request)
    assert said(again) == said(first)
    dtype = first.compiled.model.graph.inputs[0].dtype.numpy()
    open_axes = [axis for axis, extent in enumerate(first.get_inputs()[0].shape) if not isinstance(extent, int)]
    for extent in (3, 1, 7, 3):  # in turns, as requests keep memory of earlier shapes
        fed = {"x": tensor(*(extent if axis in open_axes else known for axis, known in enumerate(shape))).astype(dtype)}
        assert_same(first.run(None, fed), again.run(None, fed))
    assert not loaded
    assert [repr(region) for region in again.compiled.regions] == [repr(region) for region in first.compiled.regions]
    assert loaded == ["load"], "it is loaded where it is asked for"


def test_results_of_several_engines_start_too(cache, loaded, tmp_path):
    path, _ = net(tmp_path, "convolution")
    request = {"backend": "cpu-bf16", "pins": ["type:Sigmoid=host"]}
    first, again = (dovetail.InferenceSession(path, **request) for _ in range(2))
    assert {runner.engine for runner in first.compiled.regions} == {"openvino-cpu", "onnxruntime-cpu"}
    assert loaded == ["compile"]
    assert_same(*(one.run(None, {"x": np.ones((1, 4, 8, 8), np.float32)}) for one in (first, again)))


@pytest.mark.parametrize(
    "fed", [{"x": [[1, 2, 3, 4]]}, {"x": np.ones((2, 3), np.float32)}, {"x": np.ones((2, 4))}, {}, {"z": 1}]
)
def test_what_is_no_array_as_declared_goes_the_long_way(cache, tmp_path, fed):
    """Numbers are converted, and whatever cannot be has the error that the result as a whole has."""
    path, _ = net(tmp_path)
    outcomes = []
    for _ in range(2):
        try:
            outcomes.append(dovetail.InferenceSession(path, backend="cpu-bf16").run(None, fed)[0].tobytes())
        except DovetailError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


WORDS = "g (string[1, 3] x) => (float[1, 2] y, string[1, 3] z) { n = COUNTS (x)  y = MatMul (n, w)  z = Identity (x) }"
WORD_FORMS = {
    "objects": np.array([["one", "two", "two"]], object),
    "NumPy's texts": np.array([["one", "two", "two"]]),
    "bytes": np.array([[b"one", b"two", b"two"]]),
    "objects that are bytes": np.array([[b"one", b"two", b"two"]], object),
    "a list": [["one", "two", "two"]],
}


@pytest.fixture
def words(tmp_path):
    """The path of a net that counts three words, and multiplies."""
    proto = onnx.parser.parse_model(f"{HEAD} {WORDS.replace('COUNTS', 'TfIdfVectorizer')}")
    options = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0]}
    pool = {"ngram_indexes": [0, 1, 2], "pool_strings": ["one", "two", "three"]}
    for name, value in {**options, **pool}.items():
        proto.graph.node[0].attribute.append(onnx.helper.make_attribute(name, value))
    weight = np.array([[1, 2], [10, 20], [100, 200]], np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(proto, tmp_path / "words.onnx")
    return tmp_path / "words.onnx"


@pytest.mark.parametrize("backend", ["host", "cpu-bf16"])
def test_texts_are_read_alike_in_every_form(words, cache, loaded, backend):
    """Of the result as it was loaded, as it is started again, and of `CompiledModel.run`."""
    for _ in range(2):
        session = dovetail.InferenceSession(words, backend=backend)
        assert len(loaded) == 1
        for form, given in WORD_FORMS.items():
            if backend == "cpu-bf16" or form != "a list":  # ONNX Runtime alone reads no lists of lists
                numbers, texts = session.run(None, {"x": given})
                np.testing.assert_array_equal(numbers, [[21, 42]], err_msg=form)
                assert texts.tolist() == [["one", "two", "two"]]
    compiled = dovetail.compile(words, backend)
    for form, given in WORD_FORMS.items():
        np.testing.assert_array_equal(compiled.run({"x": given})["y"], [[21, 42]], err_msg=form)


def test_data_of_bytes_calibrates_as_texts_do(words):
    results = [
        dovetail.compile(words, "cpu-int8", data=[{"x": WORD_FORMS[form]}] * 4, low=["type:MatMul"])
        for form in ("objects", "bytes")
    ]
    assert results[0].plan.values == results[1].plan.values != {}


def test_bytes_that_are_no_texts_are_refused(words):
    session = dovetail.InferenceSession(words, backend="host")
    with pytest.raises(DovetailError, match="input 'x' is string, and bytes in it are not UTF-8"):
        session.run(None, {"x": np.array([[b"one", b"two", b"\xff"]])})


def record(cache):
    """Return the record of the start of the only entry, and its folder."""
    (entry,) = cache.entries()
    folder = entry.folder.with_name(f"{entry.key}-start")
    return folder / "about.json", folder / "files"


def cut(cache, ending):
    _, folder = record(cache)
    (file,) = folder.rglob(f"*{ending}")
    file.write_bytes(file.read_bytes()[:-40])


def remove(cache):
    shutil.rmtree(record(cache)[1])


def change(*path, to):
    def changed(cache):
        about, _ = record(cache)
        facts = json.loads(about.read_text())
        inner = facts["facts"]
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to
        about.write_text(json.dumps(facts))

    return changed


@pytest.mark.parametrize(
    "damage",
    [
        lambda cache: cut(cache, ".bin"),
        lambda cache: cut(cache, ".xml"),
        remove,
        change("files", to=3),
        change("files", to={"nothing": [1, 2, 3]}),
        change("own", to=3),
        change("kept", to={}),
        change("facts", to=[]),
        change("kept", "steps", 0, "engine", to="no-such-engine"),
        change("kept", "steps", 0, "distribution", to="no-such-distribution"),
        change("kept", "steps", 0, "data", to={}),
        change("kept", "steps", 0, "data", "inputs", to=["x", "x"]),
        change("kept", "inputs", 0, "type", to="no-such-type"),
    ],
)
def test_damage_costs_loading_the_result(cache, loaded, tmp_path, damage):
    path, shape = net(tmp_path)
    fed = {"x": tensor(*shape)}
    expected = dovetail.InferenceSession(path, backend="cpu-bf16").run(None, fed)
    damage(cache)
    loaded.clear()
    assert_same(dovetail.InferenceSession(path, backend="cpu-bf16").run(None, fed), expected)
    assert len(loaded) == 1
    assert_same(dovetail.InferenceSession(path, backend="cpu-bf16").run(None, fed), expected)
    assert len(loaded) == 1, "the damaged one was replaced"


def test_another_version_of_an_engine_compiles_again(cache, loaded, tmp_path, monkeypatch):
    path, _ = net(tmp_path)
    dovetail.InferenceSession(path, backend="cpu-bf16")
    monkeypatch.setattr(result_key, "_fingerprint", lambda distributions: {"versions": "another"})
    dovetail.InferenceSession(path, backend="cpu-bf16")
    assert loaded == ["compile", "compile"]


def test_weights_that_are_gone_are_missed(cache, tmp_path):
    path, _ = net(tmp_path, "convolution")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    dovetail.InferenceSession(path, backend="cpu-bf16")
    os.remove(tmp_path / "w.bin")
    with pytest.raises(DovetailError, match=r"w\.bin"):
        dovetail.InferenceSession(path, backend="cpu-bf16")


def test_it_counts_in_the_size_and_goes_with_its_result(cache, tmp_path, capsys):
    path, _ = net(tmp_path, "convolution")
    dovetail.InferenceSession(path, backend="cpu-bf16")
    (entry,) = cache.entries()
    _, folder = record(cache)
    files = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    assert 0 < files < entry.bytes
    assert main(["cache", "--clear"]) == 0 and not folder.parent.exists()
    capsys.readouterr()


def test_a_saved_result_starts_so_from_the_second_time_on(cache, loaded, tmp_path):
    path, shape = net(tmp_path)
    dovetail.compile(path, "cpu-bf16").save(tmp_path / "kept")
    fed = {"x": tensor(*shape)}
    answers = [dovetail.InferenceSession(tmp_path / "kept").run(None, fed) for _ in range(3)]
    assert len(loaded) == 1
    assert_same(answers[0], answers[2])


@pytest.mark.slow
def test_processes_that_start_at_once_compute_the_same(cache, tmp_path):
    path, shape = net(tmp_path, "convolution")
    code = (
        "import dovetail, numpy, sys\n"
        f"session = dovetail.InferenceSession({str(path)!r}, backend='cpu-bf16')\n"
        f"sys.stdout.write(session.run(None, {{'x': numpy.ones({shape}, 'f')}})[0].tobytes().hex())"
    )
    for _ in range(2):
        running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
        assert len({process.communicate(timeout=120)[0] for process in running}) == 1
    assert len(cache.entries()) == 1


def test_without_a_cache_there_is_none(cache, loaded, tmp_path, monkeypatch):
    path, _ = net(tmp_path)
    monkeypatch.setenv("DOVETAIL_RESULT_CACHE", "off")
    for _ in range(2):
        dovetail.InferenceSession(path, backend="cpu-bf16")
    assert len(loaded) == 2 and not (tmp_path / "cache").exists()


def test_a_session_says_that_another_engine_runs_it_each_time(cache, loaded, tmp_path, monkeypatch):
    """The preferred one may be there the next time, so that no start is kept."""
    path, shape = net(tmp_path)
    available = OpenVinoCpu.available
    monkeypatch.setattr(OpenVinoCpu, "available", lambda self: Availability(False, "its library is missing"))
    for _ in range(2):
        with pytest.warns(
            dovetail.EngineWarning, match="1 region of cpu-bf16 on onnxruntime-cpu .* its library is missing.*install"
        ):
            session = dovetail.InferenceSession(path, backend="cpu-bf16")
    monkeypatch.setattr(OpenVinoCpu, "available", available)
    session = dovetail.InferenceSession(path, backend="cpu-bf16")
    assert [runner.engine for runner in session.compiled.regions] == ["openvino-cpu"]
    session.run(None, {"x": tensor(*shape)})
