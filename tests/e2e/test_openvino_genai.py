"""`--runtime openvino-genai`: folders that `LLMPipeline` loads, and that compute what the plan says."""

import json
import shutil

import dovetail as api
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError, UsageError
from dovetail_decoder import tuning
from dovetail_decoder.foreign_files import copy_tokenizer
from dovetail_decoder.reading import chain_of, read_folder
from dovetail_decoder.states import Generation
from dovetail_decoder.tokens import Prompt
from dovetail_tune.folders import tuned_folder

pytest.importorskip("tokenizers")

from . import generators as nets

ov = pytest.importorskip("openvino")
genai = pytest.importorskip("openvino_genai")
pytest.importorskip("openvino_tokenizers")
pytest.importorskip("transformers")

PROMPT = [1, 20, 30, 40, 50]
IN_FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32"}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return nets.llama_folder(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module", params=["cpu-int8:weights=int4", "cpu-int8:weights=int8"])
def compiled(request, llama, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "result"
    made = api.compile(llama, request.param, verify=False, runtime="openvino-genai")
    made.save(folder)
    return made.parts["decoder"], folder


def decoded(step, count):
    """Tokens with the highest scores, and the scores, of a prompt and what follows it."""
    scores = [step(PROMPT)]
    tokens = [int(scores[0][-1].argmax())]
    while len(tokens) < count:
        scores.append(step(tokens[-1:]))
        tokens.append(int(scores[-1][-1].argmax()))
    return tokens, scores


def by_plan(part):
    caches = {
        value.name: np.zeros((1, value.shape[1], 0, nets.SIZE), np.float32)
        for value in part.model.graph.inputs
        if value.name.startswith("past")
    }
    seen = 0

    def step(ids):
        nonlocal caches, seen
        seen += len(ids)
        found = part.run({"input_ids": np.array([ids]), "attention_mask": np.ones((1, seen), np.int64), **caches})
        caches = {name: found[name.replace("past_key_values", "present")] for name in caches}
        return found["logits"][0]

    return step


def by_openvino(folder):
    request = ov.Core().compile_model(folder / "openvino_model.xml", "CPU", IN_FLOAT32).create_infer_request()
    seen = 0

    def step(ids):
        nonlocal seen
        seen += len(ids)
        feeds = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, seen), np.int64)}
        request.infer({**feeds, "beam_idx": np.zeros(1, np.int32)})
        return request.get_output_tensor(0).data[0].copy()

    return step


def test_its_scores_are_those_of_the_plan_for_prompts_and_single_tokens(compiled):
    part, folder = compiled
    (tokens, planned), (same, found) = decoded(by_plan(part), 8), decoded(by_openvino(folder), 8)
    assert tokens == same
    for one, other in zip(planned, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)


def test_a_tuner_runs_it_with_its_states_and_each_text_begins_anew(compiled):
    part, folder = compiled
    tokens, planned = decoded(by_plan(part), 4)
    chain = chain_of(read_folder(folder))
    for streams in (1, 2):
        generation = Generation(chain, Prompt(np.array(PROMPT), "a prompt", {}), streams=streams)
        for ids, scores in zip((PROMPT, *([token] for token in tokens)), planned):
            np.testing.assert_allclose(generation.feed(np.array(ids)), scores, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_it_competes_with_results_for_onnxruntime_and_the_winner_is_written(llama, tmp_path, monkeypatch):
    (spec,) = (one for one in tuning.DEFAULTS if "--runtime" in one)
    monkeypatch.setattr(tuning, "DEFAULTS", {spec: "the only one"})
    (tmp_path / "prompts.txt").write_text("\n\n".join(nets.TEXTS))
    request = {"backends": ["cpu-int8"], "data": tmp_path / "prompts.txt", "max_kl": 0.5, "threads": (1,)}
    found = tuned_folder(llama, api.load_plugins(), None, **request)
    assert [trial.spec for trial in found.trials] == ["host", spec]
    assert found.trials[1].meets and found.trials[1].turns and 0 < found.trials[1].kl < 0.5
    found.winner = found.trials[1]
    found.save(tmp_path / "out")
    assert read_folder(tmp_path / "out").parts[0].file.name == "openvino_model.xml"


def test_a_decoder_that_openvino_does_not_load_is_an_error_that_names_it(compiled, tmp_path):
    _, folder = compiled
    shutil.copytree(folder, tmp_path / "damaged")
    (tmp_path / "damaged/openvino_model.xml").write_text("<net")
    with pytest.raises(DovetailError, match="openvino_model.xml: OpenVINO cannot load it"):
        chain_of(read_folder(tmp_path / "damaged"))


def test_the_pipeline_generates_what_the_plan_gives_token_by_token(compiled):
    part, folder = compiled
    pipeline = genai.LLMPipeline(str(folder), "CPU", **IN_FLOAT32)
    settings = pipeline.get_generation_config()
    settings.max_new_tokens, settings.ignore_eos, settings.do_sample = 8, True, False
    found = pipeline.generate(ov.Tensor(np.array([PROMPT])), settings).tokens[0]
    assert list(found) == decoded(by_plan(part), 8)[0]
    assert isinstance(pipeline.generate("hello world", max_new_tokens=2), str)


def test_the_folder_has_what_the_pipeline_reads_and_weights_keep_their_bits(compiled, llama):
    part, folder = compiled
    names = {file.name for file in folder.iterdir()}
    assert {"openvino_model.bin", "openvino_tokenizer.xml", "openvino_detokenizer.xml", "config.json"} <= names
    assert "generation_config.json" in names and "genai_config.json" not in names and "model.onnx" not in names
    model = ov.Core().read_model(folder / "openvino_model.xml")
    kinds = {op.get_element_type().get_type_name() for op in model.get_ops() if op.get_type_name() == "Constant"}
    assert kinds & ({"i4", "u4"} if "int4" in str(part.plan.backends) else {"i8", "u8"})


def test_bfloat16_generates_without_a_hint(llama, tmp_path, capsys):
    words = ["--backend", "cpu-bf16", "--runtime", "openvino-genai", "-o", str(tmp_path / "out")]
    assert main(["compile", str(llama), *words]) == 0
    assert "INFERENCE_PRECISION_HINT" not in capsys.readouterr().err
    pipeline = genai.LLMPipeline(str(tmp_path / "out"), "CPU")
    assert len(pipeline.generate(ov.Tensor(np.array([PROMPT])), max_new_tokens=4, ignore_eos=True).tokens[0]) == 4


def test_what_is_elsewhere_is_named_and_an_earlier_result_stays(llama, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/kept").write_text("kept")
    ranges = {"attention_mask": (0, 1 << 40)}
    with pytest.raises(DovetailError, match=r"node '.*' \(ReduceSum\) is on the host"):
        api.compile(llama, "cpu-bf16", verify=False, runtime="openvino-genai", input_ranges=ranges)
    with pytest.raises(DovetailError, match="no engine of gpu-fp16 writes files of OpenVINO"):
        api.compile(llama, "gpu-fp16", verify=False, runtime="openvino-genai").save(tmp_path / "out")
    assert (tmp_path / "out/kept").read_text() == "kept" and len(list((tmp_path / "out").iterdir())) == 1


@pytest.mark.parametrize("damage", ["missing", "broken"])
def test_a_tokenizer_that_cannot_be_converted_is_an_error(llama, tmp_path, damage):
    source = tmp_path / "source"
    shutil.copytree(llama, source)
    for file in source.glob("tokenizer*"):
        file.unlink() if damage == "missing" else file.write_text("{")
    said = "has no tokenizer" if damage == "missing" else "cannot convert the tokenizer"
    with pytest.raises(DovetailError, match=said):
        api.compile(source, "cpu-bf16", verify=False, runtime="openvino-genai").save(tmp_path / "out")
    assert not (tmp_path / "out/openvino_model.xml").exists()


def test_other_folders_and_single_models_are_refused(llama):
    with pytest.raises(UsageError, match="is for folders of language models"):
        api.compile(llama / "model.onnx", "cpu-bf16", runtime="openvino-genai")
    with pytest.raises(UsageError, match="is none of openvino-genai"):
        api.compile(llama, "cpu-bf16", runtime="vllm")


TEXTS = [[5, 9, 17, 33, 21, 40, 8, 12], [7, 30, 11], [31, 3, 6, 20, 9]]


def with_rotations(model, positions):
    """The decoder of the builder with rotary embeddings, by its own count or by `position_ids`."""
    angles = np.outer(np.arange(nets.CONTEXT), 100.0 ** (-np.arange(nets.SIZE // 2) / (nets.SIZE // 2)))
    for name, table in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(table.astype(np.float32), name))
    if positions:
        model.graph.input.insert(1, nets.port("position_ids", nets.INT64, "batch_size", "sequence_length"))
    nodes = list(model.graph.node)
    for node in [node for node in nodes if node.op_type == "GroupQueryAttention"]:
        if not positions:
            node.input.extend(["cos", "sin"])
            node.attribute.append(onnx.helper.make_attribute("do_rotary", 1))
            continue
        for at, heads in ((0, nets.HEADS), (1, nets.GQA_HEADS)):
            turned, inputs = f"{node.input[at]}_turned", [node.input[at], "position_ids", "cos", "sin"]
            more = {"domain": "com.microsoft", "num_heads": heads}
            nodes.insert(nodes.index(node), onnx.helper.make_node("RotaryEmbedding", inputs, [turned], turned, **more))
            node.input[at] = turned
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


@pytest.fixture(scope="module", params=["plain", "rotary", "position_ids"])
def batched(request, llama, tmp_path_factory):
    """The pipeline of a decoder, and its tokenizer."""
    source, out = (tmp_path_factory.mktemp(name) for name in ("source", "out"))
    shutil.copytree(llama, source, dirs_exist_ok=True)
    if request.param != "plain":
        nets.save(with_rotations(nets.grouped_query_decoder(), request.param != "rotary"), source / "model.onnx", True)
    api.compile(source, "cpu-int8:weights=int8", verify=False, runtime="openvino-genai").save(out / "result")
    return genai.LLMPipeline(str(out / "result"), "CPU", **IN_FLOAT32)


def generated(pipeline, rows, pad):
    """The tokens that follow prompts, padded by `pad(ids, zeros)`."""
    settings = pipeline.get_generation_config()
    settings.max_new_tokens, settings.ignore_eos, settings.do_sample = 12, True, False
    longest = max(map(len, rows))
    ids, mask = ([pad(row, [fill] * (longest - len(row))) for row in rows] for rows, fill in _with_masks(rows))
    found = pipeline.generate(genai.TokenizedInputs(ov.Tensor(np.array(ids)), ov.Tensor(np.array(mask))), settings)
    return [list(tokens) for tokens in found.tokens]


def _with_masks(rows):
    return (rows, 2), ([[1] * len(row) for row in rows], 0)


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 2), (2, 1, 0)])
@pytest.mark.parametrize("side", ["left", "right"])
def test_texts_of_different_lengths_in_a_batch_go_on_as_each_one_alone(batched, order, side):
    rows = [TEXTS[number] for number in order]
    alone = [generated(batched, [row], lambda ids, zeros: ids)[0] for row in rows]
    assert len({tuple(tokens) for tokens in alone}) == len(rows)
    pad = (lambda ids, zeros: zeros + ids) if side == "left" else (lambda ids, zeros: ids + zeros)
    assert generated(batched, rows, pad) == alone


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 2), (2, 1, 0)])
def test_the_tokenizer_pads_texts_where_the_model_expects_it(batched, order):
    texts = [("hello world", "a small test of hello world a small test", "models that speak")[at] for at in order]
    settings = batched.get_generation_config()
    settings.max_new_tokens, settings.ignore_eos, settings.do_sample = 12, True, False
    alone = [batched.generate([text], settings).texts[0] for text in texts]
    assert batched.generate(texts, settings).texts == alone


def test_a_decoder_that_cannot_tell_padding_takes_one_text_at_a_time(tmp_path, capsys):
    source = nets.optimum_folder(tmp_path / "source", "past")
    words = ["--backend", "cpu-int8:weights=int8", "--runtime", "openvino-genai", "-o", str(tmp_path / "out")]
    assert main(["compile", str(source), *words]) == 0
    assert "refuses batches of several: it has no input attention_mask" in capsys.readouterr().out
    model = ov.Core().read_model(tmp_path / "out/openvino_model.xml")
    assert model.input("input_ids").get_partial_shape()[0] == 1


def test_a_folder_from_somebody_else_gives_openvino_no_code_and_no_settings(llama, tmp_path, monkeypatch):
    source = tmp_path / "source"
    shutil.copytree(llama, source)
    (source / "evil.so").write_bytes(b"\x7fELF")
    (source / "evil.py").write_text("raise SystemExit('evil')")
    for name in ("openvino_tokenizer.xml", "openvino_model.xml", "openvino_config.json", "evil.bin"):
        (source / name).write_text("evil")
    code = {"auto_map": {"AutoTokenizer": "evil.Evil", "AutoConfig": "evil.Evil"}, "trust_remote_code": "evil"}
    settings = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps({**settings, **code, "vocab_file": "/etc/evil"}))
    (source / "config.json").write_text(json.dumps({"model_type": "llama", **code}))
    read = []

    def copying(folder, made):
        copy_tokenizer(folder, made)
        read.append({file.name: file.read_bytes() for file in made.iterdir()})

    monkeypatch.setattr("dovetail_decoder.openvino_tokenizer.copy_tokenizer", copying)
    api.compile(source, "cpu-bf16", verify=False, runtime="openvino-genai").save(tmp_path / "out")
    for held in (*read, {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}):
        assert [name for name, content in held.items() if "evil" in name or b"evil" in content] == []
        assert "openvino_config.json" not in held and "tokenizer.json" in held
    pipeline = genai.LLMPipeline(str(tmp_path / "out"), "CPU", **IN_FLOAT32)
    assert isinstance(pipeline.generate("hello world", max_new_tokens=2), str)


def test_a_tokenizer_that_leads_out_of_the_folder_is_not_converted(llama, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(llama, source)
    (source / "vocab.txt").symlink_to("/etc/hostname")
    with pytest.raises(DovetailError, match="vocab.txt is a link that leads out of the folder"):
        api.compile(source, "cpu-bf16", verify=False, runtime="openvino-genai").save(tmp_path / "out")
    assert not (tmp_path / "out").exists()
