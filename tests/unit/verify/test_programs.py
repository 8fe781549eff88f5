"""`verify --programs`: what a vendor's tools compiled of a region, beside the nodes of the plan."""

from pathlib import Path

import dovetail
import numpy as np
import onnxruntime
import pytest
from dovetail.errors import UsageError
from dovetail.plugin import (
    Artifact,
    Availability,
    Call,
    Emitter,
    Engine,
    EngineError,
    Executed,
    Reads,
    Session,
    StandIn,
)

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
SAMPLES = {"image": np.load(DIGITS / "test.npz")["image"][:64]}
BACKEND = """
backend: sim-npu
device: npu
opset: 13..21
dynamic: accept
precision: {low: int8, high: float32, accumulate: int32}
types:
  q: {dtype: int8, scheme: symmetric, observer: minmax}
  w: {dtype: int8, scheme: symmetric, granularity: channel, axis: 0}
ops:
  Conv: {role: active, types: {X: q, W: w, B: float32, Y: q}, fuses: [Relu]}
  Relu: {role: passive, types: q}
  Gemm: {role: active, types: {A: q, B: q, C: float32, Y: q}, fuses: [Relu]}
border: {in: BORDER, out: BORDER}
place: {strategy: autocast}
emit: {engines: [simulator, onnxruntime-cpu], artifacts: [sim]}
"""


class Compiler(Emitter):
    """Writes the model of a region as its program."""

    def emit(self, region, folder):
        region.model.save(folder / "net.onnx")
        return Artifact(("net.onnx",), self.node())

    def node(self):
        return StandIn()


class CallCompiler(Compiler):
    def node(self):
        return Call()


class Simulator(Engine):
    """Runs programs, as its behavior says."""

    name = "simulator"
    loads_artifacts = True
    reads = Reads(21, 10, frozenset({"float32", "int8", "int64"}))
    behavior = ""

    def available(self):
        return Availability(self.behavior != "absent", "there is no simulator here" * (self.behavior == "absent"))

    def load(self, region, options):
        (node,) = region.model.graph
        exact = onnxruntime.SessionOptions()
        exact.add_session_config_entry("session.x64quantprecision", "1")  # no sums that saturate on CPUs without VNNI
        return Program(onnxruntime.InferenceSession(region.artifact / "net.onnx", exact), node, self.behavior)


class Program(Session):
    def __init__(self, loaded, node, behavior):
        self._loaded, self._node, self._behavior = loaded, node, behavior
        self._outputs = [value.name for value in node.outputs]

    def run(self, inputs):
        given = {value.name: inputs[value.name] for value in self._loaded.get_inputs()}
        results = self._loaded.run([value.name for value in self._loaded.get_outputs()], given)
        if self._behavior == "last is off" and "dense_2" in self._outputs[0]:
            results = [array + np.asarray(array * 0.01, array.dtype) for array in results]
        if self._behavior == "one step":  # of 127, in every number
            results = [array + np.ones_like(array) * (array < 127) for array in results]
        if self._behavior == "dies":
            raise EngineError("the simulator ended")
        return dict(zip(self._outputs, results, strict=True))

    def executed(self):
        return {self._node.name: Executed("", "not-reported")}


@pytest.fixture
def measure(with_backend, monkeypatch, tmp_path):
    """Compile the digits, and compare the programs; from a folder if `saved`."""

    def run(behavior="", emitter=Compiler, border="inside", saved=False, **limits):
        monkeypatch.setattr(Simulator, "behavior", "" if behavior in ("absent", "dies") else behavior)
        plugins = run.plugins = with_backend(BACKEND.replace("BORDER", border))
        plugins.registry.emitter("sim", f"{__name__}:{emitter.__name__}")
        plugins.registry.engine("simulator", f"{__name__}:Simulator")
        result = dovetail.compile(DIGITS / "digits.onnx", "sim-npu", data=SAMPLES, plugins=plugins, verify=False)
        if saved:
            result.save(tmp_path / "out")
            result = tmp_path / "out"
        monkeypatch.setattr(Simulator, "behavior", behavior)
        if not saved:
            result.unload()
        return dovetail.program_errors(DIGITS / "digits.onnx", result, SAMPLES, plugins=plugins, **limits)

    return run


@pytest.mark.generated(one_of=4)
@pytest.mark.processor
@pytest.mark.parametrize("saved", [False, True], ids=["in memory", "from a folder"])
@pytest.mark.parametrize("border", ["inside", "outside"])
@pytest.mark.parametrize("emitter", [Compiler, CallCompiler])
def test_a_faithful_simulator_computes_the_plan(emitter, border, saved, measure):
    found = measure(emitter=emitter, border=border, saved=saved, min_program_snr=60)
    assert [one.problem for one in found.programs] == [""] * len(found.programs)
    assert {one.engine for one in found.programs} == {"simulator"}
    assert sorted(name for one in found.programs for name in one.nodes) == sorted(
        f"{kind}_{number}" for kind, most in (("conv", 3), ("relu", 4), ("dense", 2)) for number in range(1, most + 1)
    )
    assert found.worst.snr_db > 60
    assert not found.missed


@pytest.mark.processor
@pytest.mark.parametrize("emitter", [Compiler, CallCompiler])
def test_the_worst_region_is_named_and_measured_alone(emitter, measure):
    found = measure("last is off", emitter, min_program_snr=45)
    assert found.worst.nodes[-1] == "dense_2"
    assert found.worst.snr_db == pytest.approx(40, abs=0.1)  # 1 % of every number
    assert all(one.snr_db > 60 for one in found.programs if one is not found.worst)
    (missed,) = found.missed
    assert missed.startswith(f"{found.worst.region} of sim-npu is at 40.0 dB in '")
    assert f"the worst is {found.worst.region} with 40.0 dB" in found.lines()[0]


def test_integers_at_the_border_count_as_the_floats_that_they_stand_for(measure):
    """A step more in every number is 1/127 of the range, whatever the scale is."""
    found = measure("one step", border="outside")
    assert all(10 < one.snr_db < 42 for one in found.programs)


@pytest.mark.slow
def test_a_slow_simulator_runs_on_some_batches_alone(measure):
    assert measure(most=1).batches == 1
    with pytest.raises(UsageError, match="--batches 0: a number from 1 is expected"):
        measure(most=0)


def test_what_does_not_run_here_is_no_success(measure):
    for behavior, why in (("absent", "there is no simulator here"), ("dies", "simulator failed on the data: ")):
        found = measure(behavior, CallCompiler, min_program_snr=10)
        assert len(found.missed) == len(found.programs)
        assert all(why in missed for missed in found.missed), found.missed


def test_a_result_without_programs(with_backend):
    plugins = with_backend(
        BACKEND.replace("BORDER", "inside").replace(", artifacts: [sim]", "").replace("simulator, ", "")
    )
    result = dovetail.compile(DIGITS / "digits.onnx", "sim-npu", data=SAMPLES, plugins=plugins, verify=False)
    with pytest.raises(UsageError, match="no region of the result is a program"):
        dovetail.program_errors(DIGITS / "digits.onnx", result, SAMPLES, plugins=plugins)
