"""Goals, bisection and layers of backends whose regions are programs: nodes are raised as those of any backend."""

from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail.errors import GoalError
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
BACKEND = """
backend: program-npu
device: npu
opset: 13..21
dynamic: accept
precision: {low: int8, high: float32, accumulate: int32}
types:
  q: {dtype: int8, scheme: symmetric, observer: minmax}
  w: {dtype: int8, scheme: symmetric, granularity: channel, axis: 0}
  b: {dtype: int32, scale: X*W}
  d: {dtype: int32, scale: A*B}
ops:
  Conv: {role: active, types: {X: q, W: w, B: b, Y: q}, fuses: [Relu]}
  Gemm: {role: active, types: {A: q, B: q, C: d, Y: q}, fuses: [Relu]}
  Relu: {role: passive, types: q}
  MaxPool, Flatten: {role: passive, types: q, same_scale: true}
place: {strategy: autocast}
emit: {engines: [programs, onnxruntime-cpu], artifacts: [program]}
"""


class Compiler(Emitter):
    """Writes the model of a region as its program, and counts the programs."""

    programs = []
    refused = ""

    def emit(self, region, folder):
        if self.refused in region.nodes:
            raise EngineError(f"the compiler does not take '{self.refused}'", node=self.refused)
        self.programs.append(region.nodes)
        region.model.save(folder / "net.onnx")
        return Artifact(("net.onnx",), self.node())

    def node(self):
        return StandIn()


class Same(Compiler):
    matches_plan = True


class SameCall(Same):
    def node(self):
        return Call()


class Coarse(Compiler):
    """Claims what is not true: its programs have other weights."""

    matches_plan = True

    def emit(self, region, folder):
        made = super().emit(region, folder)
        model = onnx.load(folder / "net.onnx")
        for tensor in model.graph.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) == 1:
                value = onnx.numpy_helper.to_array(tensor) * np.float32(1.02)
                tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))
        onnx.save(model, folder / "net.onnx")
        return made


class RefusesLate(Same):
    """Refuses a node, but only in a region that begins behind the first convolution, as a goal makes it."""

    def emit(self, region, folder):
        if "conv_3" in region.nodes and "conv_1" not in region.nodes:
            raise EngineError("the compiler does not begin with 'conv_3'", node="conv_3")
        return super().emit(region, folder)


class Programs(Engine):
    name = "programs"
    loads_artifacts = True
    reads = Reads(21, 10, frozenset({"float32", "int8", "int64"}))
    loaded = []

    def available(self):
        return Availability(True)

    def load(self, region, options):
        (node,) = region.model.graph
        if region.artifact is None:
            raise EngineError(f"'{node.name}' is no program", node=node.name)
        self.loaded.append(node.name)
        return Program(onnxruntime.InferenceSession(region.artifact / "net.onnx"), region.model.graph.outputs)


class Program(Session):
    def __init__(self, loaded, outputs):
        self._loaded, self._outputs = loaded, [value.name for value in outputs]

    def run(self, inputs):
        given = {value.name: inputs[value.name] for value in self._loaded.get_inputs()}
        names = [value.name for value in self._loaded.get_outputs()]
        return dict(zip(self._outputs, self._loaded.run(names, given), strict=True))

    def executed(self):
        return {"": Executed("", "not-reported")}


@pytest.fixture
def plugins(with_backend):
    def make(emitter=Compiler, text=BACKEND):
        found = with_backend(text)
        found.registry.emitter("program", f"{__name__}:{emitter.__name__}")
        found.registry.engine("programs", f"{__name__}:Programs")
        Compiler.programs.clear()
        return found

    return make


@pytest.fixture(scope="module")
def data():
    return [{"image": image} for image in np.array_split(np.load(DIGITS / "test.npz")["image"][:72], 9)]


def compiled(plugins, data, **request):
    return dovetail.compile(DIGITS / "digits.onnx", "program-npu", data=data, plugins=plugins, **request)


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("emitter", [Compiler, Same, SameCall])
def test_a_goal_raises_nodes_inside_of_programs(plugins, data, emitter):
    found = plugins(emitter)
    goal = 42  # a few decibels above what nine of ten batches have in integers
    result = compiled(found, data, min_snr=goal)
    accuracy = result.plan.summary["accuracy"]
    assert accuracy["met"] is not False and result.verification.worst_snr_db >= goal
    raised = set(accuracy["raised"])
    assert raised and raised < {node.name for node in result.plan.nodes}, "some of the nodes, by their names"
    low = {node.name for node in result.plan.nodes if node.backend == "program-npu"}
    assert low and not low & raised
    assert any(remark.rule == "goal" and remark.node in raised for remark in result.remarks)


@pytest.mark.slow
def test_trials_run_the_nodes_where_programs_match_the_plan(plugins, data):
    counts = {}
    for emitter in (Compiler, Same):
        result = compiled(plugins(emitter), data, min_snr=50)
        counts[emitter] = len(Compiler.programs), result.plan.summary["accuracy"]["runs"]
    programs, runs = counts[Compiler]
    assert programs >= runs // 2 > 3, "a program, or more, for every trial that leaves nodes on the backend"
    programs, runs = counts[Same]
    assert runs > 6
    regions_of_judged = [nodes for nodes in Compiler.programs if "conv_1" in nodes]
    assert len(regions_of_judged) <= 3, "the request as it is, and the proposals"


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize(("emitter", "false"), [(Compiler, False), (Same, False), (Coarse, True)])
def test_that_programs_match_the_plan_is_measured(plugins, data, emitter, false):
    result = compiled(plugins(emitter), data)
    said = [text for text in result.notes() if "matches_plan" in text]
    assert len(said) == false
    if said:
        assert "emitter 'program' of this program says that its programs compute what the plan says" in said[0]
        assert " dB, below 60 dB" in said[0]
        (remark,) = [remark for remark in result.remarks if remark.rule == "matches-plan"]
        assert "leave `matches_plan = True` out" in remark.advice
    unmeasured = dovetail.compile(
        DIGITS / "digits.onnx", "program-npu", data=data, plugins=plugins(emitter), verify=False
    )
    assert not [remark for remark in unmeasured.remarks if remark.rule == "matches-plan"]


@pytest.mark.slow
def test_the_proposal_is_judged_by_its_programs(plugins, data):
    """The compiler refuses a node of the proposal that no trial has shown to it."""
    result = compiled(plugins(RefusesLate), data, min_snr=50)
    assert result.plan.summary["accuracy"]["met"] is not False
    reasons = [remark.why for remark in result.remarks if remark.node == "conv_3" and remark.kind == "failed"]
    placed = {node.name: node.backend for node in result.plan.nodes}
    raised = result.plan.summary["accuracy"]["raised"]
    assert placed["conv_3"] == "host", "refused, or raised"
    assert reasons or "conv_3" in raised


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("emitter", [Compiler, Same])
def test_bisect_ranks_nodes_inside_of_programs(plugins, data, emitter):
    ranking = dovetail.bisect(DIGITS / "digits.onnx", "program-npu", data=data, plugins=plugins(emitter))
    assert ranking.met and ranking.raised
    ranked = {name for row in ranking.rows for name in row.nodes}
    assert {"conv_1", "conv_2", "conv_3", "dense_1"} <= ranked


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("emitter", [Compiler, SameCall])
def test_layers_are_measured_inside_of_programs(plugins, data, emitter, tmp_path):
    found = plugins(emitter)
    result = compiled(found, data)
    result.save(tmp_path / "out")
    for one in (result, tmp_path / "out"):
        errors = dovetail.layer_errors(DIGITS / "digits.onnx", one, data, plugins=found)
        by_name = {layer.node: layer for layer in errors.layers}
        assert {"conv_1", "conv_2", "conv_3", "dense_1"} <= by_name.keys()
        assert 20 < by_name["conv_2"].alone.snr_db < 60


def test_a_goal_that_is_out_of_reach_names_what_stays_low(plugins, data):
    with pytest.raises(GoalError) as caught:
        compiled(plugins(Same), data, min_snr=60, low=["dense_1"])
    assert "with everything raised that may be; 1 node may not ('dense_1'): --low dense_1" in caught.value.message
