"""What holds for the result of compiling any model for cpu-bf16."""

from collections import Counter

import numpy as np
import onnx
import pytest
from dovetail import api
from dovetail.ir import verify_model
from dovetail_host.reference import ReferenceEngine
from dovetail_onnx.opening import open_model
from dovetail_runtime.executor import RegionExecutor
from hypothesis import given, note
from hypothesis import strategies as st

from .models import PLAIN, models

PINNED = ["Relu", "MatMul", "Add", "Tanh", "Softmax", "Cast"]
ENGINES = {name: [ReferenceEngine()] for name in ("cpu-bf16", "host")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("random")


def compiled(proto, folder, name="result", solver="forward"):
    """Compile from a file to a file."""
    note(onnx.printer.to_text(proto))
    source = folder / f"{name}_source.onnx"
    source.write_bytes(proto.SerializeToString())
    result = api.compile(source, ["cpu-bf16"], solver=solver)
    result.save(folder / name)
    return result


def graphs(graph):
    """A graph and all of its bodies."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)


def types(proto):
    """The element type of every value, by name."""
    inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True)
    found = {tensor.name: tensor.data_type for graph in graphs(inferred.graph) for tensor in graph.initializer}
    for graph in graphs(inferred.graph):
        for value in (*graph.input, *graph.value_info, *graph.output):
            found[value.name] = value.type.tensor_type.elem_type
    return found


def operators(proto):
    return Counter(node.op_type for graph in graphs(proto.graph) for node in graph.node)


@given(proto=models(), solver=st.sampled_from(["forward", "fixpoint", "min-cut"]))
def test_the_result_is_a_correct_model(folder, proto, solver):
    result = compiled(proto, folder, solver=solver)
    verify_model(result.model)
    saved = onnx.load(folder / "result" / "model.onnx")
    onnx.checker.check_model(saved, full_check=True)
    inputs_and_outputs = [[(v.name, v.type) for v in (*p.graph.input, *p.graph.output)] for p in (proto, saved)]
    assert inputs_and_outputs[0] == inputs_and_outputs[1]
    defined_before_read(saved.graph, {""})
    names = [node.name for graph in graphs(saved.graph) for node in graph.node]
    assert len(set(names)) == len(names)
    assert "" not in names


def defined_before_read(graph, outside):
    """Every value is defined once, and before its first reader."""
    seen = [value.name for value in (*graph.input, *graph.initializer)]
    for node in graph.node:
        assert set(node.input) <= outside | set(seen), node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                defined_before_read(attribute.g, outside | set(seen))
        seen += [name for name in node.output if name]
    assert len(set(seen)) == len(seen)
    assert not outside & set(seen)


@given(proto=models())
def test_no_value_is_cast_to_one_type_twice(folder, proto):
    compiled(proto, folder)
    for graph in graphs(onnx.load(folder / "result" / "model.onnx").graph):
        casts = [(node.input[0], node.attribute[0].i) for node in graph.node if node.op_type == "Cast"]
        assert len(set(casts)) == len(casts), casts


@given(proto=models())
def test_products_are_computed_low_and_what_was_planned_is_what_is_typed(folder, proto):
    result = compiled(proto, folder)
    found = types(onnx.load(folder / "result" / "model.onnx"))
    for node in result.plan.nodes:
        if node.op_type in ("MatMul", "Conv"):
            assert (node.backend, str(node.precision)) == ("cpu-bf16", "bfloat16")
    for node in result.model.nodes():
        if node.op_type in ("MatMul", "Conv"):
            assert found[node.outputs[0].name] == onnx.TensorProto.BFLOAT16


@given(proto=models())
def test_the_same_request_on_a_result_gives_the_same_bytes(folder, proto):
    compiled(proto, folder)
    again = api.compile(folder / "result" / "model.onnx", ["cpu-bf16"])
    again.save(folder / "again")
    for name in ("model.onnx", "plan.yaml"):
        assert (folder / "again" / name).read_bytes() == (folder / "result" / name).read_bytes()


@given(proto=models())
def test_without_its_cache_key_a_result_compiles_to_the_same_types(folder, proto):
    compiled(proto, folder)
    first = stripped(onnx.load(folder / "result" / "model.onnx"))
    compiled(first, folder, "second")
    second = onnx.load(folder / "second" / "model.onnx")
    assert operators(second)["Cast"] <= operators(first)["Cast"]
    before, after = types(first), types(second)
    assert {name: kind for name, kind in after.items() if before.get(name, kind) != kind} == {}


def stripped(proto):
    """Without anything that says where it comes from."""
    del proto.metadata_props[:]
    for graph in graphs(proto.graph):
        for node in graph.node:
            del node.metadata_props[:]
    return proto


@given(proto=models(kinds=[*PLAIN, "quantized", "quantized"]))
def test_what_is_quantized_stays_as_it_is(folder, proto):
    compiled(proto, folder)
    assert quantizers(onnx.load(folder / "result" / "model.onnx")) == quantizers(proto)


def quantizers(proto):
    """Operator and constants of every Q and DQ that an output depends on."""
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor).tobytes() for tensor in proto.graph.initializer}
    kept = live(proto)
    return Counter(
        (node.op_type, *(tensors[name] for name in node.input[1:]))
        for node in proto.graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and node.output[0] in kept
    )


def live(proto):
    """Names of values that an output depends on, other than by their extents, which are known here."""
    wanted = {value.name for value in proto.graph.output}
    for node in reversed(proto.graph.node):
        if wanted & set(node.output) and node.op_type not in ("Shape", "Size"):
            wanted.update(node.input)
            for attribute in node.attribute:
                for graph in graphs(attribute.g) if attribute.HasField("g") else ():
                    wanted.update(name for inner in graph.node for name in inner.input)
    return wanted


@given(proto=models(), pinned=st.sets(st.sampled_from(PINNED), max_size=3))
def test_the_result_computes_what_the_original_does(folder, proto, pinned):
    """By the reference, and with some of the operators on the host, so that there are regions."""
    note(onnx.printer.to_text(proto))
    source = folder / "computed.onnx"
    source.write_bytes(proto.SerializeToString())
    present = {node.op_type for node in api.plan(source, ["cpu-bf16"]).nodes if "/" not in node.output}
    pins = [f"type:{op_type}=host" for op_type in sorted(pinned & present)]
    result = api.compile(source, ["cpu-bf16"], pins=pins)
    generator = np.random.default_rng(0)
    feeds = {name: generator.uniform(-1, 1, (2, 4, 4)).astype(np.float32) for name in ("x0", "x1")}
    feeds["flag"] = np.asarray(bool(generator.integers(2)))
    ours = RegionExecutor(result.model, ENGINES).run(feeds)
    theirs = RegionExecutor(open_model(source), ENGINES, backend_of=lambda node: "host").run(feeds)
    for name, expected in theirs.items():
        error = np.abs(ours[name].astype(np.float64) - expected).max()
        assert error <= 0.1 * max(1.0, np.abs(expected).max()), name
