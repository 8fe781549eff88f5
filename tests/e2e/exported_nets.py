"""Nets that are exported, and what runners of exports have to refuse."""

import importlib.util
import json
from pathlib import Path

import dovetail
import numpy as np
import onnx
import pytest

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def text(graph, **weights):
    """A model in ONNX text, with weights."""
    proto = onnx.parser.parse_model(f"{HEAD} {graph}")
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in weights.items())
    return proto


def noise(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def digits():
    return onnx.load(DIGITS / "digits.onnx"), {"image": np.load(DIGITS / "test.npz")["image"][:5]}


def branches():
    graph = """g (float[2,8] x, bool c) => (float[2,8] y) { y = If (c) <
        then_branch = one () => (float[2,8] a) { a = MatMul (x, w) },
        else_branch = two () => (float[2,8] b) { d = MatMul (x, w)  b = Tanh (d) }> }"""
    return text(graph, w=noise(8, 8)), {"x": noise(2, 8), "c": np.array(False)}


def loop():
    graph = """g (float[1,8] x) => (float[1,8] y) <int64 n = {3}> {
        y = Loop (n, "", x) <body = step (int64 i, bool c, float[1,8] s) => (bool d, float[1,8] t) {
            d = Identity (c)  p = MatMul (s, w)  t = Tanh (p) }> }"""
    return text(graph, w=noise(8, 8)), {"x": noise(1, 8)}


def words():
    proto = text("g (string[1,3] x) => (string[1,3] y, float[1,3] z) { y = Identity (x)  e = Equal (x, x)"
                 " f = Cast <to = 1> (e)  z = Mul (f, w) }", w=noise(3))  # fmt: skip
    proto.opset_import[0].version = 19
    return proto, {"x": np.array([["a", 'é "\\\n', ""]], object)}


def two_branches():
    """A net of two branches, and the pins that give each an engine."""
    graph = """g (float[2,8] x) => (float[2,8] y, float[2,8] z) {
        a = MatMul (x, w)  y = Erf (a)  b = MatMul (x, w)  z = Sin (b) }"""
    proto = text(graph, w=noise(8, 8))
    for node, name in zip(proto.graph.node, ("h1", "h2", "o1", "o2"), strict=True):
        node.name = name
    return proto, ["h*=host", "o*=cpu-bf16/float32"]


def steps_of_decoding(result):
    """Yield what a decoder reads and gives, for a prompt and the tokens after it; it fills its own caches."""
    inputs = result.model.graph.inputs
    past = {value.name: value for value in inputs if value.name.startswith("past")}
    caches = {name: np.zeros((1, value.shape[1], 0, value.shape[3]), np.float32) for name, value in past.items()}
    new, seen = [1, 20, 30, 40, 50], 0
    for _ in range(4):
        seen += len(new)
        feeds = {"input_ids": np.array([new]), "attention_mask": np.ones((1, seen), np.int64), **caches}
        found = result.run(feeds)
        yield feeds, found
        caches = {name: found[name.replace("past_key_values", "present")] for name in caches}
        new = [int(found["logits"][0, -1].argmax())]


MIXED = {"backends": ["cpu-bf16"], "pins": ["type:MatMul=cpu-bf16/float32", "type:Add=host"], "verify": False}
"""A request that gives the parts of a language model several engines."""


ROWS = [
    pytest.param(digits, ["cpu-bf16"], ["openvino"], id="one engine"),
    pytest.param(digits, ["cpu-int8"], ["onnxruntime", "openvino"], id="two engines"),
    pytest.param(digits, ["cpu-int8:runtime=onnxruntime"], ["onnxruntime"], id="integers for ONNX Runtime"),
    pytest.param(digits, ["gpu-fp16"], ["onnxruntime"], id="float16, checked on a CPU"),
    pytest.param(branches, ["cpu-bf16"], None, id="If"),
    pytest.param(loop, ["cpu-bf16"], None, id="Loop"),
    pytest.param(words, ["cpu-bf16"], None, id="texts"),
]
"""Nets, backends, and the engines of the steps where they are known."""


def exported(model, folder, runner, backends="cpu-bf16", data=None, plugins=None):
    """Compile and export to `folder/shipped`; return the result and its description."""
    dovetail.compile(model, backends, data=data, plugins=plugins).save(folder / "out")
    description = dovetail.export(folder / "out", folder / "shipped", runner, plugins)
    return dovetail.load(folder / "out", plugins), description


def module(folder):
    """The `run.py` of a folder, as a program imports it."""
    spec = importlib.util.spec_from_file_location("run", folder / "run.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def plugins_of_acme(monkeypatch):
    """Plugins with a backend, `acme-aot`, whose regions are programs for the engine `acme-runtime`."""
    loaded = dovetail.load_plugins()
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "example_engine" / "src")
    example = importlib.import_module("dovetail_example_engine")
    example.register(loaded.registry)
    loaded.registry.backend("acme-aot", "dovetail_example_engine:aot.backend.yaml")
    return loaded


def acme(weight):
    """A net of which Acme's accelerator computes relu(x @ weight)."""
    return text("g (float[1,4] x) => (float[1,4] y) { p = Gemm (x, w)  r = Relu (p)  y = Erf (r) }", w=weight)


def cut(folder):
    file = next(folder.glob("0/*.bin"))
    file.write_bytes(file.read_bytes()[:-8])


def change(folder):
    file = next(folder.glob("0/*.bin"))
    file.write_bytes(bytes(8) + file.read_bytes()[8:])


def describe(**fields):
    def changed(folder):
        description = json.loads((folder / "deploy.json").read_text())
        description["steps"][0].update({key: fields[key] for key in fields.keys() & {"needs"}})
        description.update({key: fields[key] for key in fields.keys() - {"needs"}})
        (folder / "deploy.json").write_text(json.dumps(description))

    return changed


REFUSED = [
    pytest.param(lambda folder: next(folder.glob("0/*.bin")).unlink(), {}, "is missing", id="no weights"),
    pytest.param(cut, {}, "bytes in place of", id="cut"),
    pytest.param(change, {}, "its digest differs", id="changed"),
    pytest.param(describe(version=2), {}, "no description of version 1", id="a newer description"),
    pytest.param(describe(needs=[["amx_no_such"]]), {}, "for a CPU with amx_no_such", id="another CPU"),
    pytest.param(lambda folder: (folder / "deploy.json").unlink(), {}, "deploy.json", id="no description"),
    pytest.param(None, {}, "input 'image' is missing", id="no input"),
    pytest.param(None, {"image": np.zeros((1, 1, 8, 8))}, "is float32, the .* given is float64", id="type"),
    pytest.param(None, {"image": noise(1, 1, 8, 9)}, r"has the shape \[1, 1, 8, 9\] in place of", id="shape"),
    pytest.param(None, {"image": noise(1, 1, 8, 8), "b": noise(1)}, "there is no input 'b'", id="unknown"),
]
"""What is done to an export of digits, what is fed, and what a runner says."""
