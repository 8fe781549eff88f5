"""Files that stand for others, or are in a format of one program, are named as what they are, with the way out."""

import json
import shutil
from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail.errors import DovetailError

EXAMPLES = Path(__file__).parents[3] / "examples"
DIGITS, DECODER = EXAMPLES / "digits" / "digits.onnx", EXAMPLES / "decoder" / "model"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "4d7a" * 16 + "\nsize 12345\n"


@pytest.mark.parametrize("name", ["m.onnx", "m.pdmodel", "m.json", "m.onnxtxt", "m.bin"])
def test_a_model_that_git_lfs_has_not_fetched(name, tmp_path):
    (tmp_path / name).write_text(POINTER)
    with pytest.raises(DovetailError, match=f"{name} is a pointer of Git LFS") as caught:
        dovetail.open(tmp_path / name)
    assert "git lfs pull" in caught.value.hint


@pytest.mark.parametrize("data", ["m.data", "weights.bin"])
def test_weights_that_git_lfs_has_not_fetched(data, tmp_path):
    file = tmp_path / "m.onnx"
    onnx.save(onnx.load(DIGITS), file, save_as_external_data=True, location=data, size_threshold=0)
    (tmp_path / data).write_text(POINTER)
    with pytest.raises(DovetailError, match=f"{data} is a pointer of Git LFS") as caught:
        dovetail.open(file)
    assert "git lfs pull" in caught.value.hint


@pytest.mark.parametrize("name", ["d.npz", "d.npy", "d.pb", "folder/d.npz"])
def test_data_that_git_lfs_has_not_fetched(name, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(POINTER)
    given = (tmp_path / name).parent if "/" in name else tmp_path / name
    with pytest.raises(DovetailError, match="is a pointer of Git LFS"):
        dovetail.compile(DIGITS, "cpu-bf16", data=given)


def test_the_model_of_a_folder_that_git_lfs_has_not_fetched(tmp_path):
    shutil.copytree(DECODER, tmp_path / "model")
    (tmp_path / "model" / "model.onnx").write_text(POINTER)
    with pytest.raises(DovetailError, match="is a pointer of Git LFS"):
        dovetail.compile_folder(tmp_path / "model", backends="cpu-bf16")


@pytest.mark.parametrize("name", ["m.ort", "m.onnx"])
@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_model_in_the_format_of_onnxruntime(name, as_bytes, tmp_path):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / name), 4
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(DIGITS), options, providers=["CPUExecutionProvider"])
    with pytest.raises(DovetailError, match="in ONNX Runtime's own format") as caught:
        dovetail.open((tmp_path / name).read_bytes() if as_bytes else tmp_path / name)
    assert "the ONNX file that it was converted from" in caught.value.hint


def test_other_files_are_called_what_they_were_called(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"version 2 of something")
    with pytest.raises(DovetailError, match="is not an ONNX model, or it is cut short"):
        dovetail.open(tmp_path / "m.onnx")
    (tmp_path / "m.json").write_text(json.dumps({"a": 1}))
    with pytest.raises(DovetailError, match=r"m.json") as caught:
        dovetail.open(tmp_path / "m.json")
    assert "LFS" not in caught.value.message
    np.savez(tmp_path / "d.npz", image=np.zeros((1, 1, 8, 8), np.float32))
    assert dovetail.compile(DIGITS, "cpu-bf16", data=tmp_path / "d.npz").verification is not None
