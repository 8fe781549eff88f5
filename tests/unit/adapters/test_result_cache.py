"""What a program compiled, the next one loads: by model, request, data and versions; damage costs a compilation."""

import json
import os
import shutil

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail.cli.main import main
from dovetail_adapters import opening
from dovetail_adapters.result_cache import ResultCache

NET = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> { h = Mul(x, w)  y = Softmax(h) }"""
X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)


@pytest.fixture
def model(tmp_path):
    onnx.save(onnx.parser.parse_model(NET), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.fixture
def compiled(monkeypatch):
    """How often something was compiled."""
    found = []

    def counting(*arguments, **keywords):
        found.append(arguments)
        return dovetail.compile(*arguments, **keywords)

    monkeypatch.setattr(opening, "compile", counting)
    return found


def answers(session):
    return session.run(None, {"x": X})[0]


def test_the_second_session_loads_what_the_first_compiled(cache, model, compiled):
    first, second = (dovetail.InferenceSession(model, backend=["cpu-bf16"]) for _ in range(2))
    assert len(compiled) == 1
    np.testing.assert_array_equal(answers(first), answers(second))
    assert second.compiled.summary() == first.compiled.summary()
    (entry,) = cache.entries()
    assert entry.about == f"{model} for cpu-bf16" and entry.bytes > 0


@pytest.mark.parametrize("change", ["model", "model in place", "backend", "option", "data", "data file", "variable"])
def test_what_changes_is_compiled_again(cache, model, compiled, change, tmp_path, monkeypatch):
    np.savez(tmp_path / "data.npz", x=X)
    request = {"backend": "cpu-bf16", "high": ["type:Softmax"], "data": {"x": X}}
    if change == "data file":
        request["data"] = str(tmp_path / "data.npz")
    dovetail.InferenceSession(model, **request)
    if change.startswith("model"):
        status = model.stat()
        onnx.save(onnx.parser.parse_model(NET.replace("{1, 2", "{9, 2")), model)
        if change == "model in place":  # within a moment, and with the same size and time
            os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif change == "backend":
        request["backend"] = "host"
    elif change == "option":
        del request["high"]
    elif change == "data":
        request["data"] = {"x": X + 1}
    elif change == "data file":
        np.savez(tmp_path / "data.npz", x=X + 1)
    else:
        monkeypatch.setenv("DOVETAIL_SOMETHING", "1")
    again = dovetail.InferenceSession(model, **request)
    assert len(compiled) == 2
    expected = dovetail.compile(model, request.pop("backend"), **request).run({"x": X})["y"]
    np.testing.assert_array_equal(answers(again), expected)


def test_weights_beside_the_model_count(cache, tmp_path, compiled):
    path = tmp_path / "net.onnx"
    for number, times in enumerate((1, 2)):
        proto = onnx.parser.parse_model(NET)
        proto.graph.initializer[0].raw_data = (times * np.arange(4, dtype=np.float32)).tobytes()
        del proto.graph.initializer[0].float_data[:]
        onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
        dovetail.InferenceSession(path, backend="host")
        assert len(compiled) == number + 1


def test_what_no_digest_stands_for_is_not_kept(cache, model, compiled):
    for _ in range(2):
        dovetail.InferenceSession(model, backend="host", data=iter([{"x": X}]))
    assert len(compiled) == 2 and cache.entries() == []


@pytest.fixture
def loaded(monkeypatch):
    """How often all plugins were loaded."""
    found, load = [], dovetail.load_plugins
    monkeypatch.setattr(dovetail, "load_plugins", lambda **some: (found.extend([1] * (not some)), load(**some))[1])
    return found


@pytest.mark.parametrize("kind", ["source", "result", "settings"])
def test_a_session_of_onnx_runtime_starts_without_plugins_and_result(cache, model, compiled, loaded, kind, tmp_path):
    how = {"backend": "host"}
    if kind == "result":
        dovetail.compile(model, "host").save(tmp_path / "kept")
        model, how = tmp_path / "kept", {}
    elif kind == "settings":
        how = {"providers": [("CPUExecutionProvider", {})], "sess_options": onnxruntime.SessionOptions()}
    first = dovetail.InferenceSession(model, **how)
    loaded.clear()
    second = dovetail.InferenceSession(model, **how)
    np.testing.assert_array_equal(answers(first), answers(second))
    assert second.get_modelmeta() == first.get_modelmeta() and second.get_providers() == first.get_providers()
    assert [value.name for value in second.get_outputs()] == ["y"] and not loaded
    assert second.compiled.summary() == first.compiled.summary() and loaded, "it is loaded where it is asked for"


def test_backends_among_the_providers_start_as_those_of_backend_do(cache, model, compiled, loaded):
    first = dovetail.InferenceSession(model, backend="cpu-bf16")
    loaded.clear(), compiled.clear()
    for providers in (["cpu-bf16"], ["cpu-bf16", "CPUExecutionProvider"], [("cpu-bf16", {})]):
        second = dovetail.InferenceSession(model, providers=providers)
        np.testing.assert_array_equal(answers(first), answers(second))
        assert second.get_providers() == first.get_providers() and not loaded and not compiled
    with pytest.warns(UserWarning, match="CUDAExecutionProvider is a provider of ONNX Runtime"):
        dovetail.InferenceSession(model, providers=["CUDAExecutionProvider", "cpu-bf16"])


def test_what_starts_at_once_is_checked(cache, model, compiled, loaded, tmp_path):
    dovetail.compile(model, "host").save(tmp_path / "kept")
    for change in (lambda: None, lambda: None, lambda: dovetail.compile(model, "cpu-bf16").save(tmp_path / "kept")):
        change()
        loaded.clear()
        session = dovetail.InferenceSession(tmp_path / "kept")
    assert loaded and "cpu-bf16 2/2 nodes" in session.compiled.summary()
    for _ in range(2):
        dovetail.InferenceSession(model, backend="host")
    (entry,) = [entry for entry in cache.entries() if entry.about.endswith(" for host")]
    record = entry.folder.with_name(f"{entry.key}-start") / "about.json"
    about = json.loads(record.read_text())
    start, expected = about["facts"], answers(session)
    for damage in ({}, [], "nothing", {**start, "model": "nothing.onnx"}, {**start, "files": [3]}):
        about["facts"] = damage
        record.write_text(json.dumps(about))
        np.testing.assert_allclose(answers(dovetail.InferenceSession(model, backend="host")), expected, atol=0.02)


def test_models_in_memory_count_by_their_content(cache, compiled):
    proto = onnx.parser.parse_model(NET)
    for one in (proto, proto.SerializeToString(deterministic=True), proto):
        dovetail.InferenceSession(one, backend="host")
    assert len(compiled) == 1


@pytest.mark.parametrize("damage", ["cut", "about", "gone"])
def test_damage_costs_a_compilation(cache, model, compiled, damage):
    expected = answers(dovetail.InferenceSession(model, backend="host"))
    (entry,) = cache.entries()
    if damage == "cut":
        file = entry.folder / "files" / "model.onnx"
        file.write_bytes(file.read_bytes()[:-20])
    elif damage == "about":
        (entry.folder / "about.json").write_text('{"files": [3]}')
    else:
        shutil.rmtree(entry.folder / "files")
    again = dovetail.InferenceSession(model, backend="host")
    np.testing.assert_array_equal(answers(again), expected)
    dovetail.InferenceSession(model, backend="host")
    # Without its record, an entry is not known to be one, and stays; what is kept of the session's start suffices.
    assert len(compiled) == (1 if damage == "about" else 2)


def test_the_least_recently_used_go(tmp_path, model, monkeypatch):
    monkeypatch.setenv("DOVETAIL_RESULT_CACHE", str(tmp_path / "cache"))
    for high in ([], ["type:Mul"]):
        dovetail.InferenceSession(model, backend="cpu-bf16", high=high)
    cache = ResultCache.of_user()
    oldest, newest = cache.entries()
    monkeypatch.setenv("DOVETAIL_RESULT_CACHE_SIZE", str(newest.bytes + oldest.bytes))
    dovetail.InferenceSession(model, backend="host")
    assert oldest.key not in [entry.key for entry in cache.entries()]


def test_it_can_be_left_out(cache, model, compiled, monkeypatch, tmp_path):
    for _ in range(2):
        dovetail.InferenceSession(model, backend="host", cache=False)
    monkeypatch.setenv("DOVETAIL_RESULT_CACHE", "off")
    dovetail.InferenceSession(model, backend="host")
    assert len(compiled) == 3
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    foreign.chmod(0o777)
    monkeypatch.setenv("DOVETAIL_RESULT_CACHE", str(foreign))
    with pytest.warns(dovetail.DovetailWarning, match="open to other users"):
        assert ResultCache.of_user() is None


def test_the_command_shows_and_clears_it(cache, model, capsys):
    dovetail.InferenceSession(model, backend="host")
    assert main(["cache"]) == 0
    shown = capsys.readouterr().out
    assert f"{model} for host" in shown and "1 result" in shown
    assert main(["cache", "--clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cleared"] and cache.entries() == []


def test_a_session_in_the_background_answers_at_once(cache, model, compiled):
    session = dovetail.InferenceSession(model, backend="cpu-bf16", background=True)
    at_once = answers(session)
    assert "cpu-bf16 2/2 nodes" in session.compiled.summary(), "waits for the result"
    np.testing.assert_allclose(answers(session), at_once, atol=0.02)
    assert len(compiled) == 1
    assert [value.name for value in session.get_inputs()] == ["x"]


def test_what_cannot_be_compiled_in_the_background_runs_as_it_is(cache, model):
    with pytest.warns(UserWarning, match="not compiled in the background"):
        session = dovetail.InferenceSession(model, backend="no-such-backend", background=True)
        with pytest.raises(dovetail.DovetailError, match="no-such-backend"):
            _ = session.compiled
    assert answers(session).shape == (8, 4)


def test_background_needs_a_model_that_onnx_runtime_reads(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"\x08nothing")
    for path, why in (("broken.onnx", "ONNX Runtime refuses it"), ("net.pdmodel", "no ONNX file")):
        with pytest.raises(dovetail.DovetailError, match=why):
            dovetail.InferenceSession(tmp_path / path, backend="host", background=True)


def test_small_weights_beside_a_model_that_stays_count_too(cache, tmp_path, compiled):
    """They are read in when the model is opened, unlike large ones."""
    proto = onnx.parser.parse_model(NET)
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones(4, np.float32), "w"))
    onnx.save(proto, tmp_path / "net.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    for number in (1, 2):
        (tmp_path / "w.bin").write_bytes((number * np.arange(4, dtype=np.float32)).tobytes())
        dovetail.InferenceSession(tmp_path / "net.onnx", backend="host")
        assert len(compiled) == number
