"""Folders of language models: every part by one request, into a folder that generators load unchanged."""

import json
import shutil
from pathlib import Path

import dovetail as api
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail.errors import DovetailError, ResultError, UsageError
from dovetail.passes import BackendChoice

pytest.importorskip("tokenizers")

from . import generators as nets

PROMPT = [1, 20, 30, 40, 50]
LONG = list(range(3, 43))


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("\n\n".join(nets.TEXTS) + "\n")
    return path


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return nets.llama_folder(tmp_path_factory.mktemp("llama"))


def generated(folder, count=24):
    """What onnxruntime-genai answers."""
    genai = pytest.importorskip("onnxruntime_genai")
    model = genai.Model(str(folder))
    settings = genai.GeneratorParams(model)
    settings.set_search_options(max_length=count, do_sample=False)
    generator = genai.Generator(model, settings)
    generator.append_tokens([PROMPT])
    while not generator.is_done():
        generator.generate_next_token()
    return list(map(int, generator.get_sequence(0)))


def by_hand(path, count=24):
    """What the same file answers in ONNX Runtime, token by token."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {
        value.name: np.zeros((1, value.shape[1], 0, nets.SIZE), np.float32)
        for value in session.get_inputs()
        if value.name.startswith("past")
    }
    tokens, new = list(PROMPT), list(PROMPT)
    names = [value.name for value in session.get_outputs()]
    while len(tokens) < count and tokens[-1] != 2:
        feeds |= {"input_ids": np.array([new]), "attention_mask": np.ones((1, len(tokens)), np.int64)}
        results = dict(zip(names, session.run(None, feeds)))
        feeds |= {name: results[name.replace("past_key_values", "present")] for name in feeds if name[0] == "p"}
        new = [int(results["logits"][0, -1].argmax())]
        tokens += new
    return tokens


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("backend", ["gpu-fp16", "cpu-bf16", "cpu-int8:weights=int8"])
def test_generators_load_the_result_and_answer_as_its_file_does(llama, prompts, tmp_path, backend):
    api.compile(llama, backend, data=prompts).save(tmp_path / "out")
    config = json.loads((tmp_path / "out/genai_config.json").read_text())
    file = tmp_path / "out" / config["model"]["decoder"]["filename"]
    assert generated(tmp_path / "out") == by_hand(file)
    source = json.loads((llama / "genai_config.json").read_text())
    config["model"]["decoder"]["filename"] = "model.onnx"
    assert config == source  # names, caches and options stay
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / "out" / name).read_bytes() == (llama / name).read_bytes()


def test_onnxruntime_genai_reads_and_writes_texts_with_the_tokenizer_of_a_result(tmp_path):
    genai = pytest.importorskip("onnxruntime_genai")
    source = Path(__file__).parents[2] / "examples/decoder/model"
    api.compile(source, "cpu-int8:weights=int8", verify=False).save(tmp_path / "out")
    for folder in (source, tmp_path / "out"):
        tokenizer = genai.Tokenizer(genai.Model(str(folder)))
        assert tokenizer.encode("hello world").tolist() == [3, 4]
        assert tokenizer.decode(tokenizer.encode("this is a small test")) == "this is a small test"


@pytest.mark.parametrize("weights", ["int4", "int8"])
def test_a_folder_for_onnxruntime_genai_gets_the_kernels_of_onnx_runtime(llama, weights):
    def operators(backend, **request):
        compiled = api.compile(llama, backend, verify=False, **request)
        kinds = {node.op_type for node in compiled.parts["decoder"].model.graph}
        return kinds & {"MatMulNBits", "GroupQueryAttention"}, compiled.notes()

    kernels = {"MatMulNBits", "GroupQueryAttention"}
    found, notes = operators(f"cpu-int8:weights={weights}")
    assert found == kernels
    assert "cpu-int8: kernel=nbits, which suits onnxruntime-genai; another kernel= in --backend wins" in notes
    assert operators(f"cpu-int8:weights={weights},kernel=qdq")[0] == set()
    assert operators(BackendChoice("cpu-int8", {"weights": weights}))[0] == kernels
    assert "kernel" not in "".join(operators("cpu-bf16")[1])


def in_a_batch(folder, rows, count=12):
    """What onnxruntime-genai answers to several prompts; it pads at the end."""
    genai = pytest.importorskip("onnxruntime_genai")
    model, longest = genai.Model(str(folder)), max(map(len, rows))
    settings = genai.GeneratorParams(model)
    length = longest + count
    settings.set_search_options(max_length=length, min_length=length, batch_size=len(rows), do_sample=False)
    generator = genai.Generator(model, settings)
    generator.append_tokens(np.array([row + [2] * (longest - len(row)) for row in rows], np.int32))
    found = []
    for _ in range(count):
        generator.generate_next_token()
        found.append([int(token) for token in generator.get_next_tokens()])
    return [list(tokens) for tokens in zip(*found)]


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize(
    "backend", ["gpu-fp16", "cpu-bf16", "cpu-int8:weights=int4", "cpu-int8:weights=int4,kernel=qdq"]
)
def test_texts_of_different_lengths_in_a_batch_go_on_as_each_one_alone(llama, tmp_path, backend):
    api.compile(llama, backend, verify=False).save(tmp_path / "out")
    texts = [[5, 9, 17, 33, 21, 40, 8, 12], [7, 30, 11], [31, 3, 6, 20, 9]]
    alone = [in_a_batch(tmp_path / "out", [text])[0] for text in texts]
    for order in ((0, 1), (1, 0), (0, 1, 2), (2, 1, 0)):
        assert in_a_batch(tmp_path / "out", [texts[at] for at in order]) == [alone[at] for at in order]


@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8:weights=int4,kernel=qdq"])
def test_masks_are_summed_where_integers_are_summed_in_float32(llama, backend):
    pytest.importorskip("openvino")
    part = api.compile(llama, backend, verify=False).parts["decoder"]
    assert {(node.backend, node.region) for node in part.plan.nodes if node.op_type != "Constant"} == {
        (backend.partition(":")[0], 0)
    }
    asked = api.compile(llama, backend, verify=False, input_ranges=[f"attention_mask:0..{1 << 40}"])
    assert any(node.op_type == "ReduceSum" for node in asked.parts["decoder"].plan.nodes if node.backend == "host")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8:weights=int8,kernel=qdq"])
@pytest.mark.parametrize("form", ["float16", "windows"])
def test_decoders_of_other_forms_are_one_region_as_well(tmp_path, backend, form):
    """Caches in float16, whose extents are read; caches that drop rows, whose positions are computed by a remainder."""
    pytest.importorskip("openvino")
    source = nets.llama_folder(tmp_path)
    source = nets.in_float16(source) if form == "float16" else nets.with_windows(source, 4)
    part = api.compile(source, backend, verify=False).parts["decoder"]
    assert {(node.backend, node.region) for node in part.plan.nodes if node.op_type != "Constant"} == {
        (backend.partition(":")[0], 0)
    }
    # Behind the window, rows leave the cache: four tokens into one of six rows that holds five.
    model = onnx.load(source / "model.onnx")
    rng, kind = np.random.default_rng(0), np.float16 if form == "float16" else np.float32
    caches = [value.name for value in model.graph.input if value.name.startswith("past")]
    for tokens, past in ((5, 0), (1, 5), (4, 5)):
        rows = 6 if form == "windows" else past
        feeds = {name: rng.standard_normal((1, nets.GQA_HEADS, rows, nets.SIZE)).astype(kind) for name in caches}
        feeds |= {
            "input_ids": rng.integers(3, 60, (1, tokens)),
            "attention_mask": np.ones((1, past + tokens), np.int64),
        }
        session = onnxruntime.InferenceSession(str(source / "model.onnx"), providers=["CPUExecutionProvider"])
        (expected,) = session.run(["logits"], feeds)
        error = np.linalg.norm(part.run(feeds)["logits"].astype(np.float64) - expected)
        assert error < 0.03 * np.linalg.norm(expected.astype(np.float64))


def test_the_table_compares_source_and_result_as_a_generator_runs_them(dovetail, llama, prompts):
    done = dovetail("compile", llama, "--backend", "gpu-fp16", "--data", prompts, "--min-top1", "99%", "-o", "out")
    assert done.returncode == 0 and "Traceback" not in done.stderr
    lines = [line.split("  ") for line in done.stdout.splitlines()]
    heading = next(line for line in lines if "KL" in line)
    assert [word.strip() for word in heading if word.strip()] == [
        "model", "prefill ms per 100 tokens", "tokens per second", "memory MB", "size MB", "KL", "same tokens",
    ]  # fmt: skip
    assert [line[0] for line in lines if line[0] in ("source", "result")] == ["source", "result"]
    assert "gpu-fp16 20/20 nodes in 1 region; 14 conversions" in done.stdout
    assert sorted(path.name for path in Path("out").iterdir() if path.suffix not in (".data", ".json")) == [
        "chat_template.jinja", "model.onnx", "plan.yaml",
    ]  # fmt: skip
    assert "names no provider, because onnxruntime-cuda is not available here" in done.stdout


@pytest.mark.slow
def test_the_result_of_one_decoder_is_an_ordinary_result_too(dovetail, llama):
    assert dovetail("compile", llama, "--backend", "gpu-fp16", "-o", "out").returncode == 0
    assert "GroupQueryAttention" in dovetail("explain", "out", "attention0").stdout


@pytest.mark.slow
def test_as_json_the_comparison_is_numbers(dovetail, llama, prompts):
    done = dovetail("compile", llama, "--backend", "gpu-fp16", "--data", prompts, "--json")
    document = json.loads(done.stdout)
    assert document["parts"]["decoder"]["provider"] == "cpu" and document["failed"] == []
    assert document["comparison"]["same_tokens"] == 1.0 and document["comparison"]["kl"] < 1e-6
    assert document["comparison"]["source"]["tokens_per_second"] > 0
    (logits,) = [one for one in document["parts"]["decoder"]["verification"]["outputs"] if one["name"] == "logits"]
    assert logits["perplexity"][0] == pytest.approx(logits["perplexity"][1], rel=1e-3)


SLOW = ("pipeline", "merged", "two", "both", "past", "encoder")
FORMS = {
    "vision": (nets.vision_folder, ["vision", "embedding", "decoder"]),
    "pipeline": (nets.pipeline_folder, ["decoder.embeddings", "decoder.layers"]),
    "merged": (lambda folder: nets.optimum_folder(folder, "merged"), ["decoder", "decoder_with_past"]),
    "two": (lambda folder: nets.optimum_folder(folder, "two"), ["decoder", "decoder_with_past"]),
    "both": (lambda folder: nets.optimum_folder(folder, "both"), ["decoder", "decoder_with_past"]),
    "past": (lambda folder: nets.optimum_folder(folder, "past"), ["decoder"]),
    "encoder": (lambda folder: nets.optimum_folder(folder, "encoder"), ["encoder", "decoder", "decoder_with_past"]),
}


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=pytest.mark.slow) if form in SLOW else form for form in FORMS]
)
def test_every_part_is_compiled_and_the_whole_answers_the_same(form, prompts, tmp_path):
    make, names = FORMS[form]
    (tmp_path / "source").mkdir()
    source = make(tmp_path / "source")
    compiled = api.compile(source, "gpu-fp16", data=prompts, min_top1=0.9)
    assert list(compiled.parts) == names
    assert compiled.comparison.agreement == 1.0 and 0 <= compiled.comparison.kl < 1e-6
    compiled.save(tmp_path / "out")
    models = sorted(path.relative_to(source) for path in source.rglob("*.onnx"))
    assert models == sorted(path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.onnx"))
    for path in models:
        ports = [
            [(value.name, value.type.tensor_type.elem_type) for value in (*graph.input, *graph.output)]
            for graph in (
                onnx.load(folder / path, load_external_data=False).graph for folder in (source, tmp_path / "out")
            )
        ]
        assert ports[0] == ports[1]


@pytest.mark.slow
def test_a_merged_decoder_is_made_of_the_results_of_its_branches(prompts, tmp_path):
    """Integers stay out of bodies, so the decoders beside it are compiled; it reads their weights."""
    (tmp_path / "source").mkdir()
    source, out = nets.optimum_folder(tmp_path / "source", "both"), tmp_path / "out"
    api.compile(source, "cpu-int8:weights=int8,kernel=nbits", data=prompts).save(out)
    model = onnx.load(out / "decoder_model_merged.onnx", load_external_data=False)
    (node,) = model.graph.node
    assert all("MatMulNBits" in {inner.op_type for inner in branch.g.node} for branch in node.attribute)
    packed = [weight.raw_data for weight in model.graph.initializer if weight.data_type == onnx.TensorProto.UINT8]
    assert packed and len(packed) == len(set(packed))  # what both branches read is there once
    merged = onnxruntime.InferenceSession(out / "decoder_model_merged.onnx", providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    given = [
        (value.name, [part if isinstance(part, int) else 3 for part in value.shape]) for value in merged.get_inputs()
    ]
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in given}
    feeds["input_ids"] = rng.integers(3, nets.VOCABULARY, (3, 3))
    for name, holds in (("decoder_model", False), ("decoder_with_past_model", True)):
        alone = onnxruntime.InferenceSession(out / f"{name}.onnx", providers=["CPUExecutionProvider"])
        feeds["use_cache_branch"] = np.array([holds])
        wanted = alone.run(None, {value.name: feeds[value.name] for value in alone.get_inputs()})
        for one, other in zip(wanted, merged.run(None, feeds)):
            np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu-int8:weights=int8", "cpu-int8:weights=int8-blocks", "cpu-int8:weights=int4"])
@pytest.mark.parametrize("external", [True, False])
def test_a_merged_decoder_alone_is_compiled_by_its_branches(prompts, tmp_path, backend, external):
    """Nothing of it stays on the host, as it would in the bodies of an If, and generators load what is made of it."""
    (tmp_path / "source").mkdir()
    source, out = nets.optimum_folder(tmp_path / "source", "merged"), tmp_path / "out"
    (file,) = source.rglob("*.onnx")
    if external:
        nets.save(onnx.load(file), file, external=True)
    compiled = api.compile(source, backend, data=prompts)
    assert {node.backend for part in compiled.parts.values() for node in part.plan.nodes} == {"cpu-int8"}
    assert compiled.failed == [] and compiled.comparison.kl < 0.01
    compiled.save(out)
    assert [path.relative_to(out) for path in out.rglob("*.onnx")] == [file.relative_to(source)]
    found = onnx.load(out / file.relative_to(source), load_external_data=False).graph
    bodies = [attribute.g for attribute in found.node[0].attribute]
    assert all("DequantizeLinear" in {node.op_type for node in body.node} for body in bodies)
    del compiled
    onnxruntime.InferenceSession(out / file.relative_to(source), providers=["CPUExecutionProvider"])


@pytest.mark.slow
def test_arrays_give_what_a_vision_part_needs(tmp_path):
    (tmp_path / "source").mkdir()
    source = nets.vision_folder(tmp_path / "source")
    images = np.random.default_rng(0).standard_normal((2, 3, 2, 2)).astype(np.float32)
    np.savez(tmp_path / "data.npz", input_ids=np.array([LONG[:16], LONG[16:32]]), pixel_values=images)
    compiled = api.compile(source, "gpu-fp16", data=tmp_path / "data.npz", min_snr=40)
    assert all(one.verification is not None and one.verification.batches for one in compiled.parts.values())


@pytest.mark.slow
def test_an_encoder_of_sounds_fills_caches_of_the_decoder(tmp_path):
    (tmp_path / "source").mkdir()
    source = nets.speech_folder(tmp_path / "source")
    sounds = np.random.default_rng(0).standard_normal((2, 8, 12)).astype(np.float32)
    np.savez(tmp_path / "data.npz", input_ids=np.array([PROMPT, PROMPT[::-1]]), audio_features=sounds)
    compiled = api.compile(source, "cpu-bf16", data=tmp_path / "data.npz", max_kl=0.1)
    assert all(one.verification is not None and one.verification.batches for one in compiled.parts.values())
    assert compiled.comparison.kl < 1e-3
    # Other sounds, other answers: the caches are those of the encoder.
    np.savez(tmp_path / "silent.npz", input_ids=np.array([PROMPT, PROMPT[::-1]]), audio_features=0 * sounds)
    silent = api.compile(source, "cpu-bf16", data=tmp_path / "silent.npz")
    assert [list(one) for one in silent.comparison.source.answers] != [
        list(one) for one in compiled.comparison.source.answers
    ]
    with pytest.raises(DovetailError, match="the part 'encoder' needs 'audio_features'"):
        api.compile(source, "cpu-bf16", data=["hello"])


@pytest.mark.slow
def test_caches_may_be_as_narrow_as_the_arithmetic(llama, prompts, tmp_path):
    compiled = api.compile(llama, "gpu-fp16", data=prompts, keep_io_types=False)
    compiled.save(tmp_path / "out")
    ports = onnx.load(tmp_path / "out/model.onnx", load_external_data=False).graph.output
    assert onnx.TensorProto.FLOAT16 in {value.type.tensor_type.elem_type for value in ports}
    assert compiled.comparison.agreement == 1.0 and generated(tmp_path / "out") == generated(llama)


def test_states_are_those_of_prompts_and_of_single_tokens(llama):
    from dovetail_decoder.reading import chain_of, read_folder
    from dovetail_decoder.states import STEPS, batches
    from dovetail_decoder.tokens import read_prompts

    chain = chain_of(read_folder(llama))
    (part,) = chain.folder.parts
    found = list(batches(chain, part, read_prompts([LONG], chain.folder)))
    lengths = [(feeds["input_ids"].shape[1], feeds["past_key_values.1.value"].shape[2]) for feeds in found]
    assert lengths == [(33, 0), *((1, 33 + step) for step in range(STEPS))]
    labels = np.concatenate([feeds["labels:logits"] for feeds in found])
    assert labels.tolist() == [*LONG[1:], -1]  # nobody knows what follows the prompt
    # The caches are those that the whole prompt at once fills.
    session = onnxruntime.InferenceSession(llama / "model.onnx", providers=["CPUExecutionProvider"])
    last = {name: array for name, array in found[-1].items() if not name.startswith("labels")}
    whole = {**{name: array[:, :, :0] for name, array in last.items() if name[0] == "p"}}
    whole |= {"input_ids": np.array([LONG]), "attention_mask": np.ones((1, len(LONG)), np.int64)}
    both = [session.run(["logits"], feeds)[0][0, -1] for feeds in (last, whole)]
    np.testing.assert_allclose(*both, rtol=1e-4, atol=1e-5)


def test_short_prompts_go_on_with_the_models_own_tokens(llama):
    from dovetail_decoder.reading import chain_of, read_folder
    from dovetail_decoder.states import batches
    from dovetail_decoder.tokens import read_prompts

    chain = chain_of(read_folder(llama))
    found = list(batches(chain, chain.folder.parts[0], read_prompts([PROMPT], chain.folder), steps=3))
    tokens = [token for feeds in found for token in feeds["input_ids"][0]]
    assert tokens == by_hand(llama / "model.onnx", len(PROMPT) + 3)
    assert [list(feeds["labels:logits"]) for feeds in found] == [[20, 30, 40, 50, -1], [-1], [-1], [-1]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "goals", [{"max_perplexity_rise": 1e-6}, {"max_kl": 1e-13}, {"min_snr": 100}], ids=lambda goals: next(iter(goals))
)
def test_goals_are_met_by_raising_nodes(llama, prompts, goals):
    prompts.write_text("\n\n".join([nets.TEXTS[-1]] * 24))  # rounding happens to help with the others
    compiled = api.compile(llama, "cpu-bf16", data=prompts, **goals)
    assert compiled.parts["decoder"].plan.summary["accuracy"]["met"]
    assert compiled.parts["decoder"].plan.summary["accuracy"]["raised"]


@pytest.mark.slow
def test_a_goal_that_the_whole_misses_is_missed_though_each_part_meets_its_own(tmp_path, prompts, monkeypatch):
    """An encoder has no scores of tokens to be judged by; its errors show in the whole."""
    monkeypatch.setattr("dovetail_decoder.raising._STEPS", (1.0,))  # which it meets as it is
    (tmp_path / "source").mkdir()
    source = nets.optimum_folder(tmp_path / "source", "encoder")
    kept = []
    with pytest.raises(ResultError, match=r"the whole model has KL .* --max-kl 1e-14 is asked for") as caught:
        api.compile(source, "gpu-fp16", data=prompts, max_kl=1e-14, keep=kept.append)
    assert kept == [caught.value.compiled]  # the result is there


@pytest.mark.slow
def test_an_encoder_is_held_to_more_where_the_whole_misses_a_goal_because_of_it(tmp_path, prompts):
    (tmp_path / "source").mkdir()
    source = nets.optimum_folder(tmp_path / "source", "encoder")
    net = nets.Net(4)
    words = net.op("Gather", net.weight("embed", nets.VOCABULARY, nets.WIDTH), "input_ids")
    far = net.constant(np.full(nets.WIDTH, 300.0), np.float32)  # what float16 rounds to steps of a quarter
    near = net.op("Sub", net.op("Relu", net.op("Add", words, far)), far)
    net.op("MatMul", near, net.weight("mixed", nets.WIDTH, nets.WIDTH), name="last_hidden_state")
    ids = nets.port("input_ids", nets.INT64, "batch_size", "encoder_sequence_length")
    hidden = nets.port("last_hidden_state", nets.FLOAT, "batch_size", "encoder_sequence_length", nets.WIDTH)
    nets.save(nets.model_of(net, [ids], [hidden]), source / "encoder_model.onnx", True)
    before = api.compile(source, "gpu-fp16", data=prompts)
    kept, goal = [], before.comparison.kl / 1000
    compiled = api.compile(source, "gpu-fp16", data=prompts, max_kl=goal, keep=kept.append)
    assert compiled.comparison.kl <= goal and kept == [compiled]
    assert compiled.parts["encoder"].plan.summary["accuracy"]["raised"]
    assert any("encoder: held to an SNR of" in note for note in compiled.notes())


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["gpu-fp16", "cpu-bf16", "cpu-int8:weights=int8,kernel=nbits"])
def test_sources_in_float16_stay_in_float16_at_their_ends_and_generate(tmp_path, prompts, backend):
    """An export whose inputs, outputs, caches and weights are float16, as builders write them for GPUs and CPUs."""
    (tmp_path / "source").mkdir()
    source = nets.in_float16(nets.llama_folder(tmp_path / "source"))
    compiled = api.compile(source, backend, data=prompts)
    compiled.save(tmp_path / "out")
    file = json.loads((tmp_path / "out/genai_config.json").read_text())["model"]["decoder"]["filename"]
    graph = onnx.load(tmp_path / "out" / file, load_external_data=False).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    assert {types[name] for name in types if "mask" not in name and name != "input_ids"} == {onnx.TensorProto.FLOAT16}
    ours, theirs = generated(tmp_path / "out"), generated(source)
    assert len(ours) == len(theirs) and ours[:10] == theirs[:10]  # weights in 8 bits choose other tokens later


def test_weights_that_two_parts_share_are_there_once(tmp_path):
    (tmp_path / "source").mkdir()
    source = nets.optimum_folder(tmp_path / "source", "two")
    weight = np.random.default_rng(0).standard_normal((nets.VOCABULARY, 2048)).astype(np.float32)
    for name in ("decoder_model", "decoder_with_past_model"):
        model = onnx.load(source / f"{name}.onnx")
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "table"))
        model.graph.node.append(onnx.helper.make_node("Gather", ["table", "input_ids"], ["rows"], f"rows of {name}"))
        model.graph.output.append(nets.port("rows", nets.FLOAT, "batch_size", "sequence_length", 2048))
        nets.save(model, source / f"{name}.onnx", True)
    api.compile(source, "gpu-fp16").save(tmp_path / "out")
    sizes = [path.stat().st_size for path in (tmp_path / "out").glob("*.data")]
    assert weight.nbytes < sum(sizes) < 1.5 * weight.nbytes
    for name in ("decoder_model", "decoder_with_past_model"):
        onnxruntime.InferenceSession(tmp_path / "out" / f"{name}.onnx", providers=["CPUExecutionProvider"])


def test_two_tensors_of_one_place_stay_in_one_place(tmp_path):
    (tmp_path / "source").mkdir()
    source = nets.llama_folder(tmp_path / "source")
    model = onnx.load(source / "model.onnx", load_external_data=False)
    embed = next(weight for weight in model.graph.initializer if weight.name == "embed")
    model.graph.initializer.append(embed)
    model.graph.initializer[-1].name = "again"
    model.graph.node.append(onnx.helper.make_node("Gather", ["again", "input_ids"], ["words"], "words"))
    model.graph.output.append(nets.port("words", nets.FLOAT, "batch_size", "sequence_length", nets.WIDTH))
    onnx.save(model, source / "model.onnx")
    api.compile(source, "gpu-fp16").save(tmp_path / "out")
    saved = onnx.load(tmp_path / "out/model.onnx", load_external_data=False)
    places = [
        tuple(entry.value for entry in weight.external_data)
        for weight in saved.graph.initializer
        if weight.name in ("embed", "again")
    ]
    assert len(places) == 2 and len(set(places)) == 1


@pytest.mark.slow
def test_an_earlier_result_is_replaced_and_what_is_not_ours_stays(llama, tmp_path):
    out = tmp_path / "out"
    api.compile(llama, "cpu-bf16").save(out)
    (out / "notes.txt").write_text("mine")
    assert (out / "model.float32.onnx").is_file()
    api.compile(llama, "gpu-fp16").save(out)
    assert not (out / "model.float32.onnx").exists() and (out / "notes.txt").read_text() == "mine"
    assert len(list(out.glob("*.data"))) == 1
    assert generated(out) == by_hand(out / "model.onnx")


def test_the_part_of_a_folder_has_its_plan_beside_it(tmp_path):
    (tmp_path / "source").mkdir()
    api.compile(nets.pipeline_folder(tmp_path / "source"), "gpu-fp16").save(tmp_path / "out")
    loaded = api.load(tmp_path / "out/layers.onnx")
    assert loaded.remarks and loaded.plan.backends[0].name == "gpu-fp16"
    shutil.copy(tmp_path / "out/embeddings.plan.yaml", tmp_path / "out/layers.plan.yaml")
    assert not api.load(tmp_path / "out/layers.onnx").remarks  # a plan of another model


@pytest.mark.parametrize("form", ["past", "encoder"])
def test_where_programs_look_for_a_name_the_file_of_that_name_is_one_that_onnxruntime_loads(tmp_path, form):
    (tmp_path / "source").mkdir()
    source = nets.optimum_folder(tmp_path / "source", form)
    api.compile(source, "cpu-bf16").save(tmp_path / "out")
    for path in source.glob("*.onnx"):
        onnxruntime.InferenceSession(tmp_path / "out" / path.name, providers=["CPUExecutionProvider"])
    narrow = list((tmp_path / "out").glob("*.bfloat16.onnx"))
    assert narrow
    for path in narrow:
        loaded = api.load(path)  # with its plan
        assert loaded.remarks and "cpu-bf16" in loaded.summary()


@pytest.mark.slow
def test_compile_folder_gives_the_parts_of_the_one_thing(tmp_path, prompts):
    (tmp_path / "source").mkdir()
    source = nets.pipeline_folder(tmp_path / "source")
    outcomes = api.compile_folder(source, "gpu-fp16", tmp_path / "out", data=prompts)
    assert [(str(one.model), one.status) for one in outcomes] == [
        ("decoder.embeddings", "ok"), ("decoder.layers", "ok"),
    ]  # fmt: skip
    assert (tmp_path / "out/genai_config.json").is_file() and not (tmp_path / "out/layers").exists()


@pytest.mark.slow
def test_the_output_may_be_in_the_source(llama, tmp_path):
    source = Path(shutil.copytree(llama, tmp_path / "source"))
    for _ in range(2):  # an earlier output is no part of the source
        api.compile(source, "gpu-fp16").save(source / "out")
    assert not (source / "out/out").exists() and generated(source / "out") == by_hand(source / "out/model.onnx")


def test_pins_and_shapes_go_to_the_parts_that_have_what_they_name(tmp_path):
    (tmp_path / "source").mkdir()
    source = nets.vision_folder(tmp_path / "source")
    compiled = api.compile(
        source, "gpu-fp16", pins="attention0=host/float32", high=["type:ReduceSum"],
        fix_shapes={"pixel_values": [1, 3, 2, 2]}, edits=(),
    )  # fmt: skip
    assert compiled.parts["vision"].model.graph.inputs[0].shape.numpy() == (1, 3, 2, 2)
    nodes = {node.name: node for part in compiled.parts.values() for node in part.plan.nodes}
    assert nodes["attention0"].backend == "host"
    with pytest.raises(DovetailError, match="no node matches 'attention9'"):
        api.compile(source, "gpu-fp16", pins=["attention9=host"])


def test_what_belongs_to_one_model_is_refused(llama, tmp_path):
    with pytest.raises(UsageError, match="--plan belongs to one model"):
        api.compile(llama, "gpu-fp16", plan=tmp_path / "plan.yaml")
    with pytest.raises(UsageError, match="is a goal without data"):
        api.compile(llama, "gpu-fp16", max_kl=0.1)


def test_links_in_the_output_are_not_followed(llama, tmp_path):
    """A folder may come from somebody else."""
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.mkdir()
    out.mkdir()
    (elsewhere / "model.onnx").write_text("theirs")
    (out / "model.onnx").symlink_to(elsewhere / "model.onnx")
    compiled = api.compile(llama, "gpu-fp16")
    compiled.save(out)
    assert (elsewhere / "model.onnx").read_text() == "theirs" and not (out / "model.onnx").is_symlink()
    (tmp_path / "source").mkdir()
    nested = api.compile(nets.optimum_folder(tmp_path / "source", "merged"), "gpu-fp16")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/onnx").symlink_to(elsewhere)
    with pytest.raises(DovetailError, match="cannot be written"):
        nested.save(tmp_path / "linked")
    assert [path.name for path in elsewhere.iterdir()] == ["model.onnx"]
    assert [path.name for path in (tmp_path / "linked").iterdir()] == ["onnx"]


@pytest.mark.slow
def test_a_save_that_fails_leaves_the_earlier_result(llama, tmp_path, monkeypatch):
    out = tmp_path / "out"
    api.compile(llama, "gpu-fp16").save(out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    other = api.compile(llama, "cpu-bf16")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dovetail_decoder.foreign_files.shutil.copyfile", full)
    with pytest.raises(DovetailError, match="no space is left"):
        other.save(out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
