"""Data of other file systems, read with fsspec; the one of these tests is in memory."""

import builtins
import io

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError
from dovetail_runtime.data.file_items import file_items
from dovetail_runtime.data.sources import data_digest, read_data

fsspec = pytest.importorskip("fsspec")
NET = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x) => (float[N, 4] y) { y = Softmax(x) }"""
URL = "memory://samples"


@pytest.fixture
def store():
    """A file system with six samples."""
    system = fsspec.filesystem("memory")
    for number in range(5):
        content = io.BytesIO()
        np.savez(content, x=np.full((2, 4), number, np.float32))
        system.pipe(f"/samples/{number}.npz", content.getvalue())
    content = io.BytesIO()
    np.save(content, np.full((2, 4), 5, np.float32))
    system.pipe("/samples/5.npy", content.getvalue())
    system.pipe("/samples/readme.txt", b"no data")
    yield system
    system.rm("/samples", recursive=True)


def test_files_are_read_in_order(store):
    found = list(read_data(URL, ["x"]))
    assert [arrays["x"][0, 0] for arrays, _ in found] == [0, 1, 2, 3, 4, 5]
    assert found[0][1] == "memory:///samples/0.npz"
    assert [arrays["x"][0, 0] for arrays, _ in read_data(f"{URL}/3.npz", ["x"])] == [3]


def test_parts_open_their_files_alone(store, monkeypatch):
    model = dovetail.open(onnx.parser.parse_model(NET))
    parts = file_items(model, URL).divided(2)
    store.rm("/samples/1.npz")
    store.pipe("/samples/1.npz", b"damaged")
    assert [batch["x"][0, 0] for batch in parts[0]] == [0, 2, 4]
    with pytest.raises(DovetailError, match=r"memory:///samples/1\.npz is not an \.npz file"):
        list(parts[1])


def test_a_model_is_compiled_with_them(store):
    compiled = dovetail.compile(onnx.parser.parse_model(NET), "cpu-int8", data=URL)
    assert compiled.plan.request.data == URL and compiled.verification.batches


def test_the_digest_changes_with_a_file(store):
    before = data_digest(URL)
    assert before == data_digest(URL)
    store.pipe("/samples/2.npz", b"another content")
    assert data_digest(URL) != before


MISSING = {
    "memory://nothing": "holds no .npz", "memory://samples/readme.txt": "holds no .npz",
    "nonsense://samples": "cannot be read",
}  # fmt: skip


@pytest.mark.parametrize(("url", "why"), MISSING.items(), ids=MISSING)
def test_what_is_not_there(store, url, why):
    with pytest.raises(DovetailError, match=why):
        list(read_data(url, ["x"]))


def test_without_fsspec(store, monkeypatch):
    def importing(name, *rest, real=builtins.__import__):
        if name.startswith("fsspec"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(DovetailError, match="is read with fsspec, which is not installed"):
        list(read_data(URL, ["x"]))


def test_a_file_url_is_a_path(tmp_path):
    np.savez(tmp_path / "a sample.npz", x=np.ones((2, 4), np.float32))
    given = dovetail.input_data(f"file://{str(tmp_path).replace(' ', '%20')}/a%20sample.npz").given
    assert given == tmp_path / "a sample.npz"
