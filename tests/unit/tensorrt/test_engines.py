"""Engines of regions, built by the TensorRT that is installed."""

import json

import dovetail
import numpy as np
import onnx
import pytest
from dovetail_onnx import ENGINES
from dovetail_tensorrt.cache import DESCRIPTION, ENGINE, read_engine
from dovetail_tensorrt.digest import content_digest
from dovetail_tensorrt.libraries import library
from dovetail_tensorrt.parser import parse

PROFILE = {"x": ((1, 4, 8, 8), (2, 4, 8, 8), (4, 4, 8, 8))}


def artifact(compiled, region="region_0"):
    return compiled.artifacts.root / "tensorrt" / region


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(ENGINES.variable, str(tmp_path / "cache"))
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
    monkeypatch.setenv(ENGINES.variable, "off")
    first, second = (dovetail.compile(convolution("2"), "tensorrt") for _ in range(2))
    assert (artifact(first) / ENGINE).read_bytes() == (artifact(second) / ENGINE).read_bytes()
    assert (artifact(first) / DESCRIPTION).read_text() == (artifact(second) / DESCRIPTION).read_text()


def test_a_trial_builds_nothing(builder, convolution, own_cache):
    from dovetail.compiler import Driver
    from dovetail.passes import Context, Request
    from dovetail.plugin import load_plugins

    ctx = Context(Request.of("tensorrt"), plugins=load_plugins())
    ctx.files_wanted = False
    Driver(dovetail.open(convolution("2")), ctx).compile()
    assert not own_cache.exists()


def test_what_was_built_is_kept(builder, convolution, own_cache, monkeypatch):
    dovetail.compile(convolution("2"), "tensorrt")
    (entry,) = own_cache.glob("*/files")
    monkeypatch.setattr("dovetail_tensorrt.making.parse", None)  # another build would fail
    again = dovetail.compile(convolution("2"), "tensorrt")
    assert (artifact(again) / ENGINE).read_bytes() == (entry / ENGINE).read_bytes()


@pytest.mark.parametrize("changed", [{"seed": 1}, {"batch": "3"}])
def test_another_region_is_another_entry(builder, convolution, own_cache, changed):
    dovetail.compile(convolution(**{"batch": "2"}), "tensorrt")
    dovetail.compile(convolution(**{"batch": "2", **changed}), "tensorrt")
    assert len(list(own_cache.glob("*/files"))) == 2


def test_another_workspace_is_another_entry(builder, convolution, own_cache):
    for size in ("1GiB", "2GiB"):
        dovetail.compile(convolution("2"), "tensorrt", workspace=size)
    assert len(list(own_cache.glob("*/files"))) == 2


DESCRIPTIONS = {
    "no JSON": lambda text: "{",
    "a number": lambda text: "5",
    "a thousand brackets": lambda text: "[" * 100_000,
    "another region": lambda text: text.replace('"content": "', '"content": "0'),
    "another target": lambda text: text.replace('"target": "any"', '"target": "sm_999"'),
    "another profile": lambda text: text.replace("2x4x8x8", "9x4x8x8"),
    "another workspace": lambda text: text.replace('"workspace": 0', '"workspace": 1'),
}


@pytest.mark.parametrize("damage", ["truncate", "change", "remove", *DESCRIPTIONS])
def test_a_damaged_or_altered_entry_is_built_again_with_a_note(builder, convolution, own_cache, damage):
    first = dovetail.compile(convolution("2"), "tensorrt")
    (entry,) = own_cache.glob("*/files")
    whole = (entry / ENGINE).read_bytes()
    described = (entry / DESCRIPTION).read_text()
    if damage in DESCRIPTIONS:
        (entry / DESCRIPTION).write_text(DESCRIPTIONS[damage](described))
        assert (entry / DESCRIPTION).read_text() != described
    elif damage == "remove":
        (entry / ENGINE).unlink()
    else:
        (entry / ENGINE).write_bytes(whole[:100] if damage == "truncate" else bytes(len(whole)))
    again = dovetail.compile(convolution("2"), "tensorrt")
    assert (artifact(again) / ENGINE).read_bytes() == (artifact(first) / ENGINE).read_bytes() == whole
    assert (entry / ENGINE).read_bytes() == whole
    assert (entry / DESCRIPTION).read_text() == described
    assert any("an engine that was kept is built again" in note for note in again.notes())


def test_a_cache_that_cannot_be_written_costs_nothing(builder, convolution, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv(ENGINES.variable, str(tmp_path / "file"))
    assert (artifact(dovetail.compile(convolution("2"), "tensorrt")) / ENGINE).is_file()


def test_the_oldest_entries_go_when_the_cache_is_full(builder, convolution, own_cache, monkeypatch):
    monkeypatch.setenv(f"{ENGINES.variable}_SIZE", "1")
    for seed in range(3):
        dovetail.compile(convolution("2", seed), "tensorrt")
    assert len(list(own_cache.glob("*/files"))) == 1


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
    monkeypatch.setattr("dovetail_tensorrt.serializing._LARGEST_IN_MEMORY", 16)
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


def context_model(compiled):
    """The model for ONNX Runtime with NVIDIA's provider, once onnx's checker took it."""
    path = compiled.artifacts.root / "tensorrt" / "model" / "model_ctx.onnx"
    onnx.checker.check_model(str(path))
    return path, onnx.load(path)


def attributes(node):
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def test_the_whole_model_has_nodes_for_its_engines(builder, convolution):
    compiled = dovetail.compile(convolution(), "tensorrt", profiles=PROFILE)
    path, model = context_model(compiled)
    (node,) = model.graph.node
    assert (node.domain, node.op_type, list(node.input), list(node.output)) == (
        "com.microsoft", "EPContext", ["x"], ["y"],
    )  # fmt: skip
    found, made = attributes(node), json.loads((artifact(compiled) / DESCRIPTION).read_text())
    assert (path.parent / found["ep_cache_context"].decode()).read_bytes() == (artifact(compiled) / ENGINE).read_bytes()
    assert found["embed_mode"] == 0 and found["main_context"] == 1
    assert found["partition_name"] == b"region_0"
    assert found["ep_sdk_version"].decode() == builder.version
    assert found["hardware_architecture"] == b"any"
    assert found["notes"].decode() == f"sha256={made['sha256']}; content={made['content']}"
    assert not model.graph.initializer


def test_a_saved_result_holds_each_engine_once(builder, convolution, tmp_path):
    compiled = dovetail.compile(convolution("2"), "tensorrt")
    compiled.save(tmp_path / "out")
    dovetail.load(tmp_path / "out").save(tmp_path / "again")
    for folder in ("out", "again"):
        artifacts = tmp_path / folder / "artifacts" / "tensorrt"
        assert (artifacts / "model" / "region_0.plan").samefile(artifacts / "region_0" / ENGINE)


def test_engines_may_lie_inside_of_it(builder, convolution, caplog):
    compiled = dovetail.compile(convolution(), "tensorrt:context=embedded", profiles=PROFILE)
    path, model = context_model(compiled)
    found = attributes(model.graph.node[0])
    assert found["embed_mode"] == 1
    assert found["ep_cache_context"] == (artifact(compiled) / ENGINE).read_bytes()
    assert [file.name for file in path.parent.iterdir()] == ["model_ctx.onnx"]
    assert not caplog.records, "bytes are what the operator wants, and no reason for a warning on the terminal"


def test_it_may_be_left_out(builder, convolution):
    compiled = dovetail.compile(convolution("2"), "tensorrt:context=none")
    assert not (compiled.artifacts.root / "tensorrt" / "model").exists()
    assert (artifact(compiled) / ENGINE).is_file()


def test_nodes_that_are_in_no_engine_stay(builder, with_backend):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[4,4] x) => (float[4,4] y) '
        "{ a = MatMul(x, x)  b = Bernoulli(a)  c = MatMul(a, b)  y = MatMul(b, c) }"
    )
    text = EAGER.replace("[tensorrt-engine]", "[tensorrt-engine, ep-context]")
    compiled = dovetail.compile(model, "eager-trt", plugins=with_backend(text), try_engines=False)
    path = compiled.artifacts.root / "eager-trt" / "model" / "model_ctx.onnx"
    onnx.checker.check_model(str(path))
    operators = [node.op_type for node in onnx.load(path).graph.node]
    assert operators.count("EPContext") == 2 and "Bernoulli" in operators
    assert "MatMul" not in operators


def test_booleans_are_cast_at_the_border(builder, with_backend):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[4] x, bool[4] m) => (bool[4] y, bool[4] z) '
        "{ [a] g = Greater(x, x)  [b] y = Or(g, m)  [c] z = Not(y) }"
    )
    text = EAGER.replace("[tensorrt-engine]", "[tensorrt-engine, ep-context]")
    compiled = dovetail.compile(
        model, "eager-trt", plugins=with_backend(text.replace("unlisted: {types: f}", "unlisted: {}"))
    )
    path = compiled.artifacts.root / "eager-trt" / "model" / "model_ctx.onnx"
    onnx.checker.check_model(str(path), full_check=False)
    written = onnx.load(path)
    (node,) = [node for node in written.graph.node if node.op_type == "EPContext"]
    casts = [node for node in written.graph.node if node.op_type == "Cast"]
    assert len(casts) == 3
    assert {value.type.tensor_type.elem_type for value in (*written.graph.input, *written.graph.output)} == {1, 9}
    kinds = {value.name: value.type.tensor_type.elem_type for value in written.graph.value_info}
    assert all(kinds[name] == onnx.TensorProto.UINT8 for name in node.output)
    assert any("for which EPContext has no type" in remark.why for remark in compiled.remarks)


def test_onnx_runtime_refuses_it_without_the_provider(builder, convolution):
    import onnxruntime

    path, _ = context_model(dovetail.compile(convolution("2"), "tensorrt"))
    with pytest.raises(Exception, match="EPContext"):
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_an_engine_is_built_for_one_gpu_where_that_is_asked(builder, convolution):
    if builder.sdk != "TensorRT-RTX":
        pytest.skip("the full TensorRT builds for the GPU that is here")
    compiled = dovetail.compile(convolution("2"), "tensorrt:target=sm89")
    assert read_engine(artifact(compiled)).target == "sm89"
    assert attributes(context_model(compiled)[1].graph.node[0])["hardware_architecture"] == b"sm89"


def test_numbers_that_are_extents_need_bounds(builder, with_backend):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[2,8] x, int64[2] s) => (float[a,b] y) '
        "{ r = Relu(x)  y = Reshape(r, s) }"
    )
    plugins = with_backend(EAGER.replace("unlisted: {types: f}", "unlisted: {}"))
    (note,) = [note for note in dovetail.compile(model, "eager-trt", plugins=plugins).notes() if "no engine" in note]
    assert "the numbers of 's' are used as extents, and nobody says their bounds" in note
    bounds = {"s": {"values": ((1, 4), (2, 8), (4, 16))}}
    compiled = dovetail.compile(model, "eager-trt", plugins=plugins, profiles=bounds)
    folder = compiled.artifacts.root / "eager-trt" / "region_0"
    assert read_engine(folder).profile["s"] == ["=1,4", "=2,8", "=4,16"]
    assert [port.is_shape for port in read_engine(folder).inputs] == [False, True]


def test_a_node_that_fails_in_the_builder_without_a_name_is_found(builder, with_backend, monkeypatch):
    from dovetail.plugin import EngineError
    from dovetail_tensorrt.making import build

    def fails_for_softmax(parsed, profile, settings):
        if any(layer.kind == "SOFTMAX" for layer in parsed.verdict.layers):
            raise EngineError("Assertion newNodeOrder.size() == g.nodes.size() failed")
        return build(parsed, profile, settings)

    monkeypatch.setattr("dovetail_tensorrt.making.build", fails_for_softmax)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[8,8] x) => (float[8,8] y) '
        "{ a = MatMul(x, x)  b = MatMul(a, x)  c = Softmax(b)  d = MatMul(c, c)  y = MatMul(d, a) }"
    )
    compiled = dovetail.compile(model, "eager-trt", plugins=with_backend(EAGER), try_engines=False)
    places = {node.output.rpartition("/")[2]: node.backend for node in compiled.plan.nodes}
    assert places == {"a": "eager-trt", "b": "eager-trt", "c": "host", "d": "eager-trt", "y": "eager-trt"}


def test_an_impossible_profile_is_no_fault_of_a_node(builder, with_backend):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[2,H] x) => (float[2,16] y) <int64[2] shape = {2, 16}> '
        "{ r = Relu(x)  y = Reshape(r, shape) }"
    )
    plugins = with_backend(EAGER.replace("unlisted: {types: f}", "unlisted: {}"))
    compiled = dovetail.compile(model, "eager-trt", plugins=plugins, profiles={"x": ((2, 8), (2, 12), (2, 16))})
    (note,) = [note for note in compiled.notes() if "no engine" in note]
    assert "the region cannot have the extents of the profile" in note
    assert {node.backend for node in compiled.plan.nodes} == {"eager-trt"}
