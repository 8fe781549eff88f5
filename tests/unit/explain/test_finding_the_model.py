"""`explain` finds the source model by name and digest in the folders around a result."""

from pathlib import Path

import dovetail
import onnx
import pytest

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[1,4] x) => (float[1,4] y) { [first] a = Sigmoid (x)  [second] y = Sigmoid (a) }"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    onnx.save(onnx.parser.parse_model(TEXT), "models/net.onnx")
    return tmp_path


def looked_for(folder):
    """What `explain` says of a node for which only trying on the source model tells what helps."""
    return "\n".join(dovetail.explain(folder, "first"))


@pytest.mark.parametrize(
    ("out", "cwd"),
    [("models/out", "/"), ("models/out/net", "/"), ("out", "."), ("out/net", "."), ("out", "/"), ("out/net", "/")],
)
def test_the_model_is_found_around_the_result(project, monkeypatch, out, cwd):
    dovetail.compile("models/net.onnx", "cpu-bf16", pins=["first=host"]).save(out)
    monkeypatch.chdir(cwd)
    assert "was not found" not in looked_for(project / out)


def test_a_plan_file_too(project, monkeypatch):
    Path("plans").mkdir()
    dovetail.plan("models/net.onnx", "cpu-bf16", pins=["first=host"]).save("plans/plan.yaml")
    monkeypatch.chdir("/")
    assert "was not found" not in looked_for(project / "plans/plan.yaml")


def test_another_model_of_the_name_is_not_taken(project, monkeypatch):
    dovetail.compile("models/net.onnx", "cpu-bf16", pins=["first=host"]).save("models/out")
    onnx.save(onnx.parser.parse_model(TEXT.replace("Sigmoid (x)", "Tanh (x)")), "models/net.onnx")
    assert "net.onnx was not found" in looked_for(project / "models/out")


def test_no_folder_outside_of_the_working_directory_is_recorded(project, monkeypatch):
    monkeypatch.chdir(project / "models")
    assert "folder" not in dovetail.plan("net.onnx", "cpu-bf16").model
    assert "folder" not in dovetail.plan(project / "models/../models/net.onnx", "cpu-bf16").model
    monkeypatch.chdir("/")
    Path(project / "elsewhere").mkdir()
    monkeypatch.chdir(project / "elsewhere")
    assert "folder" not in dovetail.plan("../models/net.onnx", "cpu-bf16").model
