"""Folders of language models with something wrong: the error says what, where and what to do; existing output stays."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

pytest.importorskip("tokenizers")

from . import generators as nets


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    return nets.llama_folder(tmp_path_factory.mktemp("llama"))


@pytest.fixture
def llama(intact, tmp_path):
    """A folder to be damaged."""
    return Path(shutil.copytree(intact, tmp_path / "llama"))


@pytest.fixture
def refused(dovetail, tmp_path):
    """Compile, and return the error; an output that was there before is unchanged."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "model.onnx").write_text("an earlier result")

    def run(folder, *arguments):
        done = dovetail("compile", folder, "--backend", "gpu-fp16", *arguments, "-o", out)
        assert done.returncode in (1, 2) and "Traceback" not in done.stderr and "internal" not in done.stderr
        assert [(path.name, path.read_text()) for path in out.iterdir()] == [("model.onnx", "an earlier result")]
        error, *hint = done.stderr.strip().splitlines()
        assert hint, "an error says what to do"
        return error

    return run


def edit(folder, change):
    path = folder / "genai_config.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def decoder(**entries):
    return lambda document: document["model"]["decoder"].update(entries)


CONFIGS = [
    (decoder(filename="modell.onnx"), "'model.decoder.filename' names modell.onnx, which is not there"),
    (decoder(filename="../model.onnx"), "'model.decoder.filename' leads out of the folder: ../model.onnx"),
    (decoder(config_filename="speech.json"), "'model.decoder.config_filename' names speech.json, which is not there"),
    (decoder(filename=7), "'decoder' has neither a 'filename' nor a 'pipeline'"),
    (decoder(pipeline={}), "'decoder.pipeline' is no list of stages"),
    (decoder(head_size="8"), "'head_size' is '8', and a whole number from 1 on is expected"),
    (decoder(num_key_value_heads=4), "genai_config.json says that num_key_value_heads is 4"),
    (lambda document: document.pop("model"), "has no 'model' with a 'decoder'"),
    (lambda document: document["model"].update(context_length=0), "'context_length' is 0"),
    (lambda document: document["model"].update(eos_token_id="</s>"), "'eos_token_id' is '</s>'"),
    (lambda document: document["model"].update(embedding={"filename": "e.onnx"}), "names e.onnx, which is not there"),
]


@pytest.mark.parametrize(("change", "why"), CONFIGS, ids=[why for _, why in CONFIGS])
def test_configurations(llama, refused, change, why):
    edit(llama, change)
    assert why in refused(llama)


@pytest.mark.parametrize("text", ["{", "[]", '"model"', "\xff"])
def test_a_configuration_that_is_none(llama, refused, text):
    (llama / "genai_config.json").write_bytes(text.encode("latin-1"))
    assert "genai_config.json" in refused(llama)


PROMPTS = [
    ("empty.txt", "", "holds no prompt"),
    ("blank.txt", "\n  \n", "holds no prompt"),
    ("long.txt", "hello world\n" + "test" + " test" * 96, "long.txt:2 has 97 tokens, and the model's context holds 96"),
    ("latin.txt", b"caf\xe9", "latin.txt is no text"),
    ("empty.json", "[]", "holds no prompt"),
    ("broken.json", "[", "broken.json is no JSON"),
    ("number.json", "7", "holds int and no list of prompts"),
    ("mixed.json", '["hello", {"ids": 1}]', "prompt 2 is {'ids': 1}: neither a text nor token ids"),
    ("ids.json", "[[1, 64]]", "token id 64 is none of the model, which has 0 to 63"),
    ("below.json", "[[-1]]", "token id -1 is none of the model"),
    ("huge.json", "[[99999999999999999999]]", "a token id does not fit 64 bits"),
    ("none.json", "[[]]", "prompt 1 holds no token"),
    ("prompts.csv", "hello", "is no file of prompts"),
]


@pytest.mark.parametrize(("name", "content", "why"), PROMPTS, ids=[name for name, *_ in PROMPTS])
def test_prompts(llama, refused, tmp_path, name, content, why):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert why in refused(llama, "--data", path)


ARRAYS = [
    ({"input_ids": np.array([[1.5]])}, "'input_ids' is float64"),
    ({"ids": np.array([[1]])}, "has no array 'input_ids', only ids"),
    ({"input_ids": np.array([[1, 70]])}, "token id 70 is none of the model"),
    ({"input_ids": np.ones((1, 97), int)}, "has 97 tokens, and the model's context holds 96"),
    ({"input_ids": np.ones((1, 2), int), "attention_mask": np.ones((1, 3), int)}, "'attention_mask' is [1, 3]"),
    ({"input_ids": np.ones((1, 2), int), "attention_mask": np.zeros((1, 2), int)}, "holds no token"),
    ({"input_ids": np.ones((1, 2), int), "pixel_values": np.ones((2, 3))}, "there are 1 prompts"),
]


@pytest.mark.parametrize(("arrays", "why"), ARRAYS, ids=[why for _, why in ARRAYS])
def test_arrays(llama, refused, tmp_path, arrays, why):
    np.savez(tmp_path / "data.npz", **arrays)
    assert why in refused(llama, "--data", tmp_path / "data.npz")


@pytest.mark.parametrize("content", ["{}", "not json", '{"model": {"type": "BPE"}}'])
def test_a_tokenizer_that_fails(llama, refused, tmp_path, content):
    (llama / "tokenizer.json").write_text(content)
    (tmp_path / "prompts.txt").write_text("hello")
    error = refused(llama, "--data", tmp_path / "prompts.txt")
    assert "tokenizer.json cannot be read" in error


def recached(folder, shape, drop=(), outputs=()):
    """Declare other caches, as a model of another layout has them."""
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for value in model.graph.input:
        if value.name.startswith("past") and shape:
            value.CopyFrom(nets.port(value.name, nets.FLOAT, *shape))
    for names, values in ((drop, model.graph.input), (outputs, model.graph.output)):
        kept = [onnx.ValueInfoProto.FromString(one.SerializeToString()) for one in values if one.name not in names]
        del values[:]
        values.extend(kept)
    onnx.save(model, folder / "model.onnx")


CACHES = [
    ((["batch_size", 3, "past_sequence_length", nets.SIZE],), "num_key_value_heads is 2"),
    ((["batch_size", 2, "past_sequence_length", 5],), "head_size is 8"),
    ((["batch_size", "past_sequence_length", 2, nets.SIZE],), "its length is axis 1"),
    ((["batch_size", 2, nets.SIZE, "past_sequence_length"],), "its length is axis 3"),
    ((["batch_size", "past_sequence_length", 16],), "has 3 axes"),
    ((None, (), ["present.1.value"]), "cache 'past_key_values.1.value' has no output that fills it"),
]


@pytest.mark.parametrize(("change", "why"), CACHES, ids=[why for _, why in CACHES])
def test_caches_of_another_layout(llama, refused, change, why):
    recached(llama, *change)
    assert why in refused(llama)


def test_caches_of_a_fixed_length_cannot_be_filled(llama, refused, tmp_path):
    recached(llama, ["batch_size", 2, 16, nets.SIZE])
    (tmp_path / "prompts.txt").write_text("hello")
    error = refused(llama, "--data", tmp_path / "prompts.txt")
    assert "cache 'past_key_values.0.key' is ['batch_size', 2, 16, 8], which has a fixed length" in error


def quantized(folder, **attributes):
    """Replace the head by one of 4 bits in blocks of 16."""
    model = onnx.load(folder / "model.onnx")
    last = model.graph.node[-1]
    blocks = nets.WIDTH // 16
    weights = [
        numpy_helper.from_array(np.zeros((nets.VOCABULARY, blocks, 8), np.uint8), "head_q4"),
        numpy_helper.from_array(np.ones((nets.VOCABULARY, blocks), np.float32), "head_scales"),
    ]
    model.graph.initializer.extend(weights)
    settings = {"K": nets.WIDTH, "N": nets.VOCABULARY, "bits": 4, "block_size": 16, **attributes}
    inputs = [last.input[0], "head_q4", "head_scales"]
    node = helper.make_node("MatMulNBits", inputs, ["logits"], "head", domain="com.microsoft", **settings)
    del model.graph.node[-1]
    model.graph.node.append(node)
    for file in folder.glob("model.onnx*"):
        file.unlink()
    nets.save(model, folder / "model.onnx", True)


BLOCKS = [
    ({"block_size": 32}, "node 'head' (MatMulNBits): 'head_q4' is [64, 2, 8], and blocks of 32 need [64, 1, 16]"),
    ({"bits": 8}, "node 'head' (MatMulNBits): 'head_q4' is [64, 2, 8], and blocks of 16 need [64, 2, 16]"),
    ({"K": 64}, "need [64, 4, 8]"),
    ({"block_size": 24}, "block_size is 24, and a power of two from 16 on is expected"),
]


@pytest.mark.parametrize(("attributes", "why"), BLOCKS, ids=[why for _, why in BLOCKS])
def test_quantized_weights_with_other_blocks(llama, refused, attributes, why):
    quantized(llama, **attributes)
    assert why in refused(llama)


@pytest.mark.slow
def test_quantized_weights_with_their_own_blocks_compile(llama, dovetail):
    quantized(llama)
    assert dovetail("compile", llama, "--backend", "gpu-fp16", "-o", "out").returncode == 0


def with_experts(folder, lost=(), transposed=False, **attributes):
    """Add a mixture of four experts in front of the head; some weights lose an expert."""
    model = onnx.load(folder / "model.onnx")
    last = model.graph.node[-1]
    rng = np.random.default_rng(0)
    shapes = {"router": (nets.WIDTH, 4), "w1": (4, 8, nets.WIDTH), "w2": (4, nets.WIDTH, 8), "b1": (4, 8)}
    for name, shape in shapes.items():
        shape = (shape[0] - (name in lost), *(shape[1:] if name != "w2" or not transposed else shape[:0:-1]))
        model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    flat = numpy_helper.from_array(np.array([-1, nets.WIDTH]), "flat")
    model.graph.initializer.append(flat)
    hidden = last.input[0]
    nodes = [
        helper.make_node("Reshape", [hidden, "flat"], ["rows"]),
        helper.make_node("MatMul", ["rows", "router"], ["chosen"]),
        helper.make_node(
            "MoE", [hidden, "chosen", "w1", "b1", "w2"], ["mixed"], "experts", domain="com.microsoft",
            **{"k": 2, "activation_type": "silu", **attributes},
        ),
    ]  # fmt: skip
    last.input[0] = "mixed"
    for node in nodes:
        model.graph.node.insert(len(model.graph.node) - 1, node)
    for file in folder.glob("model.onnx*"):
        file.unlink()
    nets.save(model, folder / "model.onnx", True)


EXPERTS = [
    (
        {"lost": ("w1",)},
        f"node 'experts' (MoE): 'w1' [3, 8, {nets.WIDTH}] has 3 experts, and the router chooses among 4",
    ),
    ({"lost": ("b1",)}, "'b1' [3, 8] has 3 experts, and the router chooses among 4"),
    ({"lost": ("w1", "w2", "b1")}, "has 3 experts, and the router chooses among 4"),
    ({"k": 5}, "k is 5, and there are 4 experts"),
    ({"transposed": True}, f"reads {nets.WIDTH} numbers, and the first layer gives 8"),
]


@pytest.mark.parametrize(("change", "why"), EXPERTS, ids=[why for _, why in EXPERTS])
def test_mixtures_that_lack_experts(llama, refused, change, why):
    with_experts(llama, **change)
    assert why in refused(llama)


@pytest.mark.slow
def test_a_whole_mixture_compiles(llama, dovetail):
    with_experts(llama)
    assert dovetail("compile", llama, "--backend", "gpu-fp16", "-o", "out").returncode == 0


OPSETS = [
    ("", 9, "(ReduceSum) has 2 inputs; ReduceSum takes 1"),
    ("", 99, "imports opset 99"),
    ("com.microsoft", None, "of domain 'com.microsoft', which the model does not import"),
]


@pytest.mark.parametrize(("domain", "version", "why"), OPSETS, ids=[f"{row[0]} {row[1]}" for row in OPSETS])
def test_an_opset_that_lies_about_the_operators(llama, refused, domain, version, why):
    model = onnx.load(llama / "model.onnx", load_external_data=False)
    kept = [one for one in model.opset_import if one.domain != domain]
    del model.opset_import[:]
    model.opset_import.extend([*kept, *([helper.make_opsetid(domain, version)] if version else [])])
    (llama / "model.onnx").write_bytes(model.SerializeToString())
    assert why in refused(llama)


def test_the_result_of_another_version_is_neither_replaced_nor_read(llama, dovetail):
    assert dovetail("compile", llama, "--backend", "gpu-fp16", "-o", "out").returncode == 0
    manifest = Path("out/dovetail.json")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    for arguments in ((llama, "-o", "out"), ("out", "-o", "other")):
        done = dovetail("compile", arguments[0], "--backend", "gpu-fp16", *arguments[1:])
        assert done.returncode == 1 and "was written by another version of Dovetail" in done.stderr
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before and not Path("other").exists()


def test_a_result_is_no_source_and_no_source_is_replaced(llama, dovetail):
    assert dovetail("compile", llama, "--backend", "gpu-fp16", "-o", "out").returncode == 0
    assert "out is a result already" in dovetail("compile", "out", "--backend", "gpu-fp16", "-o", "other").stderr
    done = dovetail("compile", llama, "--backend", "gpu-fp16", "-o", llama)
    assert done.returncode == 1 and "would replace its own source" in done.stderr


def test_optimum_without_the_decoder_that_belongs_to_the_other(refused, tmp_path):
    (tmp_path / "source").mkdir()
    source = nets.optimum_folder(tmp_path / "source", "two")
    (source / "decoder_with_past_model.onnx").unlink()
    assert "has no decoder_with_past_model.onnx" in refused(source)


def test_a_damaged_model_is_named(llama, refused):
    (llama / "model.onnx").write_bytes((llama / "model.onnx").read_bytes()[:-40])
    assert "model.onnx" in refused(llama)


def test_weights_that_are_not_there_are_named(llama, refused):
    (llama / "model.onnx.data").unlink()
    assert "model.onnx.data" in refused(llama)
