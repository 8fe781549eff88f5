"""The executor: order, fallback, errors, memory, and reports."""

from __future__ import annotations

import re
import warnings
import weakref

import dovetail
import ml_dtypes
import numpy as np
import pytest
from dovetail.errors import DovetailError, VerificationError
from dovetail.planning import extract
from dovetail.plugin import Availability, Engine, EngineError, Executed, Reads, Session
from dovetail_cpu_bf16.engine import OpenVinoCpu
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu
from dovetail_host.reference import ReferenceEngine
from dovetail_runtime.executor import RegionExecutor

from .models import parse

CHAIN = "g (float[N] x) => (float[N] y) { a = Add(x, x) b = Neg(a) c = Mul(b, a) y = Abs(c) }"


PRESENT = Availability(True)


class Recorder(Engine):
    """An engine that delegates to the reference and writes down what it is asked."""

    reads = Reads(26, 13, frozenset({"float32"}))

    def __init__(self, name, available=PRESENT, refuses=()):
        self.name, self._available, self._refuses = name, available, set(refuses)
        self.loaded, self.runs = [], 0

    def available(self):
        return self._available

    def load(self, region, options):
        types = [node.op_type for node in region.model.nodes()]
        if self._refuses & set(types):
            raise DovetailError(f"{self.name} refuses node '{region.model.graph[0].name}'")
        self.loaded.append(types)
        return _Session(self, ReferenceEngine().load(region, options))


class _Session(Session):
    def __init__(self, engine, session):
        self.engine, self.session = engine, session

    def run(self, inputs):
        self.engine.runs += 1
        return self.session.run(inputs)

    def executed(self):
        return {name: Executed(self.engine.name, "reported") for name in self.session.executed()}


def test_two_backends_take_turns():
    left, right = Recorder("left"), Recorder("right")
    executor = RegionExecutor(
        parse(CHAIN), {"l": [left], "r": [right]}, backend_of=lambda node: "r" if node.op_type == "Mul" else "l"
    )
    x = np.array([1, -2], np.float32)
    assert executor.run({"x": x})["y"].tolist() == [4, 16]
    assert left.loaded == [["Add", "Neg"], ["Abs"]] and right.loaded == [["Mul"]]
    assert [region.backend for region in executor.regions] == ["l", "r", "l"]
    assert executor.executed()["mul_2"].precision == "right" and executor.executed()["abs_3"].precision == "left"
    assert executor.engines == ["left", "right", "left"] and executor.notes == []


@pytest.mark.parametrize(
    ("backends", "given", "spins"), [("l", {}, True), ("lr", {}, False), ("lr", {"spin": True}, True)]
)
def test_threads_spin_where_the_model_is_one_region(backends, given, spins):
    seen = []

    class Watched(Recorder):
        def load(self, region, options):
            seen.append(options["spin"])
            return super().load(region, options)

    RegionExecutor(
        parse(CHAIN), {name: [Watched(name)] for name in "lr"}, given, lambda node: backends[-(node.op_type == "Mul")]
    )
    assert set(seen) == {spins}


def test_real_engines_side_by_side():
    from dovetail_cpu_bf16.engine import OpenVinoCpu

    text = """g (float[N,4] x) => (float[N,2] y) <bfloat16[4,2] w = {1,2,3,4,5,6,7,8}> {
        a = Cast<to=16>(x) b = MatMul(a, w) c = Cast<to=1>(b) y = Softmax(c) }"""
    executor = RegionExecutor(
        parse(text),
        {"cpu-bf16": [OpenVinoCpu()], "host": [OnnxRuntimeCpu(), ReferenceEngine()]},
        backend_of=lambda node: "host" if node.op_type == "Softmax" else "cpu-bf16",
    )
    y = executor.run({"x": np.ones((3, 4), np.float32)})["y"]
    assert y.shape == (3, 2) and np.allclose(y.sum(axis=1), 1)
    assert set(executor.executed()) == {"cast_0", "matmul_1", "cast_2", "softmax_3"}
    how = executor.executed()["matmul_1"]
    assert how.precision in ("bfloat16", "float32") and how.how != "not-reported"


def test_an_absent_engine_is_skipped_with_its_reason():
    absent, present = Recorder("absent", Availability(False, "no device")), Recorder("present")
    executor = RegionExecutor(parse(CHAIN), {"host": [absent, present]})
    assert executor.engines == ["present"] and executor.notes == ["absent is not available: no device"]


def test_a_refusal_falls_to_the_next_engine_for_that_region_only():
    picky, plain = Recorder("picky", refuses=["Mul"]), Recorder("plain")
    executor = RegionExecutor(
        parse(CHAIN),
        {"l": [picky, plain], "r": [picky, plain]},
        backend_of=lambda n: "r" if n.op_type == "Mul" else "l",
    )
    assert executor.engines == ["picky", "plain", "picky"]
    assert executor.notes == ["region 1 (r, 1 node from 'mul_2') runs on plain: picky refuses node 'mul_2'"]


def test_onnxruntime_computes_bfloat16_in_float32():
    text = "g (bfloat16[2] x) => (bfloat16[2] y) { y = Relu(x) }"
    executor = RegionExecutor(parse(text), {"host": [OnnxRuntimeCpu(), ReferenceEngine()]})
    assert executor.engines == ["onnxruntime-cpu"]
    assert executor.run({"x": np.array([-1, 2], ml_dtypes.bfloat16)})["y"].tolist() == [0, 2]


def test_when_no_engine_is_left_all_reasons_are_given():
    engines = [Recorder("first", refuses=["Mul"]), Recorder("second", refuses=["Neg"])]
    with pytest.raises(DovetailError, match=r"no engine runs region 0 .*first refuses .*second refuses"):
        RegionExecutor(parse(CHAIN), {"host": engines})
    engines = [Recorder("simulator", Availability(False, "gone")), Recorder("other", refuses=["Mul"])]
    with pytest.raises(DovetailError, match=r"other refuses .*; simulator is not available: gone"):
        RegionExecutor(parse(CHAIN), {"host": engines})
    with pytest.raises(DovetailError, match="is not available: gone"):
        RegionExecutor(parse(CHAIN), {"host": [Recorder("only", Availability(False, "gone"))]})
    with pytest.raises(DovetailError, match="no engines are known for backend 'host'"):
        RegionExecutor(parse(CHAIN), {})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"xx": np.ones(2, np.float32)}, "no input 'xx'\n  did you mean 'x'"),
        ({}, "no value for input 'x'"),
        ({"x": np.ones(2)}, "input 'x' is float32, the value given is float64"),
        ({"x": ["one", "two"]}, "input 'x' is float32; the list given holds something else"),
        ([1.0, 2.0], "inputs are given by name, not as list"),
        ({"x": np.ones((2, 2), np.float32)}, r"input 'x' has shape \[N\], the value given has \[2, 2\]"),
        ({"x": np.ones(2, np.float32), "w": np.ones(2, np.float32)}, "input 'w' is a constant"),
    ],
)
def test_wrong_inputs(inputs, message):
    model = parse("g (float[N] x) => (float[N] y) <float[1] w = {1}> { y = Add(x, w) }")
    with pytest.raises(DovetailError, match=message):
        RegionExecutor(model, {"host": [ReferenceEngine()]}).run(inputs)


def test_intermediate_values_are_freed_after_their_last_use():
    alive = []

    class Watching(Recorder):
        def load(self, region, options):
            session = super().load(region, options)
            inner = session.run

            def run(inputs):
                alive.append(sum(ref() is not None for ref in refs))
                outputs = inner(inputs)
                refs.extend(weakref.ref(array) for array in outputs.values())
                return outputs

            session.run = run
            return session

    refs = []
    engine = Watching("engine")
    text = "g (float[2] x) => (float[2] e) { a = Neg(x) b = Abs(a) c = Neg(b) d = Abs(c) e = Neg(d) }"
    executor = RegionExecutor(parse(text), {"Neg": [engine], "Abs": [engine]}, backend_of=lambda node: node.op_type)
    executor.run({"x": np.ones(2, np.float32)})
    assert alive == [0, 1, 1, 1, 1]


def test_outputs_that_no_node_computes():
    model = parse(
        "g (float[2] x) => (float[2] x, float[2] y, float[2] w) <float[2] w = {5, 6}> { a = Neg(x) y = Abs(a) }"
    )
    outputs = RegionExecutor(
        model, {"Neg": [ReferenceEngine()], "Abs": [ReferenceEngine()]}, backend_of=lambda node: node.op_type
    ).run({"x": np.array([1, 2], np.float32)})
    assert outputs["x"].tolist() == [1, 2] and outputs["y"].tolist() == [1, 2] and outputs["w"].tolist() == [5, 6]


def test_integers_of_either_long_type_and_byte_order():
    from dovetail_cpu_bf16.engine import OpenVinoCpu

    model = parse("g (int64[2] x) => (int64[2] y) { y = Neg(x) }")
    for dtype in ("q", "l", ">i8"):
        for engine in (OpenVinoCpu(), OnnxRuntimeCpu(), ReferenceEngine()):
            y = RegionExecutor(model, {"host": [engine]}).run({"x": np.array([1, -2], dtype)})["y"]
            assert y.tolist() == [-1, 2]


def test_the_caveat_of_an_engine_is_noted_when_it_is_used():
    slow, unused = Recorder("slow", Availability(True, "slow here")), Recorder("unused", Availability(True, "odd"))
    assert RegionExecutor(parse(CHAIN), {"host": [slow, unused]}).notes == ["slow: slow here"]


@pytest.mark.parametrize("name", ["onnxruntime-cpu", "reference", "openvino-cpu"])
def test_regions_that_call_functions(name):
    from dovetail_cpu_bf16.engine import OpenVinoCpu

    engine = next(e for e in (OnnxRuntimeCpu(), ReferenceEngine(), OpenVinoCpu()) if e.name == name)
    text = """<ir_version: 10, opset_import: ["" : 22, "local" : 1]>
        g (float[2] x) => (float[2] y) { a = local.Twice(x) y = Neg(a) }
        <domain: "local", opset_import: ["" : 22, "local" : 1]> Twice (v) => (w) { u = local.Same(v) w = Add(u, v) }
        <domain: "local", opset_import: ["" : 22]> Same (v) => (w) { w = Identity(v) }
        <domain: "local", opset_import: ["" : 22]> Unused (v) => (w) { w = Identity(v) }"""
    model = parse(text)
    executor = RegionExecutor(
        model, {"a": [engine], "b": [engine]}, backend_of=lambda n: "b" if n.op_type == "Neg" else "a"
    )
    assert executor.run({"x": np.array([1, 2], np.float32)})["y"].tolist() == [-2, -4]
    part = extract(model, executor.regions[0])
    assert sorted(key[1] for key in part.ir.functions) == ["Same", "Twice"]
    assert not extract(model, executor.regions[1]).ir.functions


@pytest.mark.parametrize("given", [[1, -2], [1.0, -2.0], (1, -2), np.array([1, -2], np.float32)])
def test_lists_and_numbers_are_converted_to_the_declared_type(given):
    executor = RegionExecutor(parse("g (float[2] x, int32 n) => (float[2] y, int32 m) { y = Neg(x) m = Neg(n) }"),
                        {"host": [OnnxRuntimeCpu()]})  # fmt: skip
    outputs = executor.run({"x": given, "n": 3})
    assert outputs["y"].tolist() == [-1, 2] and outputs["m"].dtype == np.int32
    with pytest.raises(DovetailError, match="input 'n' is int32; the float given holds something else"):
        executor.run({"x": given, "n": 1.5})


class Broken(Recorder):
    """An engine with a defect: its sessions call `defect` instead of computing."""

    def __init__(self, name, defect):
        super().__init__(name)
        self.defect = defect

    def load(self, region, options):
        session = super().load(region, options)
        session.run = lambda inputs: self.defect(_Session(self, ReferenceEngine().load(region, options)).run(inputs))
        return session


def raise_(error):
    raise error


DEFECTS = {
    "an exception": (lambda _: raise_(RuntimeError("no memory")), "failed while it ran the region: RuntimeError: no"),
    "SystemExit": (lambda _: raise_(SystemExit(0)), "failed while it ran the region: SystemExit: 0"),
    "a missing output": (lambda outputs: {}, "gives no output 'y'"),
    "another type": (lambda outputs: {"y": np.float64(outputs["y"])}, "gives 'y' as float64, the model .* float32"),
    "another shape": (lambda outputs: {"y": outputs["y"][None]}, r"gives 'y' the shape \[1, 2\], .* declares \[2\]"),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_an_engine_that_fails_is_named_with_its_distribution_and_the_next_one_takes_over(defect):
    from dovetail_runtime.engines import GuardedEngine

    act, said = DEFECTS[defect]
    model = parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    engines = [GuardedEngine(Broken("acme", act), "dovetail-acme"), Recorder("plain")]
    executor = RegionExecutor(model, {"npu": engines}, backend_of=lambda node: "npu")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert executor.run({"x": np.array([1, -2], np.float32)})["y"].tolist() == [-1, 2]
    assert executor.engines == ["plain"] and len(executor.notes) == 1
    (warning,) = caught
    assert warning.category is dovetail.EngineWarning
    assert re.search(
        rf"region 0 \(npu, 1 node from 'neg_0'\) runs on plain instead of acme: .* {said}.*; pin these nodes to 'host'",
        str(warning.message),
    )
    assert re.search(
        rf"region 0 \(npu, 1 node from 'neg_0'\) runs on plain: acme \(dovetail-acme\) {said}", executor.notes[0]
    )


@pytest.mark.parametrize("defect", ["an exception", "SystemExit", "a missing output", "another type"])
def test_an_engine_that_fails_with_nobody_behind_it_is_an_error(defect):
    act, said = DEFECTS[defect]
    executor = RegionExecutor(parse("g (float[2] x) => (float[2] y) { y = Neg(x) }"), {"host": [Broken("acme", act)]})
    with pytest.raises(DovetailError, match=f"acme {said}"):
        executor.run({"x": np.array([1, -2], np.float32)})


def test_a_false_declared_shape_is_no_defect_of_the_engine():
    model = parse("g (float[N] x) => (float[7] y) { y = Neg(x) }")
    executor = RegionExecutor(model, {"npu": [Recorder("one"), Recorder("two")]}, backend_of=lambda node: "npu")
    assert executor.run({"x": np.array([1, -2], np.float32)})["y"].shape == (2,)
    assert executor.engines == ["one"]
    assert executor.notes == ["one gives 'y' the shape [2], the model declares [7]"]


def test_an_engine_that_fails_on_every_input_in_other_words_is_told_of_a_bounded_number_of_times():
    class Chatty(Session):
        def run(self, inputs):
            raise EngineError(f"chatty cannot compute {inputs['x'][0]}")

        def executed(self):
            return {}

    class Talks(Recorder):
        def load(self, region, options):
            return Chatty()

    executor = RegionExecutor(
        parse(CHAIN), {"npu": [Talks("chatty"), Recorder("plain")]}, backend_of=lambda node: "npu"
    )
    for number in range(1, 101):
        assert executor.run({"x": np.array([number], np.float32)})["y"].tolist() == [4 * number * number]
    assert len(executor.refusals) == len(executor.notes) == 20
    assert executor.engines == ["plain"]


class Spoiled(Recorder):
    """An engine without results for three numbers and more, whose sessions compute nothing after that."""

    spoils_sessions = True

    def load(self, region, options):
        session, compute = super().load(region, options), ReferenceEngine().load(region, options).run
        failed = []

        def run(inputs):
            if failed or len(inputs["x"]) > 2:
                failed.append(inputs)
                raise EngineError("acme fails")
            return compute(inputs)

        session.run = run
        return session


@pytest.mark.filterwarnings("ignore::dovetail.EngineWarning")
def test_a_session_that_failed_is_loaded_again_where_it_refuses_what_it_computed_before():
    acme = Spoiled("acme")
    executor = RegionExecutor(parse(CHAIN), {"npu": [acme, Recorder("plain")]}, backend_of=lambda node: "npu")
    for numbers, engine in [([1, 2], "acme"), ([1, 2, 3], "plain"), ([1, 2], "acme"), ([1], "acme")] * 3:
        assert executor.run({"x": np.float32(numbers)})["y"].tolist() == [4 * number**2 for number in numbers]
        assert executor.engines == [engine]
    assert len(acme.loaded) == 4


@pytest.mark.filterwarnings("ignore::dovetail.EngineWarning")
def test_inputs_that_fail_again_and_again_do_not_load_a_region_each_time():
    acme = Spoiled("acme")
    executor = RegionExecutor(parse(CHAIN), {"npu": [acme, Recorder("plain")]}, backend_of=lambda node: "npu")
    for count in range(3, 131):
        assert executor.run({"x": np.ones(count, np.float32)})["y"].tolist() == [4] * count
    assert len(acme.loaded) < 12


def test_an_engine_that_ends_the_program_when_it_is_asked_or_loads_is_left_out():
    class Ends(Recorder):
        def available(self):
            raise SystemExit(0)

    class EndsLater(Recorder):
        def load(self, region, options):
            raise SystemExit(3)

    executor = RegionExecutor(parse(CHAIN), {"host": [Ends("first"), EndsLater("second"), Recorder("third")]})
    assert executor.engines == ["third"]
    assert executor.notes[0].startswith(
        "first is not available: its check failed: SystemExit: 0 (runtime/test_executor"
    )
    assert "runs on third: second could not load the region: SystemExit: 3 (runtime/test_exec" in executor.notes[1]


def test_outputs_come_in_the_order_of_the_model():
    """A region gives its results in the order in which they are computed."""
    model = parse("g (float[1] x) => (float[1] second, float[1] first) { first = Neg(x) second = Abs(first) }")
    compiled = dovetail.compile(model, "host")
    assert compiled.executor().runners[0].outputs == ["first", "second"]
    results = compiled.run({"x": np.array([3], np.float32)})
    assert [(name, array.tolist()) for name, array in results.items()] == [("second", [3]), ("first", [-3])]


def test_a_region_can_be_run_alone():
    left, right = Recorder("left"), Recorder("right")
    executor = RegionExecutor(
        parse(CHAIN), {"l": [left], "r": [right]}, backend_of=lambda node: "r" if node.op_type == "Mul" else "l"
    )
    middle = executor.runners[1]
    assert (middle.index, middle.backend, middle.engine, middle.nodes) == (1, "r", "right", ["mul_2"])
    assert (middle.inputs, middle.outputs) == (["b", "a"], ["c"])
    outputs = middle.run({"a": np.array([2], np.float32), "b": np.array([3], np.float32)})
    assert outputs["c"].tolist() == [6]


def test_an_engine_gets_a_region_in_the_opset_that_it_reads():
    class Old(Recorder):
        def load(self, region, options):
            self.opset = region.model.opset
            return super().load(region, options)

    old, model = Old("old"), parse(CHAIN)
    old.reads = Reads(13, 13, frozenset({"float32"}))
    executor = RegionExecutor(model, {"host": [old]})
    assert (old.opset, executor.engines) == (13, ["old"])
    assert model.opset > 13


def test_a_region_of_a_newer_ir_version_is_loaded_as_the_engine_reads_it():
    """Tools write the latest version that they know into every file, whatever it needs."""

    class Old(Recorder):
        def load(self, region, options):
            self.ir_version = region.model.ir.ir_version
            return super().load(region, options)

    old, model = Old("old"), parse(CHAIN)
    model.ir.ir_version = 14
    old.reads = Reads(22, 10, frozenset({"float32"}))
    executor = RegionExecutor(model, {"host": [old]})
    assert (old.ir_version, executor.engines) == (10, ["old"])
    assert model.ir.ir_version == 14


def test_a_node_that_has_no_form_in_the_opset_of_an_engine_is_refused_by_name():
    old, other = Recorder("old"), Recorder("other")
    old.reads = Reads(13, 13, frozenset({"float32"}))
    model = parse("g (float[1,1,2,2] x, float[1,1,1,2] at) => (float[1,1,1,1] y) { [sampled] y = GridSample(x, at) }")
    executor = RegionExecutor(model, {"host": [old, other]})
    assert executor.engines == ["other"]
    assert old.loaded == []
    (refusal,) = executor.refusals
    assert refusal.error.node == "sampled"
    (said,) = [note for note in executor.notes if "old reads opset 13 at most" in note]
    assert "'sampled': GridSample" in said


def test_an_engine_knows_the_chosen_options_of_its_backend(with_backend, monkeypatch):
    from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu

    seen, load = [], OnnxRuntimeCpu.load

    def noting(self, region, options):
        seen.append(options)
        return load(self, region, options)

    monkeypatch.setattr(OnnxRuntimeCpu, "load", noting)
    plugins = with_backend("""
backend: npu
device: npu
opset: 13..26
precision: {low: float16, high: float32}
options: {generation: ["1", "2"]}
unlisted: {types: float32}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
""")
    npu = "npu:generation=2"
    compiled = dovetail.compile(parse(CHAIN), npu, plugins=plugins, try_engines=False, check_prepare=False)
    compiled.options["threads"] = 1
    compiled.executor()
    assert seen[0]["backend"] == {"generation": "2"}
    assert seen[0]["threads"] == 1


AWAY = """
backend: npu
device: npu
opset: 13..26
precision: {low: float16, high: float32}
unlisted: {types: float32}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cuda]}
"""


def test_compiling_for_another_machine_says_that_nothing_was_verified(with_backend, tmp_path):
    request = {"data": {"x": np.ones(4, np.float32)}, "plugins": with_backend(AWAY)}
    compiled = dovetail.compile(parse(CHAIN), "npu", try_engines=False, **request)
    assert compiled.verification is None
    (remark,) = [remark for remark in compiled.remarks if remark.rule == "not-verified"]
    assert "onnxruntime-cuda is not available" in remark.why and "dovetail verify" in remark.suggest
    compiled.save(tmp_path / "out")
    with pytest.raises(VerificationError, match="onnxruntime-cuda is not available") as failed:
        dovetail.compile(parse(CHAIN), "npu", **request)
    assert "--no-try-engines" in failed.value.hint
    with pytest.raises(VerificationError):
        dovetail.compile(parse(CHAIN), "npu", try_engines=False, verify=True, **request)


ODD = {
    "none": ({}, "no value for input 'x'"),
    "an unknown one": ({"x": np.ones((2, 3), np.float32), "z": np.ones(1)}, "the model has no input 'z'"),
    "another type": ({"x": np.ones((2, 3))}, "input 'x' is float32, the value given is float64"),
    "another rank": ({"x": np.ones(3, np.float32)}, "input 'x' has shape"),
    "another extent": ({"x": np.ones((2, 4), np.float32)}, "input 'x' has shape"),
    "text": ({"x": "three"}, "input 'x' is float32; the str given holds something else"),
}


@pytest.mark.parametrize("engine", [OnnxRuntimeCpu(), OpenVinoCpu()], ids=lambda engine: engine.name)
class TestOneSessionThatChecksInputsItself:
    def executor(self, engine):
        model = parse("g (float[N,3] x) => (float[N,3] y) { a = Exp(x) y = Neg(a) }")
        return RegionExecutor(model, {"npu": [engine]}, {"threads": 1}, backend_of=lambda node: "npu")

    @pytest.mark.parametrize("case", ODD)
    def test_an_odd_input_is_named_as_by_any_engine(self, engine, case):
        feeds, message = ODD[case]
        with pytest.raises(DovetailError, match=re.escape(message)):
            self.executor(engine).run(feeds)

    @pytest.mark.parametrize(
        "given", [[[1, 2, 3]], np.array([[1, 2, 3]], ">f4"), np.array([[1, 0, 2, 0, 3, 0]], np.float32)[:, ::2]]
    )
    def test_what_has_to_be_converted_is(self, engine, given):
        (result,) = self.executor(engine).run({"x": given}).values()
        np.testing.assert_allclose(result, -np.exp([[1, 2, 3]]), rtol=1e-6)

    def test_a_model_that_declares_another_shape_is_run_once_per_call(self, engine, monkeypatch):
        text = "g (float[N,3] x) => (float[1,4] y) { a = Exp(x) y = Neg(a) }"
        executor = RegionExecutor(parse(text), {"host": [engine]}, backend_of=lambda node: "host")
        runs, kind = [], type(executor.runners[0].self_checking)
        run = kind.run
        monkeypatch.setattr(kind, "run", lambda self, inputs: runs.append(1) or run(self, inputs))
        for _ in range(3):
            assert executor.run({"x": np.zeros((1, 3), np.float32)})["y"].tolist() == [[-1, -1, -1]]
        assert len(runs) == 3
