"""Every engine on the types and shapes that cross borders."""

from __future__ import annotations

import gc
from contextvars import ContextVar

import dovetail
import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail.errors import DovetailError
from dovetail.plugin import EngineError, Reads, RegionModel, Session
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu
from dovetail_host.reference import ReferenceEngine
from dovetail_onnx.opening import open_proto
from dovetail_runtime.engines import GuardedEngine

from .models import parse

HEAD = '<ir_version: 10, opset_import: ["": 21]> '
BF16 = np.dtype(ml_dtypes.bfloat16)


def engines():
    from dovetail_cpu_bf16.engine import OpenVinoCpu

    return [OnnxRuntimeCpu(), ReferenceEngine(), OpenVinoCpu()]


@pytest.fixture(params=engines(), ids=lambda engine: engine.name)
def engine(request):
    return request.param


def run(engine, text, **inputs):
    session = engine.load(RegionModel(parse(text)), {"threads": 1, "profile": True})
    return session.run(inputs), session.executed()


def test_available_and_cheap_facts(engine):
    assert engine.available().ok
    assert engine.reads.opset >= 22 and "bfloat16" in engine.reads.types


@pytest.mark.parametrize("type_", ["float", "double", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"])
def test_types_cross_the_border(engine, type_):
    dtype = {"float": np.float32, "double": np.float64, "bfloat16": BF16}.get(type_) or np.dtype(type_)
    x = np.array([[1, 0, 3], [4, 5, 6]]).astype(dtype)
    outputs, _ = run(engine, f"g ({type_}[N,3] x) => ({type_}[3,N] y) {{ y = Transpose<perm=[1,0]>(x) }}", x=x)
    assert outputs["y"].dtype == dtype
    assert np.array_equal(outputs["y"], x.T)


def test_weights_of_4_bits_are_multiplied_in_float32():
    """ONNX Runtime rounds activations to int8 for them unless it is told not to."""
    x = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)
    numbers = np.arange(256) % 16 - 8
    held = ((numbers[0::2] & 0xF) | (numbers[1::2] & 0xF) << 4).astype(np.uint8).tobytes()
    text = HEAD + "g (float[4,32] x) => (float[4,8] y) { d = DequantizeLinear<axis = 1>(w, s) y = MatMul(x, d) }"
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.helper.make_tensor("w", onnx.TensorProto.INT4, (32, 8), held, raw=True))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(8, 0.1, np.float32), "s"))
    session = OnnxRuntimeCpu().load(RegionModel(open_proto(model)), {"threads": 1})
    expected = x @ (numbers.reshape(32, 8) * np.float32(0.1))
    np.testing.assert_allclose(session.run({"x": x})["y"], expected, atol=1e-5)


def test_float_arithmetic(engine):
    x = np.array([-1, 0, 2], np.float32)
    outputs, _ = run(engine, "g (float[N] x) => (float[N] y) { a = Add(x, x) y = Relu(a) }", x=x)
    assert outputs["y"].tolist() == [0, 0, 4]


def test_bfloat16_arithmetic(engine):
    text = "g (bfloat16[N] x) => (bfloat16[N] y) { a = Add(x, x) y = Relu(a) }"
    outputs, executed = run(engine, text, x=np.array([-1, 1.5, 2], BF16))
    assert outputs["y"].dtype == BF16 and outputs["y"].tolist() == [0, 3, 4]
    emulated = engine.name == "onnxruntime-cpu" or "no bfloat16" in engine.available().why
    assert executed["relu_1"].precision == ("float32" if emulated else "bfloat16")


BFLOAT16_ON_ONNXRUNTIME = [
    ("three results", "float[N] x", "a = Cast<to=16>(x) b = Exp(a) c = Mul(b, b) d = Sub(c, b) y = Cast<to=1>(d)"),
    ("what only moves values", "float[N] x", "a = Cast<to=16>(x) b = Exp(a) c = Identity(b) y = Cast<to=1>(c)"),
    ("a tensor in an attribute", "float[N] x", """
        a = Cast<to=16>(x) s = Shape(a) k = ConstantOfShape<value = bfloat16[1] {1}>(s) b = Add(a, k) y = Cast<to=1>(b)
        """),
    ("a type in an attribute", "float[N] x", """
        a = Cast<to=16>(x) i = Constant<value = int64[2] {-1, 1}>() c = Reshape(a, i) e = EyeLike<dtype=16>(c)
        b = Add(c, e) y = Cast<to=1>(b)"""),
    ("bodies", "float[N] x", """
        a = Cast<to=16>(x) t = Constant<value = bool {1}>() n = Constant<value = int64 {3}>()
        b, all = Loop(n, t, a) <
            body = one (int64 i, bool go, bfloat16[N] s) => (bool on, bfloat16[N] r, bfloat16[N] o) {
            on = Identity(go) q = Mul(s, a) r = Sin(q) o = Neg(r) }>
        m = Constant<value = int64 {1}>() c = Gather(all, m) d = Add(b, c) y = Cast<to=1>(d)"""),
]  # fmt: skip


@pytest.mark.parametrize(("graph", "inputs"), [(t, i) for _, i, t in BFLOAT16_ON_ONNXRUNTIME],
                         ids=[name for name, _, _ in BFLOAT16_ON_ONNXRUNTIME])  # fmt: skip
def test_onnxruntime_rounds_every_result_to_bfloat16(graph, inputs):
    """It has no bfloat16 arithmetic; the reference has, and rounds each operator's result once."""
    model = parse(f"g ({inputs}) => (float[M] y) {{ {' '.join(graph.split())} }}")
    x = np.random.default_rng(0).uniform(-2, 2, 64).astype(np.float32)
    expected = ReferenceEngine().load(RegionModel(model), {}).run({"x": x})["y"]
    result = OnnxRuntimeCpu().load(RegionModel(model), {}).run({"x": x})["y"]
    assert np.array_equal(result, expected)


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 0)])
@pytest.mark.parametrize("type_", ["float", "bfloat16", "int64"])
def test_scalars_and_empty_tensors(engine, shape, type_):
    dtype = {"float": np.dtype(np.float32), "bfloat16": BF16}.get(type_, np.dtype(np.int64))
    dims = "" if shape == () else "[N,M]"
    outputs, _ = run(engine, f"g ({type_}{dims} x) => ({type_}{dims} y) {{ y = Identity(x) }}", x=np.ones(shape, dtype))
    assert outputs["y"].shape == shape and outputs["y"].dtype == dtype


def test_dynamic_shapes_within_one_session(engine):
    session = engine.load(RegionModel(parse("g (float[N,M] x) => (float[M,N] y) { y = Transpose(x) }")), {})
    for shape in ((2, 3), (5, 1), (1, 7)):
        assert session.run({"x": np.zeros(shape, np.float32)})["y"].shape == shape[::-1]


def test_results_of_one_run_survive_the_next(engine):
    session = engine.load(RegionModel(parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")), {})
    first = session.run({"x": np.ones(2, np.float32)})["y"]
    session.run({"x": np.zeros(2, np.float32)})
    assert first.tolist() == [-1, -1]


def test_an_input_that_only_a_dropped_node_reads(engine):
    x = np.array([1, 2], np.float32)
    outputs, _ = run(engine, "g (float[2] x) => (float[2] y) { y = Dropout(x) }", x=x)
    assert outputs["y"].tolist() == [1, 2]


def test_an_input_that_does_not_matter(engine):
    text = "g (float[2,2] x, int64[0] axes) => (float[1,1] y) { y = ReduceSum(x, axes) }"
    outputs, _ = run(engine, text, x=np.ones((2, 2), np.float32), axes=np.zeros(0, np.int64))
    assert outputs["y"].tolist() == [[4]]


def test_bodies_and_captures(engine):
    text = """g (bool c, float[2] x) => (float[2] y) {
        a = Add(x, x)
        y = If (c) <then_branch = t () => (float[2] p) { p = Neg(a) },
                    else_branch = e () => (float[2] q) { q = Identity(a) }> }"""
    outputs, executed = run(engine, text, c=np.array(True), x=np.ones(2, np.float32))
    assert outputs["y"].tolist() == [-2, -2]
    assert len(executed) == 4


def test_an_unknown_operator_is_refused_with_its_name(engine):
    header = '<ir_version: 10, opset_import: ["" : 22, "com.acme" : 1]>'
    text = header + "g (float[2] x) => (float[2] y) { y = com.acme.Fuse(x) }"
    with pytest.raises(DovetailError, match=rf"{engine.name} refuses .*Fuse"):
        run(engine, text, x=np.ones(2, np.float32))


def test_onnxruntime_knows_what_it_executed_only_from_a_profile():
    model = parse("g (float16[4] x) => (float16[4] y) { a = Sin(x) y = Identity(a) }")
    plain = OnnxRuntimeCpu().load(RegionModel(model), {})
    assert plain.executed()["sin_0"] == ("", "not-reported")
    profiled = OnnxRuntimeCpu().load(RegionModel(model), {"profile": True, "optimize": "basic"})
    profiled.run({"x": np.zeros(4, np.float16)})
    assert profiled.executed()["sin_0"] == ("float32", "reported")


def test_onnxruntime_names_a_wrong_option():
    with pytest.raises(DovetailError, match="optimize='fast' is not one of none, basic"):
        OnnxRuntimeCpu().load(RegionModel(parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")), {"optimize": "fast"})


def test_the_reference_knows_what_it_executed_only_from_a_profile():
    model = parse("g (bfloat16[4] x) => (bfloat16[4] y) { a = Sin(x) y = Identity(a) }")
    for profile, expected in ((False, ("", "not-reported")), (True, ("bfloat16", "reported"))):
        session = ReferenceEngine().load(RegionModel(model), {"profile": profile})
        assert session.run({"x": np.zeros(4, BF16)})["y"].dtype == BF16
        assert session.executed()["sin_0"] == expected


def test_onnxruntime_leaves_four_bit_borders_to_others():
    model = parse("g (float[4] x) => (int4[4] y) { y = Cast<to = 22>(x) }")
    with pytest.raises(DovetailError, match="no array for 'y' of type int4"):
        OnnxRuntimeCpu().load(RegionModel(model), {})


@pytest.mark.parametrize("optimize", ["all", "extended", "basic", "none"])
def test_what_an_optimizer_of_onnx_runtime_spoils_is_loaded_without_it(optimize):
    """Behind a Reshape of int8, it puts a QuantizeLinear with a zero point of uint8, which it then refuses."""
    text = """g (int8[2,4] x) => (float[8] y) <float s = {0.5}, int8 z = {1}, int64[1] shape = {8}> {
        d = DequantizeLinear(x, s, z)  r = Reshape(d, shape)  y = Neg(r) }"""
    x = np.arange(-4, 4, dtype=np.int8).reshape(2, 4)
    session = OnnxRuntimeCpu().load(RegionModel(parse(text)), {"optimize": optimize})
    assert session.run({"x": x})["y"].tolist() == ((1 - x.astype(np.float32)) / 2).ravel().tolist()


class Programs(OnnxRuntimeCpu):
    """Reads opset 13, and loads programs, which it does not look into."""

    name = "acme-programs"
    reads = Reads(13, 10, frozenset({"float32"}))
    loads_artifacts = True

    def load(self, region, options):
        self.loaded = region.model.opset
        return super().load(region, options)


@pytest.mark.parametrize(("is_program", "opset"), [(True, 21), (False, 13)])
def test_the_opset_of_a_program_is_its_compilers_affair(is_program, opset, tmp_path):
    engine = Programs()
    model = open_proto(onnx.parser.parse_model(HEAD + "acme (float[2] x) => (float[2] y) { y = Relu (x) }"))
    GuardedEngine(engine).load(RegionModel(model, artifact=tmp_path if is_program else None), {})
    assert engine.loaded == opset


PROGRAM = """<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
g (float[2] x) => (float[2] y) { [program] y = com.microsoft.EPContext <ep_cache_context = "/home/evil.bin"> (x) }"""


@pytest.mark.parametrize("engine", [OnnxRuntimeCpu, Programs])
def test_no_engine_loads_a_program_that_a_model_names_by_a_path(engine):
    engine = GuardedEngine(engine())
    with pytest.raises(EngineError, match="node 'program' .* and no artifact belongs to it") as caught:
        engine.load(RegionModel(open_proto(onnx.parser.parse_model(PROGRAM))), {})
    assert caught.value.node == "program"


BACKEND = """
backend: acme-half
device: npu
opset: 13..22
precision: {high: float32}
ops: {Relu: {types: float32}}
place: {strategy: autocast}
emit: {engines: [acme-broken, onnxruntime-cpu]}
"""


def test_an_engine_that_cannot_be_imported_is_a_note_once(with_backend, tmp_path):
    plugins = with_backend(BACKEND)
    (tmp_path / "acme_broken.py").write_text("raise ImportError('libacme.so: cannot open shared object file')")
    plugins.registry.engine("acme-broken", "acme_broken:Engine")
    model = onnx.parser.parse_model(HEAD + "acme (float[2] x) => (float[2] y) { y = Relu (x) }")
    compiled = dovetail.compile(model, "acme-half", plugins=plugins)
    assert compiled.run({"x": np.float32([-1, 1])})["y"].tolist() == [0, 1]
    said = [note for note in compiled.notes() if "acme-broken" in note]
    assert len(said) == 1
    assert "acme-broken is not available: " in said[0]
    assert "libacme.so" in said[0]
    assert "1 region of acme-half on onnxruntime-cpu" in repr(compiled)
    plugins = with_backend(BACKEND.replace(", onnxruntime-cpu", "").replace("acme-half", "acme-none"))
    plugins.registry.engine("acme-broken", "acme_broken:Engine")
    with pytest.raises(DovetailError, match=r"backend 'acme-none' has no engine here \(acme-broken: .*libacme\.so"):
        dovetail.compile(model, "acme-none", plugins=plugins)


SEEN: ContextVar[str] = ContextVar("seen", default="outside")


class Closing(OnnxRuntimeCpu):
    """Loads sessions that set a context variable when they are closed, as those that print do."""

    name = "acme-closing"

    def load(self, region, options):
        loaded = super().load(region, options)
        return ClosedSession(loaded)


class ClosedSession(Session):
    closed = 0

    def __init__(self, loaded):
        self._loaded = loaded

    def run(self, inputs):
        return self._loaded.run(inputs)

    def executed(self):
        return {}

    def close(self):
        SEEN.set("inside")
        ClosedSession.closed += 1


def test_a_session_that_the_collector_closes_leaves_the_context_of_its_thread_alone():
    model = open_proto(onnx.parser.parse_model(HEAD + "acme (float[2] x) => (float[2] y) { y = Relu (x) }"))
    session = GuardedEngine(Closing()).load(RegionModel(model), {})
    before = ClosedSession.closed
    del session
    gc.collect()
    assert ClosedSession.closed == before + 1
    assert SEEN.get() == "outside"
