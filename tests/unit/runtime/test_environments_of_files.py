"""`emit: {environments: ...}` names environments for engines, in files of installed distributions alone."""

import os

import dovetail
import onnx
import pytest
from dovetail.plugin import Artifact, Availability, Emitter, Engine, Reads

NET = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { y = Relu(x) }"""
BACKEND = """
backend: apart-npu
device: npu
opset: 13..21
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops: {Relu: {types: f}}
place: {strategy: autocast}
emit: {engines: [apart, onnxruntime-cpu], artifacts: [apart], environments: {apart-x: PLACE}}
"""
VARIABLE = "DOVETAIL_APART_X_ENV"
seen = {}


class Apart(Engine):
    name = "apart"
    reads = Reads(21, 10, frozenset({"float32", "float16"}))

    def available(self):
        seen["engine"] = os.environ.get(VARIABLE)
        return Availability(False, "not here")

    def load(self, region, options):
        raise NotImplementedError


class Files(Emitter):
    def emit(self, region, folder):
        seen["emitter"] = os.environ.get(VARIABLE)
        return Artifact()


@pytest.fixture
def plugins(with_backend, monkeypatch):
    def make(text):
        found = with_backend(*([text] if text else []))
        found.registry.engine("apart", f"{__name__}:Apart")
        found.registry.emitter("apart", f"{__name__}:Files")
        seen.clear()
        monkeypatch.setenv(VARIABLE, "")
        del os.environ[VARIABLE]
        return found

    return make


def compiled(plugins, backend="apart-npu"):
    return dovetail.compile(onnx.parser.parse_model(NET), backend, plugins=plugins)


def test_engines_and_emitters_find_it(plugins, tmp_path):
    compiled(plugins(BACKEND.replace("PLACE", str(tmp_path))))
    assert seen == {"engine": str(tmp_path), "emitter": str(tmp_path)}


def test_the_home_folder_may_be_abbreviated(plugins, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    compiled(plugins(BACKEND.replace("PLACE", "~/venv")))
    assert seen["engine"] == str(tmp_path / "venv")


def test_what_the_user_names_comes_first(plugins, monkeypatch, tmp_path):
    found = plugins(BACKEND.replace("PLACE", str(tmp_path)))
    monkeypatch.setenv(VARIABLE, "/opt/own")
    compiled(found)
    assert seen["engine"] == "/opt/own"


def test_a_file_that_is_named_by_its_path_may_not(plugins, tmp_path):
    """A foreign folder may hold one, and a foreign plan may name one."""
    file = tmp_path / "apart.backend.yaml"
    file.write_text(BACKEND.replace("PLACE", "/opt/apart"))
    with pytest.raises(dovetail.DovetailError, match="which a file that is not installed may not have run") as raised:
        compiled(plugins(""), str(file))
    assert "--engine-env apart-x=/opt/apart" in raised.value.hint
    assert VARIABLE not in os.environ


@pytest.mark.parametrize("place", ["venv", "./venv", "../venv"])
def test_relative_paths_are_errors_with_their_line(plugins, place):
    with pytest.raises(dovetail.DovetailError, match=rf"yaml:9.*'{place}' is no absolute path"):
        compiled(plugins(BACKEND.replace("PLACE", place)))
