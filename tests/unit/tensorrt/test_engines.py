"""Engines of regions, built by the TensorRT that is installed."""

import json

import dovetail
import numpy as np
import onnx
import pytest
from dovetail_tensorrt.cache import FOLDER, SIZE
from dovetail_tensorrt.digest import content_digest
from dovetail_tensorrt.engine_file import DESCRIPTION, ENGINE, read_engine
from dovetail_tensorrt.libraries import library
from dovetail_tensorrt.parser import parse

PROFILE = {"x": ((1, 4, 8, 8), (2, 4, 8, 8), (4, 4, 8, 8))}


def artifact(compiled, region="region_0"):
    return compiled.artifacts.root / "tensorrt" / region


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_engine_lies_beside_its_description(builder, convolution, tmp_path):
    compiled = dovetail.compile(convolution(), "tensorrt", profiles=PROFILE)
    compiled.save(tmp_path / "out")
    folder = tmp_path / "out" / "artifacts" / "tensorrt" / "region_0"
    engine = read_engine(folder)
    assert (engine.sdk, engine.version, engine.size) == (builder.sdk, builder.version, (folder / ENGINE).stat().st_size)
    assert [(port.name, port.type, port.shape) for port in engine.inputs] == [("x", "FLOAT", (-1, 4, 8, 8))]
    assert engine.profile == {"x": ["1x4x8x8", "2x4x8x8", "4x4x8x8"]}
    loaded = dovetail.load(tmp_path / "out")
    inputs = {"x": np.ones((2, 4, 8, 8), np.float32)}
    np.testing.assert_array_equal(loaded.run(inputs)["y"], compiled.run(inputs)["y"])


def test_the_same_request_gives_the_same_engine(builder, convolution, monkeypatch):
    monkeypatch.setenv(FOLDER, "off")
    first, second = (dovetail.compile(convolution("2"), "tensorrt") for _ in range(2))
    assert (artifact(first) / ENGINE).read_bytes() == (artifact(second) / ENGINE).read_bytes()
    assert (artifact(first) / DESCRIPTION).read_text() == (artifact(second) / DESCRIPTION).read_text()


def test_a_trial_builds_nothing(builder, convolution, own_cache):
    from dovetail.compilation import Planner
    from dovetail.passes import Context, Request
    from dovetail.plugin.loader import load_plugins

    ctx = Context(Request.of("tensorrt"), plugins=load_plugins())
    ctx.files_wanted = False
    Planner(dovetail.open(convolution("2")), ctx).compile()
    assert not own_cache.exists()


def test_what_was_built_is_kept(builder, convolution, own_cache, monkeypatch):
    dovetail.compile(convolution("2"), "tensorrt")
    (entry,) = own_cache.iterdir()
    monkeypatch.setattr("dovetail_tensorrt.making.parse", None)  # another build would fail
    again = dovetail.compile(convolution("2"), "tensorrt")
    assert (artifact(again) / ENGINE).read_bytes() == (entry / ENGINE).read_bytes()


@pytest.mark.parametrize("changed", [{"seed": 1}, {"batch": "3"}])
def test_another_region_is_another_entry(builder, convolution, own_cache, changed):
    dovetail.compile(convolution(**{"batch": "2"}), "tensorrt")
    dovetail.compile(convolution(**{"batch": "2", **changed}), "tensorrt")
    assert len(list(own_cache.iterdir())) == 2


def test_another_workspace_is_another_entry(builder, convolution, own_cache):
    for size in ("1GiB", "2GiB"):
        dovetail.compile(convolution("2"), "tensorrt", workspace=size)
    assert len(list(own_cache.iterdir())) == 2


@pytest.mark.parametrize("damage", ["truncate", "change", "remove", "describe"])
def test_a_damaged_entry_is_built_again(builder, convolution, own_cache, damage):
    first = dovetail.compile(convolution("2"), "tensorrt")
    (entry,) = own_cache.iterdir()
    whole = (entry / ENGINE).read_bytes()
    if damage == "describe":
        (entry / DESCRIPTION).write_text("{")
    elif damage == "remove":
        (entry / ENGINE).unlink()
    else:
        (entry / ENGINE).write_bytes(whole[:100] if damage == "truncate" else bytes(len(whole)))
    again = dovetail.compile(convolution("2"), "tensorrt")
    assert (artifact(again) / ENGINE).read_bytes() == (artifact(first) / ENGINE).read_bytes() == whole
    assert (entry / ENGINE).read_bytes() == whole


def test_a_cache_that_cannot_be_written_costs_nothing(builder, convolution, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv(FOLDER, str(tmp_path / "file"))
    assert (artifact(dovetail.compile(convolution("2"), "tensorrt")) / ENGINE).is_file()


def test_the_oldest_entries_go_when_the_cache_is_full(builder, convolution, own_cache, monkeypatch):
    monkeypatch.setenv(SIZE, "1")
    for seed in range(3):
        dovetail.compile(convolution("2", seed), "tensorrt")
    assert len(list(own_cache.iterdir())) == 1


EAGER = """
backend: eager-trt
device: cuda
precision: {low: float16, high: float32}
opset: 13..24
dynamic: profile
types: {f: [float16, float32]}
unlisted: {types: f}
policies: fp16
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu], artifacts: [tensorrt-engine]}
"""


def test_what_the_parser_refuses_is_placed_elsewhere(builder, with_backend):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[2,8] x) => (float[2,8] y) '
        "{ a = MatMul(x, w)  b = Bernoulli(a)  c = MatMul(b, w)  d = Bernoulli(c)  y = MatMul(d, w) }"
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"))
    compiled = dovetail.compile(model, "eager-trt", plugins=with_backend(EAGER))  # a file that promises too much
    assert {node.operator: node.backend for node in compiled.plan.nodes} == {"MatMul": "eager-trt", "Bernoulli": "host"}
    said = [remark.why for remark in compiled.remarks if remark.rule == "not-emitted"]
    assert len(said) == 2
    assert all(f"the parser of {builder.title} refuses" in why and "the parser has no Bernoulli" in why for why in said)


def test_without_a_builder_the_table_decides_and_a_note_says_so(packages, convolution):
    packages()
    compiled = dovetail.compile(convolution("2"), "tensorrt")
    assert [node.op_type for node in compiled.model.graph] == ["region_0"]
    (note,) = [note for note in compiled.notes() if "no engine was built" in note]
    assert "the table of the backend alone decided: TensorRT is not installed" in note
    assert compiled.run({"x": np.ones((2, 4, 8, 8), np.float32)})["y"].shape == (2, 4, 8, 8)


def test_a_broken_extra_is_a_note_with_its_error(packages, convolution, capsys):
    packages(tensorrt="raise ImportError('libnvinfer.so.11 is missing')")
    compiled = dovetail.compile(convolution("2"), "tensorrt")
    assert any("TensorRT is broken: ImportError: libnvinfer.so.11 is missing" in note for note in compiled.notes())


def test_the_digest_counts_content_and_no_names(convolution):
    def digest(change=lambda model: None, **given):
        model = convolution(**given)
        change(model)
        return content_digest(dovetail.open(model))

    def rename(model):
        node = model.graph.node[0]
        node.output[0] = model.graph.node[1].input[0] = "another"
        node.name = "name"
        model.graph.initializer[0].name = node.input[1] = "weight"

    assert digest() == digest(rename)
    assert len({digest(), digest(seed=1), digest(batch="2"), digest(lambda m: m.graph.node[0].attribute.pop())}) == 4


def test_the_digest_is_the_same_after_saving(builder, convolution, tmp_path):
    from dovetail_tensorrt.inlined import call_in, inlined

    compiled = dovetail.compile(convolution(), "tensorrt", profiles=PROFILE)
    compiled.save(tmp_path / "out")
    loaded = dovetail.load(tmp_path / "out").model
    assert call_in(loaded) is not None
    made = json.loads((artifact(compiled) / DESCRIPTION).read_text())["content"]
    assert content_digest(inlined(loaded)) == made


def test_large_weights_are_streamed_for_the_parser(builder, monkeypatch):
    monkeypatch.setattr("dovetail_tensorrt.serialising._LARGEST_IN_MEMORY", 16)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[2,8] x) => (float[2,8] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"))
    verdict = parse(dovetail.open(model), library()).verdict
    assert verdict.ok
    assert [layer.kind for layer in verdict.layers] == ["CONSTANT", "MATRIX_MULTIPLY"]


def test_the_parser_goes_on_after_a_node_that_it_refuses(builder):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[2,8] x) => (float[2,8] y) '
        "{ [first] a = Bernoulli(x)  b = Relu(a)  [second] c = Bernoulli(b)  y = Relu(c) }"
    )
    verdict = parse(dovetail.open(model), library()).verdict
    assert [(error.node, error.operator) for error in verdict.errors] == [
        ("first", "Bernoulli"),
        ("second", "Bernoulli"),
    ]
    assert str(verdict.errors[0]) == "node 'first' (Bernoulli): the parser has no Bernoulli"


def test_numbers_used_as_extents_are_shape_tensors(builder):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[N,8] x, int64[2] s) => (float[a,b] y) '
        "{ r = Relu(x)  y = Reshape(r, s) }"
    )
    verdict = parse(dovetail.open(model), library()).verdict
    assert [(tensor.name, tensor.type, tensor.shape, tensor.is_shape) for tensor in verdict.inputs] == [
        ("x", "FLOAT", (-1, 8), False), ("s", "INT64", (2,), True),
    ]  # fmt: skip
