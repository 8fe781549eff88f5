"""`load` gives what was saved together, and says what was altered since."""

import json
import os
from pathlib import Path

import onnx
import pytest
from dovetail import api
from dovetail.errors import DovetailError
from dovetail_onnx.results import reading

from .conftest import describe


@pytest.fixture
def saved(results):
    results["a"].save("out")
    results["b"].save("other")


def move(name):
    Path("out", name).write_bytes(Path("other", name).read_bytes())


def edit(name, change):
    path = Path("out", name)
    path.write_bytes(change(path.read_bytes()))


ALTERED = {
    "the model of another result": lambda: move("model.onnx"),
    "the manifest of another result": lambda: move("result.json"),
    "a weight": lambda: edit("model.onnx", lambda content: content.replace(b"\x80\x3f" * 8, b"\x80\x40" * 8, 1)),
    "a cut model": lambda: edit("model.onnx", lambda content: content[:-1]),
    "no model": lambda: Path("out/model.onnx").unlink(),
}


@pytest.mark.parametrize("how", ALTERED)
def test_a_model_that_does_not_belong_is_refused(saved, how):
    ALTERED[how]()
    with pytest.raises(DovetailError, match=r"^out: model.onnx is ") as caught:
        api.load("out")
    assert "compile again" in caught.value.hint


@pytest.mark.parametrize("large", [False, True], ids=["hashed", "by time"])
def test_large_models_are_hashed_if_they_are_younger_than_the_manifest(saved, monkeypatch, large):
    if large:
        monkeypatch.setattr(reading, "_HASHED_UP_TO", 1000)
    path = Path("out/model.onnx")
    os.utime(path, ns=(0, 0))
    content = path.read_bytes()
    path.write_bytes(content.replace(b"\x80\x3f" * 8, b"\x80\x40" * 8, 1))
    with pytest.raises(DovetailError, match="is not the file that was saved"):
        api.load("out")
    path.write_bytes(content)
    assert describe("out") == "a"


def test_data_that_was_exchanged_is_refused(results):
    results["a"].save("out", external=True)
    (data,) = Path("out").glob("*.data")
    data.write_bytes(bytes(data.stat().st_size))
    with pytest.raises(DovetailError, match=r"data is not the file that was saved"):
        api.load("out")


@pytest.mark.parametrize("name", ["plan.yaml", "remarks.json"])
@pytest.mark.parametrize("how", ["edited", "of another result", "removed"])
def test_a_plan_or_remarks_that_do_not_belong_are_not_taken(saved, name, how):
    if how == "edited":
        edit(name, lambda content: content.replace(b"bfloat16", b"float32"))
    elif how == "removed":
        Path("out", name).unlink()
    else:
        move(name)
    compiled = api.load("out")
    (node,) = [node for node in compiled.plan.nodes if node.op_type == "MatMul"]
    assert (node.name, node.backend, str(node.precision)) == ("first", "cpu-bf16", "bfloat16")
    (said,) = [remark for remark in compiled.remarks if remark.rule == "altered"]
    assert said.why.startswith(f"{name} is not the file that this model was saved with")


def test_a_model_alone_is_taken_as_it_is(saved):
    Path("alone").mkdir()
    Path("alone/model.onnx").write_bytes(Path("out/model.onnx").read_bytes())
    assert {node.backend for node in api.load("alone").plan.nodes} == {"cpu-bf16"}
    assert {node.backend for node in api.load("alone/model.onnx").plan.nodes} == {"cpu-bf16"}
    Path("alone/plan.yaml").write_bytes(Path("other/plan.yaml").read_bytes())
    assert {node.backend for node in api.load("alone").plan.nodes} == {"cpu-bf16"}


def manifest(**changes):
    return lambda content: json.dumps(json.loads(content) | changes).encode()


BROKEN = {
    "no JSON": lambda _: b"{",
    "another version": manifest(version=2),
    "no mapping": lambda _: b"[]",
    "deep": lambda _: b"[" * 100_000,
    "a way out": lambda content: content.replace(b'"plan.yaml"', b'"../plan.yaml"'),
    "a folder": lambda content: content.replace(b'"plan.yaml"', b'".."'),
    "no files": manifest(files=3),
    "no rows": manifest(placements=[3]),
    "rows of something else": manifest(placements=[{"operator": "Conv", "backend": 1, "precision": "", "nodes": 1}]),
    "no model": lambda content: content.replace(b'"model.onnx"', b'"modell.onnx"'),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_manifest_that_is_none(saved, how):
    edit("result.json", BROKEN[how])
    with pytest.raises(DovetailError, match=r"^out/result.json is not what `dovetail compile` writes"):
        api.load("out")


ANNOTATIONS = {
    "dovetail.region": "first",
    "dovetail.ports": "[1]",
    "dovetail.origin": '{"a": 1}',
    "dovetail.ports ": "{",
}


@pytest.mark.parametrize("key", ANNOTATIONS)
def test_annotations_that_cannot_be_read(saved, key):
    proto = onnx.load("out/model.onnx")
    node = proto.graph.node[-1]
    entry = node.metadata_props.add()
    entry.key, entry.value = key.strip(), ANNOTATIONS[key]
    onnx.save(proto, "edited.onnx")
    with pytest.raises(DovetailError, match=f"node '{node.name}': an annotation of Dovetail cannot be read"):
        api.load("edited.onnx")


def test_a_folder_of_a_stranger_removes_nothing(saved, tmp_path):
    """What looks like the staging folder of a dead writer may come from anybody."""
    Path("precious.data").write_text("mine")
    Path("precious.txt").write_text("mine")
    Path("out/own.data").write_text("mine")
    staging = Path("out/.dovetail-0123456789abcdef")
    staging.mkdir()
    (staging / "result.json").write_bytes(Path("out/result.json").read_bytes())
    record = {"size": 4, "sha256": "0" * 64}
    names = ["../precious.data", "../precious.txt", str(tmp_path / "precious.txt"), "own.data"]
    for text in (json.dumps({name: record}) for name in names):
        staging.mkdir(exist_ok=True)
        (staging / "result.json").write_bytes(Path("out/result.json").read_bytes())
        (staging / "replaced.json").write_text(text)
        assert describe("out") == "a"
    for text in ("[]", "{", "3", '{"a": 3}'):
        staging.mkdir(exist_ok=True)
        (staging / "result.json").write_bytes(Path("out/result.json").read_bytes())
        (staging / "replaced.json").write_text(text)
        assert describe("out") == "a"
    assert Path("precious.data").exists()
    assert Path("precious.txt").exists()
    assert Path("out/own.data").exists()


def test_a_pipe_in_place_of_a_file_does_not_block(saved):
    for name in ("result.json", "remarks.json"):
        Path("out", name).unlink()
        os.mkfifo(Path("out", name))
    assert {node.backend for node in api.load("out").plan.nodes} == {"cpu-bf16"}


@pytest.mark.parametrize("step", ["_look", "_open"])
def test_a_result_that_goes_and_comes_back_while_it_is_read(results, monkeypatch, step):
    """Another one takes its place for a moment, and with it goes its data file; both manifests of it are equal."""
    results["a"].save("out", external=True)
    plain = getattr(reading, step)

    def interrupted(*arguments):
        monkeypatch.setattr(reading, step, plain)
        results["b"].save("out")
        try:
            if step == "_open":
                raise DovetailError("a weight lies in a file that is gone")  # its model was open already
            return plain(*arguments)
        finally:
            results["a"].save("out", external=True)

    monkeypatch.setattr(reading, step, interrupted)
    assert describe("out") == "a"
    assert getattr(reading, step) is plain
