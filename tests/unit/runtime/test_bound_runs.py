"""Several sessions over planned buffers: the same results and errors, and results that stay as they are."""

from concurrent.futures import ThreadPoolExecutor

import dovetail
import ml_dtypes
import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail.plugin import Engine, Reads, RegionModel
from dovetail_cpu_bf16.engine import OpenVinoCpu
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu
from dovetail_runtime import Bindable
from dovetail_runtime.executor import RegionExecutor

from .models import parse

CHAIN = """g (float[N,4] x) => (float[N,4] y, float[N,4] b) {
    a = Add(x, x) b = Tanh(a) c = Mul(b, a) d = Exp(c) e = Sub(d, b) y = Abs(e) }"""
KINDS = {"Add": "host", "Tanh": "cpu-bf16", "Mul": "host", "Exp": "cpu-bf16", "Sub": "host", "Abs": "cpu-bf16"}


class Counting(Engine):
    """Negates its one input, and counts how it is asked to."""

    name, reads = "counting", Reads(26, 13, frozenset({"float32"}))

    def __init__(self):
        self.runs = self.bound_runs = 0

    def available(self):
        return True, ""

    def load(self, region, options):
        return _Negation(self, region.model.graph)


class _Negation(Bindable):
    def __init__(self, engine, graph):
        self._engine, self._read, self._given = engine, graph.inputs[0].name, graph.outputs[0].name

    def run(self, inputs):
        self._engine.runs += 1
        return {self._given: -inputs[self._read]}

    def bind(self, inputs, outputs):
        def call():
            self._engine.bound_runs += 1
            np.negative(inputs[self._read], out=outputs[self._given])

        return call

    def executed(self):
        return {}


def two_engines(text=CHAIN, kinds=KINDS, **options):
    engines = {"host": [OnnxRuntimeCpu()], "cpu-bf16": [OpenVinoCpu()]}
    return RegionExecutor(parse(text), engines, options, backend_of=lambda node: kinds[node.op_type])


def noise(seed, rows=3):
    return {"x": np.random.default_rng(seed).standard_normal((rows, 4)).astype(np.float32)}


def computed(x):
    b = np.tanh(x + x)
    return {"y": np.abs(np.exp(b * (x + x)) - b), "b": b}


def fits(results, x):
    return all(np.allclose(results[name], array, atol=1e-5) for name, array in computed(x).items())


def test_from_the_third_call_on_sessions_run_over_buffers():
    counting = Counting()
    text = "g (float[N] x) => (float[N] y) { a = Neg(x) y = Neg(a) }"
    order = iter("rl" * 4)
    executor = RegionExecutor(parse(text), {"l": [counting], "r": [counting]}, backend_of=lambda node: next(order))
    for number in range(5):
        assert executor.run({"x": np.array([number, 1], np.float32)})["y"].tolist() == [number, 1]
    assert (counting.runs, counting.bound_runs) == (2 * 2, 2 * 3)


@pytest.mark.parametrize(("parallel", "bound_runs"), [("off", 3), ("on", 0)])
def test_branches_that_run_in_order(parallel, bound_runs):
    left, right = Counting(), Counting()
    text = "g (float[N] x) => (float[N] y, float[N] z) { y = Neg(x) z = Neg(x) }"
    order = iter("rl" * 4)
    executor = RegionExecutor(
        parse(text), {"l": [left], "r": [right]}, {"parallel": parallel}, backend_of=lambda node: next(order)
    )
    for number in range(5):
        results = executor.run({"x": np.array([number, 1], np.float32)})
        assert results["y"].tolist() == results["z"].tolist() == [-number, -1]
    assert left.bound_runs == right.bound_runs == bound_runs


def test_every_call_has_its_own_results_whatever_follows():
    executor, inputs = two_engines(), [noise(seed, rows=2 + seed % 3) for seed in range(24)]
    results = [executor.run(given) for given in inputs]
    again = two_engines()
    for given, found in zip(inputs, results, strict=True):
        assert fits(found, given["x"])
        assert {name: array.tobytes() for name, array in found.items()} == {
            name: array.tobytes() for name, array in again.run(given).items()
        }


def test_what_is_fed_is_neither_kept_nor_written():
    executor, x = two_engines(), noise(0)["x"]
    for seed in range(5):
        x[...] = noise(seed)["x"]
        results = executor.run({"x": x})
        assert np.array_equal(x, noise(seed)["x"]) and fits(results, x)
        results["y"][...] = np.nan


FORMS = {
    "an output that is an input": "g (float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Identity(x) z = Neg(x) }",
    "two names of a value": "g (float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Neg(x) z = Identity(y) }",
    "a constant": "g (float[2,3] x) => (float[3] k, float[2,3] z) <float[3] c = {1,2,3}> { k = Neg(c) z = Neg(x) }",
    "a view": "g (float[2,3] x) => (float[6] y, float[2,3] z) <int64[1] s = {6}> { y = Reshape(x, s) z = Neg(x) }",
    "a scalar": "g (float[2,3] x) => (float y, float[2,3] z) { y = ReduceSum<keepdims=0>(x) z = Neg(x) }",
    "other types": "g (float[2,3] x) => (bool[2,3] y, int64[2,3] z) { y = Greater(x, x) z = Cast<to=7>(x) }",
    "bfloat16": "g (bfloat16[2,3] x) => (bfloat16[2,3] y, float[2,3] z) { y = Identity(x) z = Cast<to=1>(x) }",
    "open extents": "g (float[N,3] x) => (float[N,3] y, float[3,N] z) { y = Neg(x) z = Transpose(y) }",
}


@pytest.mark.parametrize("engine", [OnnxRuntimeCpu, OpenVinoCpu])
@pytest.mark.parametrize("form", FORMS)
def test_a_session_writes_into_arrays_what_it_computes(form, engine):
    session = engine().load(RegionModel(parse(FORMS[form])), {})
    x = np.zeros((2, 3), ml_dtypes.bfloat16 if form == "bfloat16" else np.float32)
    outputs = {name: np.full(made.shape, 99, made.dtype) for name, made in session.run({"x": x}).items()}
    call = session.bind({"x": x}, outputs)
    for number in (1, 2):
        x[...] = number * np.arange(1, 7).reshape(2, 3)
        call()
        for name, expected in session.run({"x": x.copy()}).items():
            np.testing.assert_array_equal(outputs[name], expected)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda x: np.asfortranarray(x), id="other strides"),
        pytest.param(lambda x: x[::-1], id="backwards"),
        pytest.param(lambda x: x.astype(">f4"), id="another byte order"),
        pytest.param(lambda x: x.tolist(), id="a list"),
        pytest.param(lambda x: x[:0], id="no rows"),
    ],
)
def test_arrays_of_other_kinds_are_read_as_before(changed):
    executor = two_engines()
    for _ in range(4):
        executor.run(noise(0))
    for _ in range(4):
        given = changed(noise(1)["x"])
        assert fits(executor.run({"x": given}), np.asarray(given, np.float32))


def test_threads_call_at_the_same_time():
    executor = two_engines(threads=1)

    def call(seed):
        given = noise(seed, rows=1 + seed % 2)
        return fits(executor.run(given), given["x"])

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(call, range(200)))


def test_shapes_that_depend_on_values():
    text = """g (float[5] x) => (float[N] y) {
        p = Relu(x) n = NonZero(p) f = Cast<to=1>(n) s = Exp(f) y = ReduceSum<keepdims=0>(s, axes) }"""
    text = text.replace("=> (float[N] y) {", "=> (float[N] y) <int64[1] axes = {0}> {")
    executor = two_engines(
        text, {"Relu": "cpu-bf16", "NonZero": "host", "Cast": "host", "Exp": "cpu-bf16", "ReduceSum": "host"}
    )
    for seed in range(20):
        x = np.random.default_rng(seed).standard_normal(5).astype(np.float32)
        assert np.allclose(executor.run({"x": x})["y"], np.exp(np.nonzero(x > 0)[0].astype(np.float32)))


def test_an_engine_that_fails_says_so_and_computes_what_follows():
    text = "g (float[4] x, int64[2] i) => (float[2] y) { a = Tanh(x) b = Gather(a, i) y = Exp(b) }"
    executor = two_engines(text, {"Tanh": "cpu-bf16", "Gather": "host", "Exp": "cpu-bf16"})
    x, good, bad = np.arange(4, dtype=np.float32), np.array([0, 3]), np.array([0, 9])
    for _ in range(5):
        for _ in range(3):
            found = executor.run({"x": x, "i": good})["y"]
            assert np.allclose(found, np.exp(np.tanh(x[good])))
        with pytest.raises(DovetailError, match="onnxruntime-cpu fails at node 'gather_1'"):
            executor.run({"x": x, "i": bad})


def test_integers_beyond_32_bits_are_limited_for_openvino():
    text = "g (int64[2] x) => (int64[2] y) { a = Abs(x) y = Min(a, a) }"
    executor = two_engines(text, {"Abs": "host", "Min": "cpu-bf16"})
    for number in (3, 5, 7, 1 << 40, 9):
        assert executor.run({"x": np.array([-number, 1])})["y"].tolist() == [min(number, 2**31 - 1), 1]


def test_ranges_of_inputs_hold(tmp_path):
    text = "g (int64[2] x) => (float[2] y) { f = Cast<to=1>(x) t = Tanh(f) y = Exp(t) }"
    compiled = dovetail.compile(
        parse(text),
        "cpu-bf16",
        pins=["type:Tanh=cpu-bf16/float32", "type:Exp=host"],
        input_ranges={"x": (0, 9)},
        verify=False,
    )
    for _ in range(4):
        compiled.run({"x": np.array([0, 9])})
    with pytest.raises(DovetailError, match="holds 0 to 10"):
        compiled.run({"x": np.array([0, 10])})


def test_a_session_that_starts_again(tmp_path):
    pins = [
        *(f"type:{kind}=host" for kind in ("Add", "Mul", "Sub")),
        *(f"type:{kind}=cpu-bf16/float32" for kind in ("Tanh", "Exp", "Abs")),
    ]
    dovetail.compile(parse(CHAIN), "cpu-bf16", pins=pins, verify=False).save(tmp_path / "out")
    first = dovetail.InferenceSession(tmp_path / "out").run(None, noise(0))
    session = dovetail.InferenceSession(tmp_path / "out")
    results = [session.run(None, noise(seed)) for seed in range(6)]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, results[0], strict=True))
    assert all(fits(dict(zip("yb", found)), noise(seed)["x"]) for seed, found in enumerate(results))
