"""Prompts in all their forms become token ids."""

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail_decoder.folder import GeneratorFolder
from dovetail_decoder.tokens import read_prompts


@pytest.fixture
def folder(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = {"<unk>": 0, "hello": 1, "world": 2}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return GeneratorFolder(tmp_path, tmp_path / "config.json", [], context=8, vocabulary=10)


def ids(data, folder):
    return [prompt.ids.tolist() for prompt in read_prompts(data, folder)]


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (["hello world", "world"], [[1, 2], [2]]),
        ([[3, 4], [5]], [[3, 4], [5]]),
        ([3, 4], [[3, 4]]),
        (np.array([[3, 4], [5, 6]]), [[3, 4], [5, 6]]),
        (np.array([3, 4], np.uint8), [[3, 4]]),
        ({"input_ids": np.array([[3, 4]])}, [[3, 4]]),
        # Padding on either side is no part of a prompt.
        (
            {"input_ids": np.array([[3, 4, 0], [0, 5, 6]]), "attention_mask": np.array([[1, 1, 0], [0, 1, 1]])},
            [[3, 4], [5, 6]],
        ),
    ],
)
def test_in_memory(data, wanted, folder):
    assert ids(data, folder) == wanted


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("prompts.txt", "hello world\n\n  world hello \n", [[1, 2], [2, 1]]),
        ("texts.json", json.dumps(["hello", "other world"]), [[1], [0, 2]]),
        ("prompts.json", json.dumps({"prompts": ["hello"]}), [[1]]),
        ("ids.json", json.dumps({"input_ids": [[3], [4, 5]]}), [[3], [4, 5]]),
    ],
)
def test_files(tmp_path, folder, name, content, wanted):
    (tmp_path / name).write_text(content)
    assert ids(tmp_path / name, folder) == wanted


def test_arrays_come_with_what_other_parts_need(tmp_path, folder):
    np.save(tmp_path / "ids.npy", np.array([[3, 4]]))
    assert ids(tmp_path / "ids.npy", folder) == [[3, 4]]
    np.savez(tmp_path / "all.npz", input_ids=np.array([[3], [4]]), pixel_values=np.arange(4.0).reshape(2, 2))
    first, second = read_prompts(str(tmp_path / "all.npz"), folder)
    assert first.others["pixel_values"].tolist() == [[0.0, 1.0]] and second.others["pixel_values"].shape == (1, 2)


def test_errors_name_the_line(tmp_path, folder):
    (tmp_path / "prompts.txt").write_text("hello\n\n" + "world " * 9)
    with pytest.raises(DovetailError, match=r"prompts\.txt:3 has 9 tokens, and the model's context holds 8"):
        read_prompts(Path(tmp_path / "prompts.txt"), folder)


def test_without_a_library_for_tokenizers_the_error_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", None)
    with pytest.raises(DovetailError, match="nothing reads .*tokenizer.json here") as caught:
        read_prompts(["hello"], folder)
    assert "pip install 'dovetail-decoder[tokenizers]'" in caught.value.hint
    assert ids([[3]], folder) == [[3]]  # ids need none


def test_without_a_tokenizer_the_error_names_the_file(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", None)
    with pytest.raises(DovetailError, match="has no tokenizer.json"):
        read_prompts(["hello"], GeneratorFolder(tmp_path, tmp_path / "config.json", []))


def test_a_generator_that_loads_a_model_for_its_tokenizer_is_not_used(tmp_path, monkeypatch):
    """Such a version would load what the folder's configuration names."""

    class Tokenizer:
        def __init__(self, model):
            raise TypeError("incompatible function arguments")

    earlier = types.SimpleNamespace(Tokenizer=Tokenizer, disable_telemetry_events=lambda: None)
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", earlier)
    with pytest.raises(DovetailError, match="loads no tokenizer without its model") as caught:
        read_prompts(["hello"], GeneratorFolder(tmp_path, tmp_path / "config.json", []))
    assert "pip install -U onnxruntime-genai" in caught.value.hint
