"""Models and data behind links, as caches and downloaders make them: found as ONNX Runtime finds them, or refused."""

import os
import shutil
import subprocess
from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.external import lies_beside
from dovetail_onnx.opening import open_model
from onnx import TensorProto, helper, numpy_helper

WEIGHT = np.arange(32 * 64, dtype=np.float32).reshape(32, 64)
X = {"x": np.ones((2, 32), np.float32)}


def make(folder, location="m.data"):
    """A model `m.onnx` whose weight is in `location`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / location).parent.mkdir(parents=True, exist_ok=True)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", e]) for n, e in (("x", 32), ("y", 64))]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")], "g", values[:1], values[1:],
        [numpy_helper.from_array(WEIGHT, "w")],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, folder / "m.onnx", save_as_external_data=True, location=location, size_threshold=0)
    return folder / "m.onnx"


def written(model, location):
    """The same model with another location for its data."""
    proto = onnx.load(model, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = location
    model.write_bytes(proto.SerializeToString())
    return model


def hub(folder, below="snapshots/rev"):
    make(folder / "made")
    (folder / "blobs").mkdir()
    (folder / below).mkdir(parents=True)
    for name in ("m.onnx", "m.data"):
        (folder / "made" / name).rename(folder / "blobs" / f"hash of {name}")
        (folder / below / name).symlink_to(os.path.relpath(folder / "blobs" / f"hash of {name}", folder / below))
    return folder / below / "m.onnx"


def moved(folder, place, link):
    """A model whose data was moved to `place`, with a link."""
    model = make(folder / "model")
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / "model/m.data").rename(folder / place)
    (folder / "model/m.data").symlink_to(link)
    return model


def second_hard_link(folder):
    model = make(folder)
    os.link(folder / "m.data", folder / "backup.data")
    return model


def copied_by_links(folder):
    make(folder / "a")
    (folder / "b").mkdir()
    for name in ("m.onnx", "m.data"):
        os.link(folder / "a" / name, folder / "b" / name)
    return folder / "b/m.onnx"


def link_to_model(folder, data_moves=False):
    make(folder / "a")
    (folder / "b").mkdir()
    (folder / "b/m.onnx").symlink_to("../a/m.onnx")
    if data_moves:
        (folder / "a/m.data").rename(folder / "b/m.data")
    return folder / "b/m.onnx"


def linked_folder(folder):
    make(folder / "a")
    (folder / "b").symlink_to("a")
    return folder / "b/m.onnx"


def environment(folder):
    make(folder / "store")
    (folder / "env").mkdir()
    for name in ("m.onnx", "m.data"):
        (folder / "env" / name).symlink_to(folder / "store" / name)
    return folder / "env/m.onnx"


def link_to_snapshot(folder):
    (folder / "m.onnx").symlink_to(hub(folder))
    return folder / "m.onnx"


def data_of_both(folder):
    model = link_to_model(folder)
    shutil.copy(folder / "a/m.data", folder / "b/m.data")
    return model


def chain(folder):
    model = moved(folder, "model/z", "y")
    (folder / "model/y").symlink_to("z")
    return model


def outside_by_folder(folder):
    model = make(folder / "model", "weights/m.data")
    (folder / "model/weights").rename(folder / "weights")
    (folder / "model/weights").symlink_to("../weights")
    return model


READ = {
    "as it was saved": make,
    "in a folder below": lambda folder: make(folder, "weights/m.data"),
    "a second hard link": second_hard_link,
    "cp -al": copied_by_links,
    "a link to data in the folder": lambda folder: moved(folder, "model/sub/data", "sub/data"),
    "a chain of links": chain,
    "the cache of Hugging Face": hub,
    "the cache of Hugging Face, in a subfolder": lambda folder: hub(folder, "snapshots/rev/onnx"),
    "a link to the cache": link_to_snapshot,
    "a link to the model, data beside the model": link_to_model,
    "a link to the model, data beside the link": lambda folder: link_to_model(folder, data_moves=True),
    "a link to the model, data beside both": data_of_both,
    "a linked folder": linked_folder,
    "an environment of links": environment,
    "git-annex": lambda folder: moved(folder, ".git/annex/objects/aa/key", "../.git/annex/objects/aa/key"),
    "dvc": lambda folder: moved(folder, ".dvc/cache/files/aa/key", "../.dvc/cache/files/aa/key"),
    "a detour within the folder": lambda folder: written(make(folder, "q/m.data"), "q/../q/m.data"),
}
REFUSED = {
    "a link out of the folder": lambda folder: moved(folder, "secret", "../secret"),
    "an absolute link out of the folder": lambda folder: moved(folder, "secret", folder / "secret"),
    "a folder that is a link out of the folder": outside_by_folder,
    "..": lambda folder: written(make(folder / "model"), "../secret"),
    ".. behind a folder": lambda folder: written(make(folder / "model", "q/m.data"), "q/../../secret"),
    "an absolute path": lambda folder: written(make(folder / "model"), str(folder / "secret")),
    "an absolute path within the folder": lambda folder: written(make(folder / "model"), str(folder / "model/m.data")),
    "a store of another repository": lambda folder: moved(
        folder, "other/.git/annex/objects/key", "../other/.git/annex/objects/key"
    ),
    "a store that is a link": lambda folder: moved(folder, "x/objects/key", "../.git/annex/objects/key"),
}


def by_onnxruntime(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options).run(None, X)[0]


@pytest.mark.parametrize("layout", READ)
def test_data_is_found(layout, tmp_path):
    path = READ[layout](tmp_path)
    model = open_model(path)
    assert (model.graph.initializers["w"].const_value.numpy() == WEIGHT).all()
    assert model.graph.initializers["w"].const_value.tobytes() == WEIGHT.tobytes()


@pytest.mark.parametrize("layout", REFUSED)
def test_nothing_outside_is_read(layout, tmp_path):
    path = REFUSED[layout](tmp_path)
    if layout == "a store that is a link":
        (tmp_path / ".git/annex").mkdir(parents=True)
        (tmp_path / ".git/annex/objects").symlink_to(tmp_path / "x/objects")
    if not (tmp_path / "secret").exists():
        (tmp_path / "secret").write_bytes(WEIGHT.tobytes())
    with pytest.raises(DovetailError, match="lies outside the model's folder") as caught:
        open_model(path)
    assert "copy the data beside the model" in caught.value.hint
    with pytest.raises(Exception, match=r"escapes model directory|[Aa]bsolute path not allowed|File system error"):
        by_onnxruntime(path)


@pytest.mark.parametrize("layout", READ)
def test_what_onnxruntime_finds_is_the_same(layout, tmp_path):
    path = READ[layout](tmp_path)
    try:
        expected = by_onnxruntime(path)
    except Exception:  # it looks beside the path that was given only, and knows no stores
        assert layout in ("a link to the cache", "a link to the model, data beside the model", "git-annex", "dvc")
        return
    assert (expected == X["x"] @ WEIGHT).all()


@pytest.mark.generated
@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8"])
@pytest.mark.parametrize("layout", READ)
def test_engines_get_what_they_accept(layout, backend, tmp_path):
    result = dovetail.compile(READ[layout](tmp_path), backend, data=X)
    assert f"{backend} " in result.coverage() and "0/" not in result.coverage()
    assert np.allclose(result.run(X)["y"], X["x"] @ WEIGHT, rtol=0.02)


def test_a_result_that_is_copied_by_hard_links_or_links_is_loaded(tmp_path):
    result = dovetail.compile(make(tmp_path / "model"), "cpu-bf16")
    result.save(tmp_path / "out", external=True)
    assert list((tmp_path / "out").glob("*.data"))
    for option in ("-al", "-rs"):
        subprocess.run(["cp", option, tmp_path / "out", tmp_path / option], check=True)
        loaded = dovetail.load(tmp_path / option)
        assert "cpu-bf16 " in loaded.coverage()
        assert np.allclose(loaded.run(X)["y"], X["x"] @ WEIGHT, rtol=0.02)


def test_a_file_that_becomes_a_link_later_is_not_followed(tmp_path):
    model = open_model(make(tmp_path / "model"))
    (tmp_path / "secret").write_bytes(WEIGHT.tobytes())
    (tmp_path / "model/m.data").unlink()
    (tmp_path / "model/m.data").symlink_to("../secret")
    with pytest.raises(DovetailError, match="was replaced by a link while the model was open"):
        model.graph.initializers["w"].const_value.numpy()


def test_engines_read_the_file_itself_where_every_engine_can(tmp_path):
    """Elsewhere they get a copy."""
    beside = {
        layout: lies_beside([open_model(path).graph.initializers["w"].const_value], Path(path))
        for number, layout in enumerate(READ)
        for path in [READ[layout](tmp_path / str(number))]
    }
    assert {layout for layout, found in beside.items() if not found} == {
        "the cache of Hugging Face", "the cache of Hugging Face, in a subfolder", "a link to the cache",
        "a link to the model, data beside the model", "an environment of links", "git-annex", "dvc",
    }  # fmt: skip
