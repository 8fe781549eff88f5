"""Independent regions run at the same time, with the same results, errors and frees as one after the other."""

import threading

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail.plugin import Engine, Session, load_plugins
from dovetail_onnx.opening import open_text
from dovetail_runtime.executor import RegionExecutor
from dovetail_runtime.timeline import Timeline

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[1,256] x) => (float[1,256] y, float[1,256] z)
<float[1,256] r, float[1,256] a, float[1,256] b, float[1,256] c, float[1,256] s> {
  [root] r = Abs (x)
  [left] a = Relu (r) [right] b = Exp (r) [far] c = Sqrt (r)
  [sum] s = Add (a, b) [end] y = Add (s, c) [other] z = Neg (c) }"""
HOME = {"root": "one", "left": "one", "right": "two", "far": "three", "sum": "one", "end": "two", "other": "three"}
X = {"x": np.linspace(-1, 1, 256, dtype=np.float32).reshape(1, 256)}


@pytest.fixture
def executor():
    """An executor of a model on three backends, all of which ONNX Runtime computes."""

    def make(engine=None, **options):
        host = engine or load_plugins().registry.engine["onnxruntime-cpu"]()
        engines = {name: [host] for name in ("one", "two", "three")}
        return RegionExecutor(open_text(TEXT, "m"), engines, options, backend_of=lambda node: HOME[node.name])

    return make


def expected():
    r = np.abs(X["x"])
    return {"y": np.maximum(r, 0) + np.exp(r) + np.sqrt(r), "z": -np.sqrt(r)}


@pytest.mark.parametrize("way", ["on", "off", "auto"])
def test_results_are_the_same(executor, way):
    made = executor(parallel=way)
    for _ in range(30):
        for name, array in made.run(X).items():
            assert np.allclose(array, expected()[name])


class Slow(Engine):
    """Runs regions on ONNX Runtime; regions of Exp and Sqrt wait for each other."""

    name = "slow"

    def __init__(self):
        self._engine = load_plugins().registry.engine["onnxruntime-cpu"]()
        self.together = threading.Barrier(2, timeout=20)
        self.fails = ()
        self.alive = []

    def available(self):
        return self._engine.available()

    @property
    def reads(self):
        return self._engine.reads

    def load(self, region, options):
        session, names = self._engine.load(region, options), {node.name for node in region.model.graph}
        return _Session(self, session, names)


class _Session(Session):
    def __init__(self, engine, session, names):
        self._engine, self._session, self._names = engine, session, names

    def run(self, inputs):
        if self._names & {"right", "far"}:
            self._engine.together.wait()
        if failing := sorted(self._names & set(self._engine.fails)):
            raise RuntimeError(f"no {failing[0]}")
        return self._session.run(inputs)

    def executed(self):
        return self._session.executed()


def test_independent_regions_meet(executor):
    """Each of both regions waits until the other one has begun."""
    results = executor(Slow(), parallel="on").run(X)
    assert np.allclose(results["y"], expected()["y"])


def test_the_first_failure_in_the_order_of_regions_is_raised(executor):
    engine = Slow()
    made = executor(engine, parallel="on")
    engine.fails = ("right", "far")
    first = min(index for index, runner in enumerate(made.runners) if {"right", "far"} & set(runner.nodes))
    name = next(iter({"right", "far"} & set(made.runners[first].nodes)))
    for _ in range(5):
        with pytest.raises(DovetailError, match=f"no {name}"):
            made.run(X)
    engine.fails = ()
    assert np.allclose(made.run(X)["z"], expected()["z"])


def test_values_are_freed_when_the_last_reader_is_done(executor):
    made = executor(parallel="on")
    made.timeline = timeline = Timeline()
    made.run(X)
    size = X["x"].nbytes
    counted = [event["args"]["bytes"] for event in timeline.document()["traceEvents"] if event.get("ph") == "C"]
    assert counted[-1] == 2 * size  # the outputs
    assert timeline.peak <= 6 * size


def test_many_threads_may_call(executor):
    made, wrong = executor(parallel="on"), []

    def call():
        wrong.extend(1 for _ in range(20) if not np.allclose(made.run(X)["y"], expected()["y"]))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_word_that_is_none_is_refused(executor):
    with pytest.raises(DovetailError, match="parallel='of' is not one of auto, on, off"):
        executor(parallel="of")


def test_edges_that_others_imply_are_left_out():
    from dovetail_runtime.parallel_run import RegionDependencies
    from dovetail_runtime.unpartitioned import ready_regions

    model = open_text(
        """<ir_version: 10, opset_import: ["": 22]>
        g (float[4] x) => (float[4] y) <float[4] a, float[4] b, float[4] c> {
          [a] a = Abs (x) [b] b = Exp (a) [c] c = Add (a, b) [d] y = Sum (a, b, c) }""",
        "m",
    )
    regions = ready_regions(model.graph, lambda node: node.name)
    found = RegionDependencies.of(regions)
    assert found.waits_for == (0, 1, 1, 1) and found.releases == ((1,), (2,), (3,), ())
    assert found.reads == {"x": 1, "a": 3, "b": 2, "c": 1} and found.width == 1


def test_a_compiled_plan_takes_the_option():
    compiled = dovetail.compile(open_text(TEXT, "m"), ["cpu-bf16"], pins=("far=host", "other=host"), high=("*",))
    before = compiled.run(X)
    compiled.options["parallel"] = "on"
    after = compiled.run(X)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_the_command_takes_both_options(tmp_path, capsys):
    dovetail.compile(open_text(TEXT, "m"), ["cpu-bf16"], pins=("far=host", "other=host")).save(tmp_path / "out")
    np.savez(tmp_path / "x.npz", **X)
    assert (
        main(["run", str(tmp_path / "out"), "--data", str(tmp_path / "x.npz"), "--parallel", "on", "--threads", "1"])
        == 0
    )
    assert "float32" in capsys.readouterr().out
