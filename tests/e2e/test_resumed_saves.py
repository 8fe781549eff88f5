"""A process that is killed while it writes weights leaves them for the next one of the same request alone."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import onnx
import pytest
from dovetail import api
from dovetail_onnx.files import resumable
from dovetail_onnx.files.receipts import receipts_folder
from dovetail_onnx.results import saving
from onnx import TensorProto, helper, numpy_helper

from tests.e2e import generators as nets

WEIGHTS, WIDTH = 8, 256

SCRIPT = """
import os, signal, sys
from pathlib import Path
from dovetail import api
from dovetail_onnx.files import resumable

source, out, backend, killed_at = sys.argv[1:]
resumable.RESUMABLE_ABOVE = 0
written, complete = [], resumable.DataFile.complete

def counted(self, name, length, again):
    written.append(name)
    if len(written) == int(killed_at):
        os.kill(os.getpid(), signal.SIGKILL)
    complete(self, name, length, again)

resumable.DataFile.complete = counted
compiled = api.compile(Path(source), backend, verify=False, try_engines=False)
compiled.save(out, external=True)
print(len(written))
"""


def chain(path, seed=0, tiny=False):
    """Products with a weight of 256 KiB each."""
    random, nodes, weights = np.random.default_rng(seed), [], []
    for number in range(WEIGHTS):
        array = random.standard_normal((WIDTH, WIDTH)).astype(np.float32)
        if tiny and number == 2:
            array[0, 0] = 1e-30  # zero in float16
        weights.append(numpy_helper.from_array(array, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [f"x{number}", f"w{number}"], [f"x{number + 1}"], f"n{number}"))
    ends = [helper.make_tensor_value_info(f"x{end}", TensorProto.FLOAT, ["N", WIDTH]) for end in (0, WEIGHTS)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, path, save_as_external_data=True, location=f"{path.stem}.data", size_threshold=1024)
    return path


def compiled(source, out, backend="gpu-fp16", killed_at=0):
    """Compile in a process that is killed behind some weights; return how many it wrote if it ended by itself."""
    words = [sys.executable, "-c", SCRIPT, str(source), str(out), backend, str(killed_at)]
    done = subprocess.run(words, capture_output=True, text=True)
    if killed_at:
        assert done.returncode == -signal.SIGKILL, done.stderr
        return None
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def unfinished(folder):
    return [path for path in folder.iterdir() if resumable.UNFINISHED.fullmatch(path.name)]


@pytest.fixture
def source(tmp_path):
    (tmp_path / "source").mkdir()
    return chain(tmp_path / "source/model.onnx")


@pytest.mark.parametrize("backend", ["gpu-fp16", pytest.param("cpu-int8:weights=int4", marks=pytest.mark.slow)])
def test_what_was_written_is_not_written_again_and_the_result_is_the_same(source, tmp_path, backend):
    whole = compiled(source, tmp_path / "whole", backend)
    compiled(source, tmp_path / "out", backend, killed_at=5)
    assert len(unfinished(tmp_path / "out")) == 1
    assert compiled(source, tmp_path / "out", backend) == whole - 4
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert not unfinished(tmp_path / "out")


@pytest.mark.slow
def test_a_second_kill_costs_as_little(source, tmp_path):
    whole = compiled(source, tmp_path / "whole")
    compiled(source, tmp_path / "out", killed_at=3)
    compiled(source, tmp_path / "out", killed_at=3)
    assert compiled(source, tmp_path / "out") == whole - 4
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def edited_source(source, out):
    chain(source, seed=1)


def touched_source(source, out):
    os.utime(source.with_suffix(".data"), ns=(0, 0))


def damaged_bytes(source, out):
    (folder,) = unfinished(out)
    data = bytearray((folder / "weights.data").read_bytes())
    data[100] ^= 1
    (folder / "weights.data").write_bytes(data)


def another_name(source, out):
    (folder,) = unfinished(out)
    journal = folder / "journal.jsonl"
    journal.write_text(journal.read_text().replace("w0", "w9"))


def no_json(source, out):
    (folder,) = unfinished(out)
    (folder / "journal.jsonl").write_text("{[\n")


def copied_from_elsewhere(source, out):
    (folder,) = unfinished(out)
    shutil.move(folder, folder.with_name("kept"))
    shutil.copytree(folder.with_name("kept"), folder)
    shutil.rmtree(folder.with_name("kept"))


def link(source, out):
    (folder,) = unfinished(out)
    shutil.move(folder, out.parent / "elsewhere")
    folder.symlink_to(out.parent / "elsewhere")


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        edited_source,
        damaged_bytes,
        copied_from_elsewhere,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (touched_source, another_name, no_json, link)),
    ],
    ids=lambda change: change.__name__,
)
def test_nothing_is_taken_over_that_may_be_something_else(source, tmp_path, change):
    compiled(source, tmp_path / "out", killed_at=5)
    change(source, tmp_path / "out")
    whole = compiled(source, tmp_path / "whole")
    assert compiled(source, tmp_path / "out") == whole
    ours = {name: data for name, data in content(tmp_path / "out").items() if "unfinished" not in name}
    assert ours == content(tmp_path / "whole")


@pytest.mark.slow
def test_another_request_takes_nothing_over_and_removes_what_is_left(source, tmp_path):
    compiled(source, tmp_path / "out", killed_at=5)
    compiled(source, tmp_path / "out", "cpu-bf16")
    compiled(source, tmp_path / "whole", "cpu-bf16")
    assert content(tmp_path / "out") == content(tmp_path / "whole")


@pytest.mark.slow
def test_what_conversions_find_is_told_after_a_kill_too(tmp_path):
    (tmp_path / "source").mkdir()
    source = chain(tmp_path / "source/model.onnx", tiny=True)
    compiled(source, tmp_path / "whole")
    compiled(source, tmp_path / "out", killed_at=6)
    compiled(source, tmp_path / "out")
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    remarks = json.loads((tmp_path / "out/remarks.json").read_text())
    assert "became zero" in json.dumps(remarks)


@pytest.mark.slow
def test_a_folder_of_a_language_model_is_resumed_too(tmp_path):
    (tmp_path / "source").mkdir()
    source = nets.llama_folder(tmp_path / "source")
    whole = compiled(source, tmp_path / "whole")
    compiled(source, tmp_path / "out", killed_at=4)
    assert compiled(source, tmp_path / "out") == whole - 3
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_an_error_leaves_nothing(source, tmp_path, monkeypatch):
    monkeypatch.setattr(resumable, "RESUMABLE_ABOVE", 0)
    before = receipts()
    result = api.compile(source, "gpu-fp16", verify=False, try_engines=False)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(resumable.DataFile, "complete", full)
    with pytest.raises(Exception, match="[Nn]o space"):
        result.save(tmp_path / "out", external=True)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
    assert not receipts() - before


def receipts():
    folder = receipts_folder()
    return set(folder.iterdir()) if folder is not None else set()


def test_the_source_of_a_small_result_is_not_read_again(tmp_path, monkeypatch):
    compiled = api.compile(chain(tmp_path / "net.onnx"), "gpu-fp16", verify=False, try_engines=False)

    def read(path):
        raise AssertionError(f"{path} is read")

    monkeypatch.setattr(saving, "open_model", read)
    compiled.save(tmp_path / "out", external=True)
    assert (tmp_path / "out" / "model.onnx").is_file()
