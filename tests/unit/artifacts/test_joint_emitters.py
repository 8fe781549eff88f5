"""An emitter that compiles all regions of its backend at once, into programs with shared files."""

import importlib.util
import json
from pathlib import Path

import dovetail
import numpy as np
import onnxruntime
import pytest
from dovetail.plugin import (
    Artifact,
    Availability,
    DovetailError,
    Emitter,
    Engine,
    EngineError,
    Executed,
    JointEmitter,
    Reads,
    RegionModel,
    Session,
    StandIn,
)
from dovetail_runtime import engine_source

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
IMAGES = {"image": np.load(DIGITS.parent / "test.npz")["image"][:4]}
BACKEND = """
backend: acme-npu
device: npu
opset: 13..22
dynamic: accept
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops: {"Conv, Gemm": {types: f, policy: lower}}
place: {strategy: autocast}
emit: {engines: [acme, onnxruntime-cpu], artifacts: [acme]}
"""


class Compiler(JointEmitter):
    """Writes all programs into one shared file, and for each region where its program is."""

    asked = []
    tool = "acme 2.1"

    def version(self):
        return self.tool

    def emit_all(self, regions, folders, shared):
        Compiler.asked.append([node for region in regions for node in region.nodes])
        made, end = [], 0
        with (shared / "programs.bin").open("wb") as programs:
            for region, folder in zip(regions, folders):
                if why := self.refusal(region, regions):
                    made.append(why)
                    continue
                program = engine_source(RegionModel(region.model))
                programs.write(program)
                (folder / "place.json").write_text(json.dumps([end, end := end + len(program)]))
                facts = {"bytes": len(program)}
                made.append(Artifact(("place.json",), StandIn(), facts=facts, shared=("programs.bin",)))
        return made

    def refusal(self, region, regions):
        """Return why a region is refused; subclasses refuse some."""


class RefusesOne(Compiler):
    def refusal(self, region, regions):
        return EngineError("it is too wide", node="conv_2") if "conv_2" in region.nodes else None


class RaisesForOne(Compiler):
    def refusal(self, region, regions):
        if "conv_2" in region.nodes:
            raise EngineError("it is too wide", node="conv_2")


class FailsForOne(Compiler):
    """Says of no node that it is at fault."""

    def refusal(self, region, regions):
        if "conv_2" in region.nodes:
            raise ZeroDivisionError


class HasRoomForTwo(Compiler):
    def refusal(self, region, regions):
        if len(regions) > 2:
            raise EngineError("the memory is too small")


class MakesOne(Compiler):
    def emit_all(self, regions, folders, shared):
        return super().emit_all(regions, folders, shared)[:1]


class WritesNothing(Compiler):
    def emit_all(self, regions, folders, shared):
        return [Artifact(("place.json",), StandIn(), shared=("programs.bin",)) for _ in regions]


class OnlyShares(Compiler):
    def emit_all(self, regions, folders, shared):
        (shared / "programs.bin").touch()
        return [Artifact((), StandIn(), shared=("programs.bin",)) for _ in regions]


class Alone(Emitter):
    def emit(self, region, folder):
        (folder / "programs.bin").touch()
        return Artifact((), StandIn(), shared=("programs.bin",))


class Runtime(Engine):
    name = "acme"
    loads_artifacts = True
    reads = Reads(22, 10, frozenset({"float32", "float16", "int64"}))

    def available(self):
        return Availability(True)

    def load(self, region, options):
        start, end = json.loads((region.artifact / "place.json").read_text())
        program = (region.shared / "programs.bin").read_bytes()[start:end]
        return Program(onnxruntime.InferenceSession(program), region.model.graph.outputs)


class Program(Session):
    def __init__(self, loaded, outputs):
        self._loaded, self._outputs = loaded, [value.name for value in outputs]

    def run(self, inputs):
        given = {value.name: array for value, array in zip(self._loaded.get_inputs(), inputs.values())}
        return dict(zip(self._outputs, self._loaded.run(None, given), strict=True))

    def executed(self):
        return {"": Executed("", "not-reported")}


@pytest.fixture
def compiled(with_backend, tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_ARTIFACT_CACHE", str(tmp_path / "cache"))

    def make(emitter=Compiler):
        plugins = with_backend(BACKEND)
        plugins.registry.emitter("acme", f"{__name__}:{emitter.__name__}")
        plugins.registry.engine("acme", f"{__name__}:Runtime")
        make.plugins = plugins
        Compiler.asked.clear()
        return dovetail.compile(DIGITS, "acme-npu", plugins=plugins, verify=False)

    return make


def on_backend(result):
    return {node.name for node in result.plan.nodes if node.backend == "acme-npu"}


PRODUCTS = {"conv_1", "conv_2", "conv_3", "dense_1", "dense_2"}


def test_all_regions_are_compiled_at_once_and_their_shared_file_belongs_to_the_result(compiled, tmp_path):
    result = compiled()
    (asked,) = Compiler.asked
    assert set(asked) == on_backend(result) == PRODUCTS
    result.save(tmp_path / "out")
    files = json.loads((tmp_path / "out" / "result.json").read_text())["files"]
    assert "artifacts/acme-npu/shared/programs.bin" in files
    assert len([name for name in files if name.endswith("place.json")]) > 1
    loaded = dovetail.load(tmp_path / "out", plugins=compiled.plugins)
    expected = dovetail.compile(DIGITS, "host", plugins=compiled.plugins).run(IMAGES)["probabilities"]
    np.testing.assert_allclose(loaded.run(IMAGES)["probabilities"], expected, atol=0.01)
    assert {region.engine for region in loaded.regions if region.backend == "acme-npu"} == {"acme"}


@pytest.mark.parametrize("change", ["edited", "removed"])
def test_an_edited_or_missing_shared_file_is_refused(compiled, tmp_path, change):
    compiled().save(tmp_path / "out")
    shared = tmp_path / "out" / "artifacts" / "acme-npu" / "shared" / "programs.bin"
    shared.unlink() if change == "removed" else shared.write_bytes(b"another program")
    with pytest.raises(DovetailError, match=r"acme-npu/shared/programs\.bin is not the file that was saved"):
        dovetail.load(tmp_path / "out", plugins=compiled.plugins).run(IMAGES)


def test_a_file_that_somebody_else_put_there_is_refused(compiled, tmp_path):
    compiled().save(tmp_path / "out")
    (tmp_path / "out" / "artifacts" / "acme-npu" / "shared" / "more.bin").touch()
    with pytest.raises(DovetailError, match=r"acme-npu/shared/more\.bin does not belong to the result"):
        dovetail.load(tmp_path / "out", plugins=compiled.plugins).run(IMAGES)


def test_the_same_regions_are_compiled_once(compiled, monkeypatch):
    expected = compiled().run(IMAGES)["probabilities"]
    again = compiled()
    assert Compiler.asked == []
    np.testing.assert_array_equal(again.run(IMAGES)["probabilities"], expected)
    assert sum(remark.rule == "artifact-cache" for remark in again.remarks) == 1
    monkeypatch.setattr(Compiler, "tool", "acme 2.2")
    compiled()
    assert len(Compiler.asked) == 1


@pytest.mark.parametrize("emitter", [RefusesOne, RaisesForOne, FailsForOne])
def test_where_one_region_is_refused_the_others_stay(compiled, emitter):
    result = compiled(emitter)
    assert on_backend(result) == PRODUCTS - {"conv_2"}
    assert result.run(IMAGES)["probabilities"].shape == (4, 10)
    why = "ZeroDivisionError" if emitter is FailsForOne else "it is too wide"
    assert any(why in remark.why and remark.node == "conv_2" for remark in result.remarks)


def test_where_regions_are_too_much_together_the_last_ones_are_left_out(compiled):
    result = compiled(HasRoomForTwo)
    assert len({node.region for node in result.plan.nodes if node.backend == "acme-npu"}) == 2
    assert any("the memory is too small (of 3 regions that are compiled alone" in one.why for one in result.remarks)


@pytest.mark.parametrize(
    ("emitter", "says"),
    [
        (MakesOne, "`emit_all` returns an artifact for each region"),
        (WritesNothing, "names 'place.json', which it did not write"),
        (OnlyShares, "names shared files for region_0, and none of its own"),
        (Alone, "only a `JointEmitter` shares files among regions"),
    ],
)
def test_a_broken_contract_names_emitter_and_way_out(compiled, emitter, says):
    with pytest.raises(DovetailError) as caught:
        compiled(emitter)
    assert says in f"{caught.value.message} {caught.value.hint}"
    assert "emitter 'acme'" in caught.value.message


def test_an_export_has_the_shared_file_once_and_every_step_names_it(compiled, tmp_path):
    compiled().save(tmp_path / "out")
    result = dovetail.load(tmp_path / "out", plugins=compiled.plugins)
    dovetail.export(result, tmp_path / "shipped", runner="python")
    steps = json.loads((tmp_path / "shipped" / "deploy.json").read_text())["steps"]
    programs = [step for step in steps if step["engine"] == "acme"]
    assert len(programs) > 1
    for step in programs:
        first, second = (file["path"] for file in step["files"])
        assert first.endswith("/place.json") and second == "shared/acme-npu/programs.bin"

    def make(folder, step, types):
        start, end = json.loads((folder / step["files"][0]["path"]).read_text())
        program = (folder / step["files"][1]["path"]).read_bytes()[start:end]
        session = onnxruntime.InferenceSession(program)
        given = [value.name for value in session.get_inputs()]

        def run(arrays):
            feeds = dict(zip(given, (arrays[name] for name in step["inputs"])))
            return dict(zip([one["name"] for one in step["outputs"]], session.run(None, feeds)))

        return run

    spec = importlib.util.spec_from_file_location("run", tmp_path / "shipped" / "run.py")
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    found = module.Runner(tmp_path / "shipped", {"acme": make}).run(IMAGES)
    np.testing.assert_array_equal(found["probabilities"], result.run(IMAGES)["probabilities"])
