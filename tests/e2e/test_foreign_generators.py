"""Folders of language models from somebody else: engines get no library, provider, path or code from them.

Each row puts one thing into a folder, in which the library `evil.so` lies. Neither that thing nor the library is in
what a tokenizer's library is given, or in the result.
"""

import json
import os
import pickle
import shutil
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import dovetail as api
import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError
from dovetail_decoder import manifest as manifests
from dovetail_decoder.reading import chain_of, read_folder
from dovetail_decoder.tuned_generator import Trial, TunedGenerator

from . import generators as nets

EVIL = "evil.so"
CONFIG = "genai_config.json"


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    return nets.llama_folder(tmp_path_factory.mktemp("llama"))


@pytest.fixture
def folder(intact, tmp_path):
    """A folder to put things into, with a library in it."""
    copy = Path(shutil.copytree(intact, tmp_path / "llama"))
    (copy / EVIL).write_bytes(b"\x7fELF\x02\x01\x01\x00a library")
    return copy


@pytest.fixture
def given(monkeypatch):
    """What the libraries of tokenizers get: the files of each folder by name, with their contents."""
    found = []

    class Tokenizer:
        def __init__(self, place):
            assert isinstance(place, str), "no model is loaded for its tokenizer"
            found.append(texts_in(Path(place)))

        def encode(self, text):
            return [3, 4, 5]

    genai = types.SimpleNamespace(Tokenizer=Tokenizer, disable_telemetry_events=lambda: None)
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", genai)
    return found


def texts_in(place):
    return {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}


def compiled(folder, output, **request):
    """Compile with texts, save, and return the result and its files."""
    request.setdefault("data", ["hello world"])
    result = api.compile(folder, "gpu-fp16", verify=False, try_engines=False, **request)
    result.save(output)
    return result, texts_in(output)


def put(document, keys, value):
    for key in keys[:-1]:
        document = document.setdefault(key, {})
    document[keys[-1]] = value


def of_session(key, value=EVIL):
    return CONFIG, ("model", "decoder", "session_options", key), value


def of_provider(provider, key, value=EVIL):
    return of_session("provider_options", [{provider: {key: value}}])


def of_run(key, value=EVIL):
    return CONFIG, ("model", "decoder", "run_options", key), value


def of(name, *keys, value=EVIL):
    return name, keys, value


HERE = "/home/somebody/evil"
KEYS = [
    of_session("custom_ops_library"),
    of_session("custom_ops_library", f"{HERE}/lib"),
    of_session("Custom_Ops_Library", HERE),
    of_session("custom_ops_library", [EVIL]),
    of_session("enable_profiling", HERE),
    of_session("log_id", f"../{HERE}"),
    of_session("intra_op_num_threads", f"{HERE}"),
    of_session("optimized_model_filepath", HERE),
    of_session("ep.context_enable", "1evil"),
    of_session("ep.context_file_path", HERE),
    of_session("ep.qnnexecutionprovider.backend_path", HERE),
    of_session("session.model_external_initializers_file_folder_path", HERE),
    of_session("session.load_model_format", "evil"),
    of_session("session.of_next_year", "evil"),
    of_session("registered_libraries", {"evil": HERE}),
    of_session("provider_options", {"QNN": {"backend_path": EVIL}}),
    of_session("provider_options", ["EvilExecutionProvider"]),
    of_session("providers", ["EvilExecutionProvider"]),
    of_provider("QNN", "backend_path"),
    of_provider("QNN", "profiling_file_path", HERE),
    of_provider("EvilExecutionProvider", "library_path"),
    of_provider("TensorrtExecutionProvider", "trt_extra_plugin_lib_paths"),
    of_provider("TensorRT", "trt_engine_cache_path", HERE),
    of_provider("OpenVINO", "load_config", f"{HERE}.json"),
    of_provider("OpenVINO", "cache_dir", HERE),
    of_provider("VitisAI", "config_file", HERE),
    of_provider("RyzenAI", "dd_root", HERE),
    of_provider("NvTensorRtRtx", "nv_runtime_cache_path", HERE),
    of_provider("NvTensorRTRTXExecutionProvider", "nv_onnx_bytestream", "140evil"),
    of_provider("cuda", "gpu_external_alloc", "140evil"),
    of_provider("CUDAExecutionProvider", "user_compute_stream", "140evil"),
    of_provider("cuda", "device_id", HERE),
    of_provider("cuda", "device_filtering_options", {"library": EVIL}),
    of_provider("WebGPU", "dawnProcTable", "140evil"),
    of_provider("DML", "dml_library", EVIL),
    of_run("qnn.lora_config", HERE),
    of_run("of_next_year", "evil"),
    of(CONFIG, "speculative", "session_options", "custom_ops_library"),
    of(CONFIG, "model", "vad", "run_options", "qnn.lora_config"),
    of(CONFIG, "model", "decoder", "custom_ops_library"),
    of(CONFIG, "engine", "plugin_library", value=HERE),
    of(CONFIG, "engine", "extensions", value={"evil": HERE}),
    of(CONFIG, "search", "sampler", value="sampler.EVIL.so"),
    of(CONFIG, "model", "vad", "filename"),
    of(f"cpu/{CONFIG}", "model", "decoder", "session_options", "custom_ops_library"),
    of("config.json", "auto_map", value={"AutoModel": "evil.Model"}),
    of("config.json", "text_config", "auto_map", value={"AutoModel": "evil.Model"}),
    of("config.json", "layers", value=[{"auto_map": {"AutoModel": "evil.Model"}}]),
    of("config.json", "trust_remote_code", value="evil"),
    of("config.json", "_attn_implementation", value="evil/flash-attention"),
    of("config.json", "attn_implementation", value="evil/flash-attention"),
    of("config.json", "_name_or_path", value=HERE),
    of("config.json", "custom_pipelines", value={"evil": {"impl": "evil.Pipeline"}}),
    of("generation_config.json", "custom_generate", value="evil/generate"),
    of("tokenizer_config.json", "auto_map", value={"AutoTokenizer": ["evil.Tokenizer", None]}),
    of("tokenizer_config.json", "vocab_file", value=f"../..{HERE}"),
    of("tokenizer_config.json", "vocab_file", value="C:\\evil"),
    of("tokenizer_config.json", "tokenizer_file", value="file:///evil"),
    of("processor_config.json", "auto_map", value={"AutoProcessor": "evil.Processor"}),
    of("quantize_config.json", "kernel", value="./EVIL.so"),
    of("openvino_config.json", "ov_config", value={"CACHE_DIR": HERE}),
]


def row_name(row):
    name, keys, value = row
    return f"{name}:{'.'.join(keys)}={json.dumps(value)[:40]}"


@pytest.mark.generated
@pytest.mark.parametrize("row", KEYS, ids=map(row_name, KEYS))
def test_keys_reach_neither_a_library_nor_the_result(row, folder, given, tmp_path):
    name, keys, value = row
    path = folder / name
    document = json.loads(path.read_text()) if path.is_file() else {}
    put(document, keys, value)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document))
    assert b"evil" in path.read_bytes().lower()
    (folder / "tokenizer.json").unlink()  # so that onnxruntime-genai reads the texts
    result, files = compiled(folder, tmp_path / "out")
    assert given, "the tokenizer was read"
    for held in (*given, files):
        assert CONFIG in held and EVIL not in held
        assert [found for found, content in held.items() if b"evil" in content.lower()] == []
    notes = "\n".join(result.notes())
    assert keys[-1] in notes or name in notes


def library(path):
    path.write_bytes(b"\x7fELF\x02\x01\x01\x00a library")


def archive(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data.pkl", "x")


def test_a_key_that_is_there_twice_is_not_read_in_two_ways(folder, given, tmp_path):
    """Python takes the last one; another reader may take the first."""
    twice = '{"auto_map": {"AutoTokenizer": "evil.Tokenizer"}, "auto_map": 1}'
    (folder / "tokenizer_config.json").write_text(twice)
    _, files = compiled(folder, tmp_path / "out")
    assert b"evil" not in files["tokenizer_config.json"]


FILES = {
    "evil.dll": b"MZ\x90\x00",
    "evil.dylib": b"\xcf\xfa\xed\xfe",
    "libevil.so.1": b"\x7fELF",
    "evil.pyd": b"MZ",
    "modeling_evil.py": b"import os",
    "evil.sh": b"echo",
    "setup.cfg": b"[options]",
    "evil.whl": b"PK\x03\x04",
    "pytorch_evil.bin": pickle.dumps({}),
    "evil.pkl": pickle.dumps({}),
    "evil.pt": b"PK\x03\x04",
    "evil.xml": b"<net/>",
    "evil.bin": b"weights",
    "plugins.xml": b"<ie><plugins><plugin name='CPU' location='evil.so'/></plugins></ie>",
    "evil.yaml": b"environments: {python: evil}",
    "evil.ort": b"ORTM",
    "evil.ipynb": b"{}",
    "notes_evil.txt": b"\x7fELF",  # under the name of a text
    "evil.model": b"PK\x03\x04",
    "evil.json": b"{'code': ",
    "LICENSE": b"#!/bin/sh",
    "sub/deeper/evil.so": b"\x7fELF",
    "openvino_config.json": b"{}",
    "result.json": b"{}",
    "plan.yaml": b"backends: [evil]",
}


@pytest.mark.generated
@pytest.mark.parametrize("name", FILES)
def test_files_are_copied_only_if_they_are_texts_or_data(name, folder, given, tmp_path):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(FILES[name])
    (folder / "tokenizer.json").unlink()
    result, files = compiled(folder, tmp_path / "out")
    for held in (*given, files):
        assert held.get(name) != FILES[name]
    assert name in "\n".join(result.notes()) or name in files or name in ("result.json", "plan.yaml")


def test_what_a_tokenizer_and_a_user_need_is_copied_as_it_is(folder, given, tmp_path):
    kept = {
        "vocab.txt": b"a\nb\n", "merges.txt": b"#version: 0.2\na b\n", "spiece.model": b"\x0a\x0e\x0a",
        "chat_template.jinja": b"{{ messages }}", "README.md": b"# A model", "LICENSE": b"free",
        "a.tiktoken": b"YQ== 0", "vocab.json": b'{"evil.so": 1, "auto_map": 2}',
        "sub/voice.safetensors": b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ",
    }  # fmt: skip
    for name, content in kept.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    settings = {"chat_template": "{{ x }}/..", "model_max_length": 96, "eos_token": {"content": "a.py"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    _, files = compiled(folder, tmp_path / "out")
    assert kept.items() <= files.items()
    assert json.loads(files["tokenizer_config.json"]) == settings


def test_options_that_are_numbers_and_words_stay(folder, tmp_path):
    options = {
        "log_id": "onnxruntime-genai", "intra_op_num_threads": 2, "graph_optimization_level": "ORT_ENABLE_ALL",
        "session.intra_op.allow_spinning": "0", "provider_options": [],
    }  # fmt: skip
    document = json.loads((folder / CONFIG).read_text())
    document["model"]["decoder"]["session_options"] = options
    (folder / CONFIG).write_text(json.dumps(document))
    result, files = compiled(folder, tmp_path / "out")
    assert json.loads(files[CONFIG])["model"]["decoder"]["session_options"] == options
    assert not any(f"{CONFIG}: left out" in note for note in result.notes())


ESCAPES = [
    ("model", "decoder", "filename", "/etc/model.onnx"),
    ("model", "decoder", "filename", "..\\model.onnx"),
    ("model", "decoder", "filename", "C:\\model.onnx"),
    ("model", "vision", "adapter_filename", "../adapter.onnx_adapter"),
    ("model", "vision", "config_filename", "/etc/passwd"),
    ("model", "tokenizer_dir", "/etc"),
    ("model", "tokenizer_dir", "../.."),
    ("model", "decoder", "shared_initializers", [{"name": "w", "data_file": "../weights"}]),
]


@pytest.mark.parametrize("row", ESCAPES, ids=lambda row: f"{row[-2]}={row[-1]}")
def test_files_that_models_are_read_from_lie_in_the_folder(row, folder, tmp_path):
    document = json.loads((folder / CONFIG).read_text())
    put(document, row[:-1], row[-1])
    (folder / CONFIG).write_text(json.dumps(document))
    with pytest.raises(DovetailError, match="leads out of the folder"):
        compiled(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void ran(void) { FILE *f = fopen(getenv("MARK"), "w"); if (f) fclose(f); }
void *RegisterCustomOps(void *options, const void *api) { return 0; }
"""


@pytest.mark.generated(one_of=2)
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("tokenizer", [True, False])
def test_a_real_library_of_the_folder_never_runs(dovetail, folder, tmp_path, tokenizer):
    """Neither to read texts and compare source and result, nor in a generator that loads the result."""
    pytest.importorskip("tokenizers")
    genai = pytest.importorskip("onnxruntime_genai").__name__
    (tmp_path / "evil.c").write_text(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / EVIL, tmp_path / "evil.c"], check=True)
    document = json.loads((folder / CONFIG).read_text())
    for row in KEYS[:3]:
        put(document, row[1], str(folder / EVIL))
    (folder / CONFIG).write_text(json.dumps(document))
    if not tokenizer:
        (folder / "tokenizer.json").unlink()
    (tmp_path / "texts.txt").write_text("hello world\n")
    load = f"import onnxruntime, {genai} as g, sys; g.Model(sys.argv[1])"
    mark = tmp_path / "ran"
    environment = {**os.environ, "MARK": str(mark)}
    subprocess.run([sys.executable, "-c", load, str(folder)], env=environment, capture_output=True)
    assert mark.exists(), "a generator loads the source's library"
    mark.unlink()
    words = ["--backend", "gpu-fp16", "--data", tmp_path / "texts.txt", "-o", tmp_path / "out"]
    dovetail("compile", folder, *words, MARK=str(mark))
    assert (tmp_path / "out").exists() == tokenizer
    if tokenizer:
        subprocess.run([sys.executable, "-c", load, str(tmp_path / "out")], env=environment, check=True)
    assert not mark.exists()


PRIVATE = b"PRIVATE KEY"


@pytest.fixture
def private(tmp_path):
    """A file of the user, and a folder with it, outside of the model's folder."""
    place = tmp_path / "home"
    place.mkdir()
    (place / "id_rsa").write_bytes(PRIVATE)
    return place / "id_rsa"


def absolute(folder, name, target):
    (folder / name).symlink_to(target)


def relative(folder, name, target):
    (folder / name).symlink_to(os.path.relpath(target, (folder / name).parent))


def chain(folder, name, target):
    (folder / "sub").mkdir()
    (folder / "sub/first").symlink_to(target)
    (folder / name).symlink_to("sub/first")


def through_folder(folder, name, target):
    (folder / "linked").symlink_to(target.parent, target_is_directory=True)
    (folder / name).symlink_to(Path("linked") / target.name)


def as_folder(folder, name, target):
    (folder / name).symlink_to(target.parent, target_is_directory=True)


@pytest.mark.generated
@pytest.mark.parametrize("link", [absolute, relative, chain, through_folder, as_folder])
@pytest.mark.parametrize("name", ["added_tokens.json", "vocab.txt", "notes.md", "a.data"])
def test_links_that_lead_out_are_left_out_by_name(link, name, folder, private, tmp_path):
    link(folder, name, private)
    result, files = compiled(folder, tmp_path / "out", data=None)
    assert PRIVATE not in b"".join(files.values())
    (note, *_) = (note for note in result.notes() if note.startswith(f"{name} is left out of the result"))
    assert "a link that leads out of the folder, to " in note and "copy the file into the folder" in note


@pytest.mark.generated
@pytest.mark.parametrize("link", [absolute, relative, chain, through_folder])
@pytest.mark.parametrize("name", [CONFIG, "tokenizer.json", "model.onnx", "model.onnx.data", "dovetail.json"])
def test_links_that_lead_out_are_not_read_either(link, name, folder, private, tmp_path):
    if (folder / name).exists():
        shutil.move(folder / name, private)
    else:
        private.write_text('{"format": 1, "files": {}}')
    link(folder, name, private)
    with pytest.raises(DovetailError, match=f"{name}.*leads out of the folder|outside the model's folder") as caught:
        compiled(folder, tmp_path / "out")
    assert "copy the" in caught.value.hint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["past", "two", "merged", "encoder"])
def test_models_of_optimum_are_not_read_through_links_that_lead_out(form, tmp_path):
    folder = nets.optimum_folder(tmp_path / "optimum", form)
    for file in list(folder.rglob("*.onnx"))[:1]:
        file.rename(tmp_path / file.name)
        file.symlink_to(tmp_path / file.name)
    with pytest.raises(DovetailError, match="is a link that leads out of the folder"):
        compiled(folder, tmp_path / "out")


def test_data_of_a_merged_decoder_is_not_read_through_links_that_lead_out(tmp_path):
    """Its branches are written apart, with their data."""
    folder = nets.optimum_folder(tmp_path / "optimum", "merged")
    (file,) = folder.rglob("*.onnx")
    nets.save(onnx.load(file), file, external=True)
    data = file.with_name(f"{file.name}.data")
    data.rename(tmp_path / "data")
    data.symlink_to(tmp_path / "data")
    with pytest.raises(DovetailError, match=data.name):
        compiled(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def moved(folder, place):
    """Move all files of a folder to a place, and leave links to them."""
    files = sorted(folder.iterdir())
    place.mkdir(parents=True)
    for number, file in enumerate(files):
        file.rename(place / f"{number:064x}")
        file.symlink_to(os.path.relpath(place / f"{number:064x}", folder))


@pytest.mark.parametrize("store", ["../../blobs", ".git/annex/objects", "../.dvc/cache", "sub"])
def test_links_within_a_cache_are_followed(store, folder, tmp_path):
    """As huggingface_hub, git-annex and DVC keep files; a folder may also have links to its own files."""
    (folder / EVIL).unlink()
    place = tmp_path / "models--x/snapshots/0f1e"
    place.parent.mkdir(parents=True)
    folder.rename(place)
    (place / "vocab.txt").write_text("a")
    moved(place, place / store if not store.startswith("..") else (place / store).resolve())
    _, files = compiled(place, tmp_path / "out")
    assert {"vocab.txt", "tokenizer.json", "model.onnx"} <= files.keys() and files["vocab.txt"] == b"a"


def test_blobs_that_are_a_link_are_no_cache(folder, private, tmp_path):
    """A cache from an archive cannot declare a folder of the user to be its own."""
    place = tmp_path / "models--x/snapshots/0f1e"
    place.parent.mkdir(parents=True)
    folder.rename(place)
    (tmp_path / "models--x/blobs").symlink_to(private.parent, target_is_directory=True)
    (place / "vocab.txt").symlink_to("../../blobs/id_rsa")
    result, files = compiled(place, tmp_path / "out", data=None)
    assert PRIVATE not in b"".join(files.values())
    assert any(note.startswith("vocab.txt is left out") for note in result.notes())


def test_hard_links_are_files_like_any_other(folder, private, tmp_path):
    """Copies and caches consist of them (`cp -al`), and no archive can contain one to a file outside of it."""
    os.link(private, folder / "vocab.txt")
    _, files = compiled(folder, tmp_path / "out", data=None)
    assert files["vocab.txt"] == PRIVATE


@pytest.fixture
def result(intact, tmp_path):
    """A result from somebody else, of which anything may be changed."""
    compiled(intact, tmp_path / "result", data=None)
    return tmp_path / "result"


@pytest.mark.parametrize("row", [*KEYS[:6], *KEYS[15:20]], ids=row_name)
def test_a_generator_of_a_result_gets_no_options_of_it(row, result, monkeypatch):
    name, keys, value = row
    document = json.loads((result / name).read_text())
    put(document, keys, value)
    (result / name).write_text(json.dumps(document))
    sessions = []
    monkeypatch.setattr("dovetail_onnx.native_runtime.new_session", lambda *given: sessions.append(given))
    chain_of(read_folder(result)).load()
    ((path, options, providers),) = sessions
    assert (Path(path).parent, providers) == (result, ["CPUExecutionProvider"])
    with pytest.raises(RuntimeError):
        options.get_session_config_entry(keys[-1])
    assert "evil" not in json.dumps(read_folder(result).document)


def tuned(source, result):
    found = TunedGenerator(read_folder(source), [Trial("host", result)], [], 1, None)
    found.winner = found.trials[0]
    return found


@pytest.mark.parametrize("threads", [0, 2])
def test_a_kept_candidate_of_tune_is_copied_without_what_was_added_to_it(threads, intact, result, tmp_path):
    (result / EVIL).write_bytes(b"\x7fELF")
    (result / "vocab.txt").symlink_to("/etc/hostname")
    found = tuned(intact, result)
    found.winner.threads = threads
    found.save(tmp_path / "out")
    assert "model.onnx" in texts_in(tmp_path / "out") and not {EVIL, "vocab.txt"} & texts_in(tmp_path / "out").keys()
    found.save(tmp_path / "again")


@pytest.mark.parametrize("name", [CONFIG, "tokenizer.json"])
def test_a_kept_candidate_of_tune_that_was_changed_is_an_error(name, intact, result, tmp_path):
    (result / name).write_text("{}")
    with pytest.raises(DovetailError, match=f"{name} is not the file that was saved with this result"):
        tuned(intact, result).save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_a_manifest_lists_outside_of_its_folder_is_not_copied(intact, result, private, tmp_path):
    manifest = json.loads((result / manifests.MANIFEST).read_text())
    manifest["files"]["../home/id_rsa"] = manifests.record_of(private)
    (result / manifests.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(DovetailError, match="is not the file that was saved"):
        tuned(intact, result).save(tmp_path / "out")


def program(path, **attributes):
    """A model of a compiled program that lies anywhere."""
    inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4]) for name in "xy"]
    node = onnx.helper.make_node("EPContext", ["x"], ["y"], "program", domain="com.microsoft", **attributes)
    graph = onnx.helper.make_graph([node], "g", inputs[:1], inputs[1:])
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


PROGRAMS = [
    {"embed_mode": 0, "ep_cache_context": "/home/somebody/evil.bin"},
    {"embed_mode": 0, "ep_cache_context": "../evil.bin"},
    {"embed_mode": 1, "ep_cache_context": b"\xff\x00"},
    {"embed_mode": 0, "ep_cache_context": "a.bin", "onnx_model_filename": "/home/somebody/evil.onnx"},
]


@pytest.mark.generated
@pytest.mark.parametrize("attributes", PROGRAMS, ids=str)
@pytest.mark.parametrize("backend", ["gpu-fp16", "cpu-bf16", "qnn"])
def test_programs_in_a_source_are_refused(attributes, backend, tmp_path):
    with pytest.raises(DovetailError, match="'program'|not UTF-8"):
        api.compile(program(tmp_path / "model.onnx", **attributes), backend).run({"x": np.zeros((1, 4), np.float32)})


@pytest.mark.parametrize("what", ["program", "options", "data", "plain"])
def test_other_models_of_the_folder_are_copied_if_they_name_nothing_elsewhere(what, folder, tmp_path):
    model = onnx.load(folder / "model.onnx")
    if what == "program":
        program(folder / "other.onnx", ep_cache_context="/home/somebody/evil.bin")
    elif what == "options":
        model.metadata_props.add(key="ort_config", value='{"session_options": {"enable_profiling": 1}}')
        onnx.save(model, folder / "other.onnx")
    elif what == "data":
        onnx.save(model, folder / "other.onnx", save_as_external_data=True, location="d.data", size_threshold=64)
        content = (folder / "other.onnx").read_bytes()
        (folder / "other.onnx").write_bytes(content.replace(b"d.data", b"../dat"))
    else:
        onnx.save(model, folder / "other.onnx")
    result, files = compiled(folder, tmp_path / "out")
    assert ("other.onnx" in files) == (what == "plain")
    assert any("other.onnx" in note for note in result.notes()) == (what != "plain")
