"""`genai_config.json`: which models it names, when they run, and what of it follows the plan."""

import json
from pathlib import Path

import pytest
from dovetail_decoder.genai_config import read_genai_folder, written_config


def folder_of(path, model):
    (path / "genai_config.json").write_text(json.dumps({"model": model, "search": {"top_k": 50}}))
    for name in ("a.onnx", "b.onnx", "c.onnx", "d.onnx"):
        (path / name).touch()
    return read_genai_folder(path)


STAGES = [
    {"embeddings": {"filename": "a.onnx", "inputs": ["input_ids"], "outputs": ["inputs_embeds"]}},
    {
        "prompt": {"filename": "b.onnx", "run_on_token_gen": False},
        "token": {"filename": "c.onnx", "run_on_prompt": False},
    },
    {"head": {"filename": "d.onnx", "is_lm_head": True}},
]
MODELS = [
    ({"decoder": {"filename": "a.onnx"}}, [("decoder", "a.onnx", "always")]),
    (
        {"decoder": {"filename": "a.onnx"}, "encoder": {"filename": "b.onnx"}},
        [("encoder", "b.onnx", "once"), ("decoder", "a.onnx", "always")],
    ),
    (
        {
            "decoder": {"filename": "a.onnx"},
            "embedding": {"filename": "b.onnx"},
            "vision": {"filename": "c.onnx"},
            "speech": {"filename": "d.onnx"},
        },
        [
            ("vision", "c.onnx", "once"),
            ("speech", "d.onnx", "once"),
            ("embedding", "b.onnx", "always"),
            ("decoder", "a.onnx", "always"),
        ],
    ),
    (
        {"decoder": {"pipeline": STAGES}},
        [
            ("decoder.embeddings", "a.onnx", "always"),
            ("decoder.prompt", "b.onnx", "prompt"),
            ("decoder.token", "c.onnx", "step"),
            ("decoder.head", "d.onnx", "always"),
        ],
    ),
    (  # parts of newer versions: compiled, and run by nobody here
        {
            "decoder": {"filename": "a.onnx"},
            "drafter": {"filename": "b.onnx"},
            "tts": {"voice": {"filename": "c.onnx"}},
        },
        [("drafter", "b.onnx", "never"), ("tts.voice", "c.onnx", "never"), ("decoder", "a.onnx", "always")],
    ),
]


@pytest.mark.parametrize(("model", "parts"), MODELS)
def test_every_model_is_a_part_in_the_order_in_which_they_run(tmp_path, model, parts):
    found = folder_of(tmp_path, model)
    assert [(part.name, str(part.file), part.phase) for part in found.parts] == parts


CUDA = {"cuda": {"enable_cuda_graph": "0"}}


@pytest.mark.parametrize(
    ("given", "provider", "written"),
    [
        ([], "", []),
        ([CUDA], "", []),
        ([], "cuda", [{"cuda": {}}]),
        ([CUDA], "cuda", [CUDA]),  # settings of the same provider stay
        ([{"dml": {}}, CUDA], "cuda", [CUDA]),
    ],
)
def test_providers_follow_the_plan(tmp_path, given, provider, written):
    options = {"log_id": "x", "intra_op_num_threads": 2}
    decoder = {"filename": "a.onnx", "session_options": {**options, "provider_options": given}, "unknown": [1]}
    found = folder_of(tmp_path, {"decoder": decoder, "type": "llama"})
    document = written_config(found, {"decoder": Path("sub/other.onnx")}, {"decoder": provider})
    assert document["model"]["decoder"] == {
        "filename": "sub/other.onnx",
        "session_options": {**options, "provider_options": written},
        "unknown": [1],
    }
    assert document["search"] == {"top_k": 50} and document["model"]["type"] == "llama"
    assert found.document["model"]["decoder"]["session_options"]["provider_options"] == given  # not changed in place


def test_stages_of_a_pipeline_have_providers_of_their_own(tmp_path):
    found = folder_of(tmp_path, {"decoder": {"pipeline": STAGES}})
    files = {part.name: part.file for part in found.parts}
    providers = {part.name: "cuda" if part.name == "decoder.prompt" else "" for part in found.parts}
    stages = written_config(found, files, providers)["model"]["decoder"]["pipeline"]
    assert stages[1]["prompt"]["session_options"] == {"provider_options": [{"cuda": {}}]}
    assert "session_options" not in stages[1]["token"] and stages[0] == STAGES[0]
