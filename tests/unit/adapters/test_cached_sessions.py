"""Sessions start with what an earlier process compiled, if nothing that the result depends on has changed."""

import json
import os
import threading
import time
from pathlib import Path

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail_adapters import cached_compilation, opening
from dovetail_runtime.result_cache import ResultCache, result_cache

GRAPH = """<ir_version: 10, opset_import: ["": 22]>
g (float[N,4] x) => (float[N,4] y) <float[4,4] w> { y = MatMul (x, w) }"""
X = {"x": np.eye(4, dtype=np.float32)}


def product(factor=1.0):
    model = onnx.parser.parse_model(GRAPH)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full((4, 4), factor, np.float32), "w"))
    return model


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """A folder with the model, an empty cache, and how often something was compiled since."""
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    onnx.save(product(), "m.onnx")
    calls = []

    def counted(model, *given, **more):
        calls.append(model)
        return dovetail.compile(model, *given, **more)

    monkeypatch.setattr(opening, "compile", counted)
    return calls


def session(model="m.onnx", **options):
    return dovetail.InferenceSession(model, **{"backend": "cpu-bf16", **options})


def test_the_second_session_compiles_nothing_and_answers_the_same(compiled):
    first, second = session().run(None, X), session().run(None, X)
    assert len(compiled) == 1 and np.array_equal(first[0], second[0])
    assert session().get_providers() == ["cpu-bf16", "CPUExecutionProvider"]


@pytest.mark.parametrize("model", [product(2.0), product(2.0).SerializeToString()], ids=["proto", "bytes"])
def test_models_in_memory_are_recognized_by_their_content(compiled, model):
    session(model)
    assert np.all(session(model).run(None, X)[0] == 2) and len(compiled) == 1
    other = product(3.0) if not isinstance(model, bytes) else product(3.0).SerializeToString()
    assert np.all(session(other).run(None, X)[0] == 3) and len(compiled) == 2


def changed_model():
    onnx.save(product(5.0), "m.onnx")


def changed_weights():
    weights = Path("w.data")
    weights.write_bytes(np.float32(7).tobytes() + weights.read_bytes()[4:])


def changed_environment():
    os.environ["DOVETAIL_OTHER"] = "1"


@pytest.mark.parametrize("change", [changed_model, changed_weights, changed_environment])
def test_a_change_is_another_result(compiled, change, monkeypatch):
    monkeypatch.setenv("DOVETAIL_OTHER", "0")
    onnx.save(product(), "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    session()
    assert session() and len(compiled) == 1
    change()
    found = session().run(None, X)[0]
    assert len(compiled) == 2
    assert found[0, 0] == {changed_model: 5, changed_weights: 7, changed_environment: 1}[change]


@pytest.mark.parametrize("name", ["_installed", "_machine"])
def test_other_versions_and_machines_have_other_results(compiled, monkeypatch, name):
    session()
    monkeypatch.setattr(cached_compilation, name, lambda: ["other"])
    session()
    assert len(compiled) == 2


@pytest.mark.parametrize("options", [{"backend": "host"}, {"high": "*"}, {"data": X}, {"min_snr": 20, "data": X}])
def test_another_request_is_another_result(compiled, options):
    session()
    session(**options)
    session(**options)
    assert len(compiled) == 2


def test_what_no_other_process_recognizes_is_not_kept(compiled):
    for options in ({"data": lambda: iter([X])}, {"plugins": dovetail.load_plugins()}, {"cache": False}):
        session(**options)
        session(**options)
    assert len(compiled) == 6 and result_cache().entries() == []


def test_without_a_cache_everything_is_compiled(compiled, monkeypatch):
    monkeypatch.setenv("DOVETAIL_CACHE", "off")
    session()
    session()
    assert len(compiled) == 2


def damaged(cache):
    for file in cache.folder.rglob("model.onnx"):
        file.write_bytes(file.read_bytes()[:-9])


def without_entry(cache):
    for file in cache.folder.rglob("entry.json"):
        file.write_text("{")


def of_somebody_else(cache):
    cache.folder.chmod(0o777)


@pytest.mark.parametrize("harm", [damaged, without_entry, of_somebody_else])
def test_what_is_not_as_it_was_written_is_compiled_again(compiled, harm):
    session()
    harm(result_cache())
    assert np.all(session().run(None, X)[0] == 1) and len(compiled) == 2


def test_a_cache_that_cannot_be_written_costs_nothing(compiled, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path / "file" / "below"))
    assert np.all(session().run(None, X)[0] == 1)


def test_the_least_recently_used_results_are_removed(tmp_path):
    result = dovetail.compile(product(), "host")
    cache = ResultCache(tmp_path / "cache", largest=10**9)
    for number in range(4):
        assert cache.keep(f"key{number}", result, "a model", {})
        os.utime(cache.folder / f"key{number}" / "entry.json", (number, number))
    one = cache.entries()[0].bytes
    small = ResultCache(cache.folder, largest=int(3.5 * one))
    assert small.keep("new", result, "a model", {})
    assert [entry.key for entry in small.entries()] == ["new", "key3", "key2"]


def test_what_is_larger_than_half_of_the_cache_is_not_kept(tmp_path):
    cache = ResultCache(tmp_path / "cache", largest=100)
    assert not cache.keep("key", dovetail.compile(product(), "host"), "a model", {}) and cache.entries() == []


def test_many_writers_leave_one_whole_result(tmp_path):
    cache = ResultCache(tmp_path / "cache")
    results = [dovetail.compile(product(), "host") for _ in range(4)]
    threads = [threading.Thread(target=cache.keep, args=("key", result, "a model", {})) for result in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [place.name for place in cache.folder.iterdir()] == ["key"]
    assert np.all(cache.load("key").run(X)["y"] == 1)


def test_the_command_shows_and_clears(compiled, capsys):
    session()
    assert main(["cache"]) == 0
    said = capsys.readouterr().out
    assert "m.onnx for cpu-bf16" in said and "1 result" in said
    assert main(["cache", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["results"]
    assert entry["about"] == "m.onnx for cpu-bf16" and time.time() - entry["used"] < 1000
    assert main(["cache", "clear"]) == 0
    assert "1 result removed" in capsys.readouterr().out
    session()
    assert len(compiled) == 2


def test_onnx_backend_uses_it(compiled):
    from dovetail_adapters.onnx_backend import DovetailBackend

    for _ in range(2):
        assert np.all(DovetailBackend.prepare(product(), backend="cpu-bf16").run(X)[0] == 1)
    assert len(compiled) == 1


def test_the_host_answers_while_a_compilation_runs_beside_it(compiled, monkeypatch):
    go_on = threading.Event()
    compile_ = opening.compile

    def slow(model, backends, **more):
        if backends != "host":
            assert go_on.wait(60)
        return compile_(model, backends, **more)

    monkeypatch.setattr(opening, "compile", slow)
    found = session(background=True)
    assert np.all(found.run(None, X)[0] == 1) and found.get_providers() == ["CPUExecutionProvider"]
    assert not found.wait(0)
    go_on.set()
    assert found.wait(60) and found.get_providers() == ["cpu-bf16", "CPUExecutionProvider"]
    assert np.all(found.run(None, X)[0] == 1)


def test_a_compilation_in_the_background_that_fails_is_a_warning(compiled, recwarn):
    found = session(background=True, pins="nowhere=cpu-bf16", cache=False)
    assert found.wait(60)
    assert np.all(found.run(None, X)[0] == 1)
    assert any("the host goes on answering" in str(one.message) for one in recwarn)
