"""Saving is all or nothing, and an older model keeps its data until it is replaced."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_model
from dovetail_onnx.saving import save_model, saved_size
from onnx import numpy_helper

TEXT = '<ir_version: 10, opset_import: ["": 22]> g (float[2,8] x) => (float[2,4096] y) { y = MatMul (x, w) }'


@pytest.fixture
def make(tmp_path):
    """A model file with one weight of 128 KiB."""

    def write(name="m.onnx", fill=1.0):
        proto = onnx.parser.parse_model(TEXT)
        proto.graph.initializer.append(numpy_helper.from_array(np.full((8, 4096), fill, np.float32), "w"))
        path = tmp_path / name
        path.write_bytes(proto.SerializeToString())
        return path

    return write


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def weight(path):
    (tensor,) = onnx.load(path).graph.initializer
    return numpy_helper.to_array(tensor)


class Failing(ir.LazyTensor):
    """A weight that cannot be read to its end."""

    def __init__(self, error):
        super().__init__(lambda: None, ir.DataType.FLOAT, ir.Shape([8, 4096]), name="w")
        self.error = error

    def chunks(self):
        yield bytes(1000)
        raise self.error


@pytest.mark.parametrize("external", [False, True], ids=["inline", "external"])
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (RuntimeError("gone"), RuntimeError),
        (OSError(28, "No space left on device"), DovetailError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=["a defect", "a full disk", "an interrupt"],
)
def test_a_save_that_fails_changes_nothing(make, tmp_path, external, error, raised):
    target = make("out.onnx")
    save_model(open_model(make("other.onnx", 2.0)), target, external=external)
    before = content(tmp_path)
    model = open_model(make())
    model.graph.initializers["w"].const_value = Failing(error)
    before["m.onnx"] = (tmp_path / "m.onnx").read_bytes()
    with pytest.raises(raised):
        save_model(model, target, external=external)
    assert content(tmp_path) == before


def test_a_full_disk_is_said(make, tmp_path):
    model = open_model(make())
    model.graph.initializers["w"].const_value = Failing(OSError(28, "No space left on device"))
    with pytest.raises(DovetailError, match=r"out\.onnx could not be written: No space left on device") as caught:
        save_model(model, tmp_path / "out.onnx")
    assert "free some space" in caught.value.hint


KILLED = """
import os, signal, sys
import onnx_ir as ir
from dovetail_onnx.saving import save_model
from dovetail_onnx.opening import open_model

class Fatal(ir.LazyTensor):
    def chunks(self):
        yield bytes(100_000)
        os.kill(os.getpid(), signal.SIGKILL)

model = open_model(sys.argv[1])
model.graph.initializers["w"].const_value = Fatal(lambda: None, ir.DataType.FLOAT, ir.Shape([8, 4096]), name="w")
save_model(model, sys.argv[2], external=sys.argv[3] == "external")
"""


@pytest.mark.parametrize("form", ["inline", "external"])
def test_a_kill_leaves_what_was_there(make, tmp_path, form):
    target = tmp_path / "out" / "m.onnx"
    save_model(open_model(make(fill=3.0)), target, external=form == "external")
    before = content(target.parent)
    done = subprocess.run([sys.executable, "-c", KILLED, make(), target, form], env=os.environ, timeout=120)
    assert done.returncode == -signal.SIGKILL
    after = content(target.parent)
    assert {name: after[name] for name in before} == before
    assert all(name.endswith(".partial") for name in after.keys() - before)
    save_model(open_model(make(fill=4.0)), target, external=form == "external")
    assert (weight(target) == 4.0).all()
    assert not list(target.parent.glob(".*"))


def test_a_model_can_be_saved_over_itself(make):
    path = make(fill=5.0)
    save_model(open_model(path), path)
    assert (weight(path) == 5.0).all()
    save_model(open_model(path), path, external=True)
    assert (weight(path) == 5.0).all()
    save_model(open_model(path), path, external=False)
    assert (weight(path) == 5.0).all()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_data_file_is_named_after_its_content(make, tmp_path):
    target = tmp_path / "out.onnx"

    def data_file():
        (file,) = tmp_path.glob("out-*.data")
        return file

    save_model(open_model(make(fill=1.0)), target, external=True)
    first = data_file()
    save_model(open_model(make(fill=2.0)), target, external=True)
    second = data_file()  # the first is gone with the model that used it
    assert first != second
    save_model(open_model(make(fill=1.0)), target, external=True)
    assert data_file() == first
    assert (weight(target) == 1.0).all()


@pytest.mark.parametrize("external", [False, True, None])
def test_the_size_is_known_before_a_model_is_saved(make, tmp_path, external):
    made = onnx.load(make())
    others = [np.zeros(count, np.float32) for count in (1000, 1024, 5000)]
    made.graph.initializer.extend(numpy_helper.from_array(array, f"v{len(array)}") for array in others)
    (tmp_path / "more.onnx").write_bytes(made.SerializeToString())
    known = saved_size(open_model(tmp_path / "more.onnx"), external)
    files = save_model(
        open_model(tmp_path / "more.onnx"), tmp_path / "out.onnx", external=external, content_digest=True
    )
    assert 0 <= known - sum(file.size for file in files) < 100 * (1 + len(made.graph.initializer))


def test_files_of_others_stay(make, tmp_path):
    mine = tmp_path / "out-notes.data"
    mine.write_text("mine")
    save_model(open_model(make()), tmp_path / "out.onnx", external=True)
    save_model(open_model(make()), tmp_path / "out.onnx")
    assert mine.read_text() == "mine"


def test_weights_start_at_pages(make, tmp_path):
    save_model(open_model(make()), tmp_path / "out.onnx", external=True)
    (tensor,) = onnx.load(tmp_path / "out.onnx", load_external_data=False).graph.initializer
    entries = {entry.key: entry.value for entry in tensor.external_data}
    assert int(entries["offset"]) % 4096 == 0
    assert Path(entries["location"]).name == entries["location"]


def test_equal_models_give_equal_files(make, tmp_path):
    for name in ("a.onnx", "b.onnx"):
        save_model(open_model(make()), tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
