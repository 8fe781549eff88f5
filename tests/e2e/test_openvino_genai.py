"""`--runtime openvino-genai`: folders that `LLMPipeline` loads, and that compute what the plan says."""

import shutil

import dovetail as api
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError, UsageError
from dovetail_decoder import tuning
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
    monkeypatch.setattr(tuning, "DEFAULTS", (spec,))
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
