"""What tools report: versions, facts and all the nodes that they refuse; and what is not compiled twice."""

import gc
from pathlib import Path

import dovetail
import numpy as np
import onnxruntime
import pytest
from dovetail.plugin import Artifact, Availability, Emitter, Engine, EngineError, Executed, Reads, Session, StandIn
from dovetail_report.collect.document import document
from dovetail_runtime import engine_source
from dovetail_testing.kit.differences import differences

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
BACKEND = """
backend: aot-npu
device: npu
opset: 13..21
dynamic: accept
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops: {"Conv, Relu, MaxPool, Gemm, Flatten": {types: f, policy: lower}}
place: {strategy: autocast}
emit: {engines: [aot, onnxruntime-cpu], artifacts: [aot]}
"""


class Compiler(Emitter):
    """Counts its calls; subclasses are tools of other kinds."""

    calls = []
    tool = "acme 2.1"
    cycles = 1200

    def version(self):
        return self.tool

    def emit(self, region, folder):
        self.calls.append(region.nodes)
        (folder / "net.onnx").write_bytes(engine_source(dovetail.plugin.RegionModel(region.model)))
        return Artifact(("net.onnx",), StandIn(), facts={"cycles": self.cycles, "layers": list(region.nodes)})


class Unknown(Compiler):
    tool = ""


class Emits(Compiler):
    """Writes files, and leaves the region as it is."""

    def emit(self, region, folder):
        (folder / "notes.txt").touch()
        return Artifact(("notes.txt",))


class Refusing(Compiler):
    def emit(self, region, folder):
        if refused := [name for name in region.nodes if name.startswith("relu")]:
            self.calls.append(region.nodes)
            raise EngineError("the compiler has no Relu", nodes=refused)
        return super().emit(region, folder)


class NoData(Compiler):
    def emit(self, region, folder):
        return Artifact(facts={"array": np.zeros(2)})


class Raises(Compiler):
    def __init__(self):
        raise RuntimeError("no license")


class Aot(Engine):
    name = "aot"
    loads_artifacts = True
    reads = Reads(21, 10, frozenset({"float32", "float16", "int64"}))
    loads, closed, refuses = [], [], ()

    def available(self):
        return Availability(True)

    def load(self, region, options):
        if region.artifact is None:
            raise EngineError("this is no program")
        self.loads.append(region.artifact)
        loaded = onnxruntime.InferenceSession(region.artifact / "net.onnx")
        if refused := [name for name in self.refuses if name in _nodes(region.artifact)]:
            raise EngineError("the device refuses them", nodes=refused)
        return Program(loaded, region.model.graph.outputs)


class Naming(Aot):
    """Reports the node that stands for the program alone."""

    def load(self, region, options):
        session = super().load(region, options)
        (node,) = region.model.graph
        session.executed = lambda: {node.name: Executed("float16", "reported")}
        return session


class Tolerant(Aot):
    """Also loads regions that were not compiled."""

    def load(self, region, options):
        if region.artifact is not None:
            return super().load(region, options)
        return Program(onnxruntime.InferenceSession(engine_source(region)), region.model.graph.outputs)


def _nodes(artifact):
    return [node.name for node in dovetail.open(artifact / "net.onnx").graph]


class Program(Session):
    facts = {"memory": 4096}

    def __init__(self, loaded, outputs):
        self._loaded, self._outputs = loaded, [value.name for value in outputs]

    def run(self, inputs):
        names = [value.name for value in self._loaded.get_outputs()]
        return dict(zip(self._outputs, self._loaded.run(names, dict(inputs)), strict=True))

    def executed(self):
        return {"": Executed("", "not-reported")}

    def close(self):
        Aot.closed.append(self)


@pytest.fixture
def compiled(with_backend, monkeypatch):
    def make(emitter=Compiler, refuses=(), engine=Aot, **request):
        plugins = with_backend(BACKEND)
        plugins.registry.emitter("aot", f"{__name__}:{emitter.__name__}")
        plugins.registry.engine("aot", f"{__name__}:{engine.__name__}")
        gc.collect()  # sessions of other tests
        for record in (Compiler.calls, Aot.loads, Aot.closed):
            record.clear()
        monkeypatch.setattr(Aot, "refuses", refuses)
        make.plugins = plugins
        return dovetail.compile(DIGITS / "digits.onnx", "aot-npu", plugins=plugins, **request)

    return make


@pytest.mark.slow
def test_facts_of_the_tool_and_of_the_session_are_in_plan_and_explanation(compiled, tmp_path):
    result = compiled()
    facts = {remark.rule: remark.facts for remark in result.remarks if remark.rule.endswith("-facts")}
    assert facts["artifact-facts"]["cycles"] == 1200 and facts["artifact-facts"]["tool"] == "acme 2.1"
    assert facts["engine-facts"] == {"memory": 4096}
    result.save(tmp_path / "out")
    loaded = dovetail.load(tmp_path / "out", plugins=compiled.plugins)
    for node in ("conv_1", "pool_1"):  # the first one, which has the remark, and another one of its region
        lines = "\n".join(dovetail.explain(loaded, node))
        assert "tool acme 2.1, cycles 1200" in lines
        assert "aot reports of region 0: memory 4096" in lines


@pytest.mark.parametrize("emitter", [Compiler, Emits])
def test_facts_of_a_session_are_at_a_node_of_the_plan(compiled, emitter):
    """A program stands for it in the result, or a conversion is before it."""
    result = compiled(emitter, engine=Tolerant)
    planned = {node.name for node in result.plan.nodes}
    facts = [remark for remark in result.remarks if remark.rule == "engine-facts"]
    assert facts and {remark.node for remark in facts} <= planned


def test_the_report_has_them_at_the_region_and_at_a_node_of_it(compiled):
    found = document(compiled(), plugins=compiled.plugins)
    rows = {row["rule"]: row for row in found["reasons"]}
    assert rows["artifact-facts"]["nodes"] == rows["engine-facts"]["nodes"] == 1
    (region,) = (row for row in found["regions"] if row["backend"] == "aot-npu")
    reported = dict(region["reported"])
    assert (reported["tool"], reported["cycles"], reported["memory"]) == ("acme 2.1", "1200", "4096")
    assert [row["reported"] for row in found["regions"] if row["backend"] == "host"] == [[]]


def test_diff_shows_what_tools_report_otherwise(compiled, tmp_path, monkeypatch):
    compiled().save(tmp_path / "old")
    monkeypatch.setattr(Compiler, "cycles", 900)
    monkeypatch.setattr(Program, "facts", {"memory": 4096, "banks": 2})
    compiled(refuses=["relu_1"]).save(tmp_path / "new")
    kind, found = differences(str(tmp_path / "old"), str(tmp_path / "new"), compiled.plugins)
    told = [one for one in found if one.part.startswith("reported ") and one.part != "reported layers"]
    assert kind == "plans"
    assert told[:2] == [("conv_1", "reported cycles", "1200", "900"), ("conv_1", "reported banks", "", "2")]
    more = {(one.part, one.first, one.second) for one in told[2:]}  # of the region behind the node that was refused
    assert more == {
        ("reported tool", "", "acme 2.1"), ("reported cycles", "", "900"),
        ("reported memory", "", "4096"), ("reported banks", "", "2"),
    }  # fmt: skip
    assert differences(str(tmp_path / "old"), str(tmp_path / "old"), compiled.plugins) == ("plans", [])


def test_what_is_reported_of_a_program_holds_for_its_nodes(compiled, tmp_path):
    result = compiled(engine=Naming)
    rows = {row["executed"] for row in result.placement_table() if row["backend"] == "aot-npu"}
    assert rows == {"float16"}
    result.save(tmp_path / "out")
    loaded = dovetail.load(tmp_path / "out", plugins=compiled.plugins)
    loaded.run({"image": np.load(DIGITS / "test.npz")["image"][:1]})
    assert {row["executed"] for row in loaded.placement_table() if row["backend"] == "aot-npu"} == {"float16"}


@pytest.mark.slow
def test_a_region_is_compiled_once_by_the_same_tool(compiled):
    """A node that the device refuses begins another round, in which other regions are as they were."""
    pins = ["relu_2=host"]
    compiled(refuses=("dense_2",), pins=pins)
    first = [nodes for nodes in Compiler.calls if "conv_1" in nodes]
    assert len(first) == 1
    compiled(Unknown, refuses=("dense_2",), pins=pins)
    again = [nodes for nodes in Compiler.calls if "conv_1" in nodes]
    assert len(again) > 1, "nothing says that the tool is the same"


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("way", ["emitter", "engine"])
def test_all_nodes_that_a_tool_names_are_refused_at_once(compiled, way):
    relus = ("relu_1", "relu_2", "relu_3", "relu_4")
    result = compiled(Refusing) if way == "emitter" else compiled(refuses=relus)
    placed = {node.name: node.backend for node in result.plan.nodes}
    assert {placed[name] for name in relus} == {"host"}
    assert placed["conv_1"] == placed["conv_2"] == "aot-npu"
    failed = {remark.node for remark in result.remarks if remark.kind == "failed"}
    assert failed == set(relus)
    if way == "emitter":
        assert len([nodes for nodes in Compiler.calls if "relu_1" in nodes]) == 1
    else:
        assert len([folder for folder in Aot.loads if folder.name == "region_0"]) <= 2, "no part is loaded to find them"


@pytest.mark.slow
def test_a_session_is_closed_once_nothing_uses_it(compiled):
    result = compiled()
    images = np.load(DIGITS / "test.npz")["image"][:2]
    result.run({"image": images})
    assert not Aot.closed
    result.unload()
    gc.collect()
    assert len(Aot.closed) == len(Aot.loads)
    result.run({"image": images})
    del result
    gc.collect()
    assert len(Aot.closed) == len(Aot.loads)


def test_facts_that_are_no_data_are_an_error_that_names_the_emitter(compiled):
    with pytest.raises(dovetail.DovetailError, match="emitter 'aot'"):
        compiled(NoData)


def test_an_emitter_that_cannot_be_made_costs_its_regions(compiled):
    result = compiled(Raises)
    assert {node.backend for node in result.plan.nodes} == {"host"}
    assert any("no license" in remark.why for remark in result.remarks)
