"""`dovetail export` of language models: what generators load, without anything of Dovetail, and steps of parts."""

import json

import dovetail
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError

pytest.importorskip("tokenizers")

from . import generators as nets
from .exported_nets import MIXED, module, steps_of_decoding
from .test_language_models import generated

OURS = ("plan", "remarks", "result.json", "dovetail")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """The folder of a decoder, with its license and card."""
    folder = nets.llama_folder(tmp_path_factory.mktemp("llama"))
    (folder / "LICENSE").write_text("as you like")
    (folder / "README.md").write_text("# A model that says little")
    return folder


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("backend", "models"),
    [("cpu-int8:weights=int8", ["model.onnx"]), ("cpu-bf16", ["model.float32.onnx"])],
)
def test_onnxruntime_genai_answers_from_what_is_shipped(llama, tmp_path, backend, models, capsys):
    dovetail.compile(llama, backend, verify=False).save(tmp_path / "out")
    assert main(["export", str(tmp_path / "out"), "--to", str(tmp_path / "shipped")]) == 0
    assert "for onnxruntime-genai" in capsys.readouterr().out
    shipped = names(tmp_path / "shipped")
    assert [name for name in shipped if name.endswith(".onnx")] == models
    texts = {
        "LICENSE",
        "README.md",
        "chat_template.jinja",
        "genai_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert {name for name in shipped if not name.endswith((".onnx", ".data"))} == texts
    assert not any(name.startswith(OURS) for name in shipped)
    assert generated(tmp_path / "shipped") == generated(tmp_path / "out")


def test_openvino_genai_answers_from_what_is_shipped(llama, tmp_path):
    pytest.importorskip("openvino_tokenizers")
    pytest.importorskip("transformers")
    genai = pytest.importorskip("openvino_genai")
    dovetail.compile(llama, "cpu-int8:weights=int8", verify=False, runtime="openvino-genai").save(tmp_path / "out")
    description = dovetail.export(tmp_path / "out", tmp_path / "shipped")
    assert description["runtime"] == "openvino-genai" and not any(
        name.startswith(OURS) for name in description["files"]
    )
    answers = [
        genai.LLMPipeline(str(folder), "CPU").generate("hello world", max_new_tokens=8, apply_chat_template=False)
        for folder in (tmp_path / "out", tmp_path / "shipped")
    ]
    assert answers[0] == answers[1]
    with pytest.raises(DovetailError, match="is for openvino-genai alone, and no runner runs its parts"):
        dovetail.export(tmp_path / "out", tmp_path / "another", "python")


@pytest.mark.parametrize(
    ("form", "models", "parts"),
    [
        ("encoder", ["decoder_model.onnx", "decoder_with_past_model.onnx", "encoder_model.onnx"], 3),
        ("merged", ["onnx/decoder_model_merged.onnx"], 2),
    ],
)
def test_folders_of_optimum_keep_the_names_of_their_models(tmp_path, form, models, parts):
    nets.optimum_folder(tmp_path / "source", form)
    dovetail.compile(tmp_path / "source", "cpu-bf16", verify=False).save(tmp_path / "out")
    dovetail.export(tmp_path / "out", tmp_path / "shipped")
    assert [name for name in names(tmp_path / "shipped") if name.endswith(".onnx")] == models
    read = {name for name in names(tmp_path / "shipped") if name.endswith(".data")}
    assert read <= set(names(tmp_path / "out"))
    assert len(dovetail.export(tmp_path / "out", tmp_path / "apart", "python")["parts"]) == parts


def test_a_decoder_on_two_engines_fills_its_caches(llama, tmp_path, capsys):
    """A plan with several engines is exported step by step, too."""
    dovetail.compile(llama, **MIXED).save(tmp_path / "out")
    assert main(["export", str(tmp_path / "out"), "--to", str(tmp_path / "shipped"), "--json"]) == 0
    description = json.loads(capsys.readouterr().out)["parts"]["model"]
    assert {step["engine"] for step in description["steps"]} == {"onnxruntime", "openvino"}
    assert description == json.loads((tmp_path / "shipped/parts/model/deploy.json").read_text())
    dovetail.export(tmp_path / "out", tmp_path / "run", "python")
    runner = module(tmp_path / "run/parts/model").Runner(tmp_path / "run/parts/model")
    for feeds, expected in steps_of_decoding(dovetail.load(tmp_path / "out")):
        found = runner.run(feeds)
        assert {name: array.tobytes() for name, array in found.items()} == {
            name: array.tobytes() for name, array in expected.items()
        }


def test_a_changed_file_and_a_folder_that_is_in_use_are_refused(llama, tmp_path):
    dovetail.compile(llama, "cpu-int8:weights=int8", verify=False).save(tmp_path / "out")
    with pytest.raises(DovetailError, match="exists, and is no export"):
        dovetail.export(tmp_path / "out", llama)
    (tmp_path / "out/genai_config.json").write_text("{}")
    with pytest.raises(DovetailError, match="genai_config.json is not the file that was saved with this result"):
        dovetail.export(tmp_path / "out", tmp_path / "shipped")
    assert not (tmp_path / "shipped").exists()
