"""Small language models in folders, as exporters write them: random weights, one layer, 64 tokens."""

import json

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, WIDTH, HEADS, SIZE, LAYERS, CONTEXT = 64, 32, 4, 8, 2, 96
GQA_HEADS = 2
FLOAT, INT64, INT32, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL
WORDS = ["hello", "world", "this", "is", "a", "small", "test", "of", "models", "that", "speak"]
TEXTS = ["hello world this is a small test of models that speak hello small world of a test", "a test is small"]


class Net:
    """A graph in the making."""

    def __init__(self, seed=0):
        self.nodes, self.weights = [], []
        self.random = np.random.default_rng(seed)

    def op(self, operator, *inputs, name="", **attributes):
        output = name or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], f"n{len(self.nodes)}", **attributes))
        return output

    def constant(self, value, dtype=np.int64):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def weight(self, name, *shape):
        array = (self.random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name


def port(name, dtype, *shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(net, inputs, outputs, contrib=False):
    graph = helper.make_graph(net.nodes, "g", inputs, outputs, net.weights)
    opsets = [helper.make_opsetid("", 21), *([helper.make_opsetid("com.microsoft", 1)] if contrib else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def save(model, path, external):
    path.parent.mkdir(parents=True, exist_ok=True)
    more = {"save_as_external_data": True, "location": f"{path.name}.data", "size_threshold": 1024} if external else {}
    onnx.save(model, path, **more)


def caches(past, length, heads=HEADS, kind="", names=("key", "value"), template="{}.{}.{}"):
    return [
        port(template.format(past, layer, f"{kind}{name}"), FLOAT, "batch_size", heads, length, SIZE)
        for layer in range(LAYERS)
        for name in names
    ]


def grouped_query_decoder(embeds=False):
    """The decoder of onnxruntime-genai's builder in small: grouped queries, caches inside of the operator."""
    net = Net()
    hidden = "inputs_embeds" if embeds else net.op("Gather", net.weight("embed", VOCABULARY, WIDTH), "input_ids")
    lengths = net.op("ReduceSum", "attention_mask", net.constant([1]), keepdims=0)
    ends = net.op("Cast", net.op("Sub", lengths, net.constant([1])), to=INT32)
    total = net.op("Cast", net.op("Gather", net.op("Shape", "attention_mask"), net.constant(1), axis=0), to=INT32)
    for layer in range(LAYERS):
        wide, narrow = HEADS * SIZE, GQA_HEADS * SIZE
        q, k, v = (
            net.op("MatMul", hidden, net.weight(f"{name}{layer}", WIDTH, out))
            for name, out in (("q", wide), ("k", narrow), ("v", narrow))
        )
        past = [f"past_key_values.{layer}.{name}" for name in ("key", "value")]
        outputs = [f"attention{layer}", f"present.{layer}.key", f"present.{layer}.value"]
        net.nodes.append(
            helper.make_node(
                "GroupQueryAttention", [q, k, v, *past, ends, total], outputs, f"attention{layer}",
                domain="com.microsoft", num_heads=HEADS, kv_num_heads=GQA_HEADS, scale=SIZE**-0.5,
            )
        )  # fmt: skip
        projected = net.op("MatMul", outputs[0], net.weight(f"o{layer}", wide, WIDTH))
        hidden = net.op("Add", hidden, projected)
    net.op("MatMul", hidden, net.weight("head", WIDTH, VOCABULARY), name="logits")
    first = port("inputs_embeds", FLOAT, "batch_size", "sequence_length", WIDTH)
    inputs = [
        first if embeds else port("input_ids", INT64, "batch_size", "sequence_length"),
        port("attention_mask", INT64, "batch_size", "total_sequence_length"),
        *caches("past_key_values", "past_sequence_length", GQA_HEADS),
    ]
    outputs = [
        port("logits", FLOAT, "batch_size", "sequence_length", VOCABULARY),
        *caches("present", "total_sequence_length", GQA_HEADS),
    ]
    return model_of(net, inputs, outputs, contrib=True)


def written_out_decoder(past, encoder=False):
    """A decoder in plain operators, as Optimum exports it: with caches as inputs, or the first call without."""
    net = Net(1)
    shape = net.op("Shape", "input_ids")
    count = net.op("Gather", shape, net.constant(1), axis=0)
    before = net.constant(0)
    if past:
        first = "past_key_values.0.decoder.key" if encoder else "past_key_values.0.key"
        before = net.op("Gather", net.op("Shape", first), net.constant(2), axis=0)
    after = net.op("Add", before, count)
    one, zero = net.constant(1), net.constant(0)
    rows = net.op("Unsqueeze", net.op("Range", before, after, one), net.constant([1]))
    columns = net.op("Unsqueeze", net.op("Range", zero, after, one), net.constant([0]))
    seen = net.op("LessOrEqual", columns, rows)
    hidden = net.op("Gather", net.weight("embed", VOCABULARY, WIDTH), "input_ids")
    hidden = net.op(
        "Add",
        hidden,
        net.op("Gather", net.weight("positions", CONTEXT, WIDTH), net.op("Squeeze", rows, net.constant([1]))),
    )
    inner = "decoder." if encoder else ""
    for layer in range(LAYERS):
        q, k, v = (_heads(net, hidden, f"{name}{layer}") for name in "qkv")
        if past:
            k, v = (
                net.op("Concat", f"past_key_values.{layer}.{inner}{name}", new, axis=2)
                for name, new in (("key", k), ("value", v))
            )
        for name, value in (("key", k), ("value", v)):
            net.op("Identity", value, name=f"present.{layer}.{inner}{name}")
        hidden = net.op("Add", hidden, _attention(net, q, k, v, f"o{layer}", seen))
        if encoder:
            hidden = _cross(net, hidden, layer, past)
    net.op("MatMul", hidden, net.weight("head", WIDTH, VOCABULARY), name="logits")
    inputs = [port("input_ids", INT64, "batch_size", "sequence_length")]
    outputs = [port("logits", FLOAT, "batch_size", "sequence_length", VOCABULARY)]
    outputs += caches("present", "total_sequence_length", kind=inner)
    if past:
        inputs += caches("past_key_values", "past_sequence_length", kind=inner)
    if encoder and past:
        inputs += caches("past_key_values", "encoder_sequence_length_out", kind="encoder.")
    if encoder and not past:
        inputs.append(port("encoder_hidden_states", FLOAT, "batch_size", "encoder_sequence_length", WIDTH))
        outputs += caches("present", "encoder_sequence_length_out", kind="encoder.")
    return model_of(net, inputs, outputs)


def _heads(net, hidden, name):
    projected = net.op("MatMul", hidden, net.weight(name, WIDTH, HEADS * SIZE))
    split = net.op("Reshape", projected, net.constant([0, 0, HEADS, SIZE]))
    return net.op("Transpose", split, perm=[0, 2, 1, 3])


def _attention(net, q, k, v, name, seen=None):
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = net.op("Mul", scores, net.constant(SIZE**-0.5, np.float32))
    if seen is not None:
        scores = net.op("Where", seen, scores, net.constant(-1e4, np.float32))
    mixed = net.op("Transpose", net.op("MatMul", net.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    joined = net.op("Reshape", mixed, net.constant([0, 0, HEADS * SIZE]))
    return net.op("MatMul", joined, net.weight(name, HEADS * SIZE, WIDTH))


def _cross(net, hidden, layer, past):
    """Attention to what the encoder gave; its keys and values are computed by the first call alone."""
    q = _heads(net, hidden, f"xq{layer}")
    names = [f"present.{layer}.encoder.{name}" for name in ("key", "value")]
    if past:
        for name in ("xk", "xv"):
            net.weight(f"{name}{layer}", WIDTH, HEADS * SIZE)  # so that later weights are those of the first call
        net.weights = [weight for weight in net.weights if weight.name not in (f"xk{layer}", f"xv{layer}")]
        k, v = (name.replace("present", "past_key_values") for name in names)
    else:
        k, v = (_heads(net, "encoder_hidden_states", f"{name}{layer}") for name in ("xk", "xv"))
        for name, value in zip(names, (k, v)):
            net.op("Identity", value, name=name)
    return net.op("Add", hidden, _attention(net, q, k, v, f"xo{layer}"))


def merged(first, with_past):
    """Both calls in one model: an If whose branches read the same weights."""
    weights, branches = {}, {}
    for key, model in (("then_branch", with_past), ("else_branch", first)):
        copy = onnx.ModelProto.FromString(model.SerializeToString()).graph
        own = {weight.name for weight in copy.initializer if weight.name.startswith("c")}  # constants
        own |= {name for node in copy.node for name in node.output}
        for node in copy.node:
            for names in (node.input, node.output):
                names[:] = [f"{key}/{name}" if name in own else name for name in names]
        for value in (*copy.initializer, *copy.output):
            value.name = f"{key}/{value.name}" if value.name in own else value.name
        weights |= {weight.name: weight for weight in copy.initializer}
        branches[key] = helper.make_graph(list(copy.node), key, [], list(copy.output))
    names = [value.name for value in with_past.graph.output]
    assert names == [value.name for value in first.graph.output]
    node = helper.make_node("If", ["use_cache_branch"], names, "merged", **branches)
    inputs = [*with_past.graph.input, port("use_cache_branch", BOOL, 1)]
    graph = helper.make_graph([node], "g", inputs, list(with_past.graph.output), list(weights.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def tokenizer(folder):
    """Write a tokenizer that all generators read: words with a mark for the space before them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = [(f"\u2581{word}", -1.0 - index) for index, word in enumerate(WORDS)]
    made = Tokenizer(models.Unigram([("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *words], 0, False))
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer", "unk_token": "<unk>"}')


def section(filename, inputs, outputs):
    return {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []}, "filename": filename,
        "head_size": SIZE, "hidden_size": WIDTH, "inputs": inputs, "outputs": outputs,
        "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "num_key_value_heads": GQA_HEADS,
    }  # fmt: skip


def genai_config(model):
    document = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "context_length": CONTEXT, **model}
    search = {"do_sample": False, "max_length": CONTEXT, "past_present_share_buffer": False}
    return {"model": {"type": "llama", "vocab_size": VOCABULARY, **document}, "search": search}


CACHED = {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
FILLED = {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}


def llama_folder(folder, external=True):
    """A folder of onnxruntime-genai with one decoder."""
    save(grouped_query_decoder(), folder / "model.onnx", external)
    inputs = {"input_ids": "input_ids", "attention_mask": "attention_mask", **CACHED}
    config = genai_config({"decoder": section("model.onnx", inputs, {"logits": "logits", **FILLED})})
    (folder / "genai_config.json").write_text(json.dumps(config, indent=4))
    tokenizer(folder)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


def in_float16(folder):
    """Hold all floats of a folder with one decoder in float16, weights and caches included."""
    model = onnx.load(folder / "model.onnx")
    for tensor in model.graph.initializer:
        if tensor.data_type == FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    (folder / "model.onnx.data").unlink()
    save(model, folder / "model.onnx", True)
    return folder


def with_windows(folder, window):
    """Let the attention of a folder see the last positions alone, in caches that drop the rows before them."""
    model = onnx.load(folder / "model.onnx")
    for node in model.graph.node:
        if node.op_type == "GroupQueryAttention":
            for name, value in (("local_window_size", window), ("sliding_window_cache", 1)):
                node.attribute.append(helper.make_attribute(name, value))
    save(model, folder / "model.onnx", external=False)
    return folder


def vision_folder(folder):
    """A folder of onnxruntime-genai with an encoder of images, an embedding and a decoder."""
    net = Net(2)
    flat = net.op("Reshape", "pixel_values", net.constant([-1, 12]))
    net.op("MatMul", flat, net.weight("patches", 12, WIDTH), name="image_features")
    pixels = port("pixel_values", FLOAT, "num_images", 3, 2, 2)
    features = port("image_features", FLOAT, "num_image_tokens", WIDTH)
    save(model_of(net, [pixels], [features]), folder / "vision.onnx", True)
    net = Net(3)
    words = net.op("Gather", net.weight("embed", VOCABULARY, WIDTH), "input_ids")
    sums = net.op("ReduceSum", "image_features", net.constant([0]), keepdims=1)
    net.op("Add", words, net.op("Unsqueeze", sums, net.constant([0])), name="inputs_embeds")
    embeds = port("inputs_embeds", FLOAT, "batch_size", "sequence_length", WIDTH)
    ids = port("input_ids", INT64, "batch_size", "sequence_length")
    save(model_of(net, [ids, features], [embeds]), folder / "embedding.onnx", True)
    save(grouped_query_decoder(embeds=True), folder / "text.onnx", True)
    inputs = {"inputs_embeds": "inputs_embeds", "attention_mask": "attention_mask", **CACHED}
    image = {"image_features": "image_features"}
    config = genai_config(
        {
            "type": "phi3v",
            "decoder": section("text.onnx", inputs, {"logits": "logits", **FILLED}),
            "embedding": {
                "filename": "embedding.onnx",
                "inputs": {"input_ids": "input_ids", **image},
                "outputs": {"inputs_embeds": "inputs_embeds"},
            },
            "vision": {"filename": "vision.onnx", "inputs": {"pixel_values": "pixel_values"}, "outputs": image},
        }
    )  # fmt: skip
    (folder / "genai_config.json").write_text(json.dumps(config))
    tokenizer(folder)
    return folder


def speech_folder(folder):
    """A folder of onnxruntime-genai as for Whisper: an encoder of sounds, which also fills caches of the decoder."""
    net = Net(5)
    frames = net.op("Transpose", "audio_features", perm=[0, 2, 1])
    net.op("MatMul", frames, net.weight("mel", 8, WIDTH), name="hidden_states")
    cross = []
    for layer in range(LAYERS):
        for name in ("key", "value"):
            heads = _heads(net, "hidden_states", f"{name}{layer}")
            net.op("Identity", heads, name=f"present_{name}_cross_{layer}")
            cross.append(port(f"present_{name}_cross_{layer}", FLOAT, "batch_size", HEADS, 12, SIZE))
    features = port("audio_features", FLOAT, "batch_size", 8, 12)
    hidden = port("hidden_states", FLOAT, "batch_size", 12, WIDTH)
    save(model_of(net, [features], [hidden, *cross]), folder / "encoder.onnx", True)
    model = written_out_decoder(True, encoder=True)
    for names in (*((node.input, node.output) for node in model.graph.node),):
        for ports in names:
            ports[:] = [_as_whisper(name) for name in ports]
    for value in (*model.graph.input, *model.graph.output):
        value.name = _as_whisper(value.name)
    save(model, folder / "decoder.onnx", True)
    past = {f"{kind}_names": f"{kind}_self_%d" for kind in ("past_key", "past_value")}
    crossed = {f"cross_{kind}_names": f"{kind}_cross_%d" for kind in ("past_key", "past_value")}
    present = {name.replace("past", "present"): value.replace("past", "present") for name, value in past.items()}
    encoded = {name.replace("past", "present"): value.replace("past", "present") for name, value in crossed.items()}
    decoder = section("decoder.onnx", {"input_ids": "input_ids", **past, **crossed}, {"logits": "logits", **present})
    encoder = section(
        "encoder.onnx",
        {"audio_features": "audio_features"},
        {"encoder_hidden_states": "hidden_states", **encoded},
    )
    for one in (decoder, encoder):
        one["num_key_value_heads"] = HEADS
    config = genai_config({"type": "whisper", "encoder": encoder, "decoder": decoder})
    (folder / "genai_config.json").write_text(json.dumps(config))
    tokenizer(folder)
    return folder


def _as_whisper(name):
    """`past_key_values.1.encoder.key` is called `past_key_cross_1` there."""
    parts = name.split(".")
    if len(parts) != 4:
        return name
    kind = "cross" if parts[2] == "encoder" else "self"
    return f"{'past' if parts[0].startswith('past') else 'present'}_{parts[3]}_{kind}_{parts[1]}"


def pipeline_folder(folder):
    """A folder of onnxruntime-genai whose decoder is a pipeline: embeddings, layers, and scores."""
    net = Net(3)
    net.op("Gather", net.weight("embed", VOCABULARY, WIDTH), "input_ids", name="inputs_embeds")
    ids = port("input_ids", INT64, "batch_size", "sequence_length")
    embeds = port("inputs_embeds", FLOAT, "batch_size", "sequence_length", WIDTH)
    save(model_of(net, [ids], [embeds]), folder / "embeddings.onnx", False)
    save(grouped_query_decoder(embeds=True), folder / "layers.onnx", False)
    names = {**CACHED, "attention_mask": "attention_mask"}
    stages = [
        {"embeddings": {"filename": "embeddings.onnx", "inputs": ["input_ids"], "outputs": ["inputs_embeds"]}},
        {"layers": {"filename": "layers.onnx", "inputs": ["inputs_embeds"], "outputs": ["logits"]}},
    ]
    decoder = section("", names, {"logits": "logits", **FILLED})
    del decoder["filename"]
    config = genai_config({"type": "decoder-pipeline", "decoder": {**decoder, "pipeline": stages}})
    (folder / "genai_config.json").write_text(json.dumps(config))
    tokenizer(folder)
    return folder


def optimum_folder(folder, form):
    """A folder of Optimum: `merged`, `two` models, `both`, one with `past`, or an `encoder` before two."""
    encoder = form == "encoder"
    first, with_past = written_out_decoder(False, encoder), written_out_decoder(True, encoder)
    config = {
        "model_type": "gpt2", "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS, "max_position_embeddings": CONTEXT, "eos_token_id": 2,
        "is_encoder_decoder": encoder, "decoder_start_token_id": 1,
    }  # fmt: skip
    if form == "merged":
        save(merged(first, with_past), folder / "onnx/decoder_model_merged.onnx", False)
    elif form == "past":
        save(with_past, folder / "model.onnx", True)
    else:
        save(first, folder / "decoder_model.onnx", True)
        save(with_past, folder / "decoder_with_past_model.onnx", True)
    if form == "both":
        save(merged(first, with_past), folder / "decoder_model_merged.onnx", True)
    if encoder:
        net = Net(4)
        words = net.op("Gather", net.weight("embed", VOCABULARY, WIDTH), "input_ids")
        net.op("MatMul", words, net.weight("mixed", WIDTH, WIDTH), name="last_hidden_state")
        ids = port("input_ids", INT64, "batch_size", "encoder_sequence_length")
        hidden = port("last_hidden_state", FLOAT, "batch_size", "encoder_sequence_length", WIDTH)
        save(model_of(net, [ids], [hidden]), folder / "encoder_model.onnx", True)
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer(folder)
    return folder
