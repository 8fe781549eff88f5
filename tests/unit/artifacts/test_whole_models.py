"""An emitter that says `whole = True` is asked once for the model, and not for each region."""

from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.plugin import Artifact, DovetailError, Emitter, EngineError, StandIn

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
BACKEND = """
backend: whole-npu
device: npu
opset: 13..22
dynamic: accept
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops: {"Conv, Gemm": {types: f, policy: lower}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu], artifacts: [listing]}
"""
PRODUCTS = {"conv_1", "conv_2", "conv_3", "dense_1", "dense_2"}


class Listing(Emitter):
    """Lists what it was asked for; subclasses refuse something."""

    whole = True
    asked = []

    def emit(self, region, folder):
        Listing.asked.append(region)
        self.look_at(region)
        (folder / "nodes.txt").write_text("\n".join(node.name for node in region.source.graph))
        return Artifact(("nodes.txt",))

    def look_at(self, region):
        """Nothing is wrong with it."""


class RefusesDense(Listing):
    def look_at(self, region):
        if "dense_2" in region.nodes:
            raise EngineError("it is too wide", node="dense_2")


class RefusesTheModel(Listing):
    def look_at(self, region):
        raise EngineError("Softmax cannot be read", node="softmax")


class HasNotes(Listing):
    def emit(self, region, folder):
        return Artifact((), notes=("the tools of Acme are older than this model",))


class GivesNode(Listing):
    def emit(self, region, folder):
        return Artifact((), StandIn())


class PerRegion(Listing):
    whole = False

    def emit(self, region, folder):
        (folder / f"{region.name}.txt").touch()
        return Artifact((f"{region.name}.txt",))


@pytest.fixture
def compiled(with_backend):
    """Compile the digits with emitters of these classes."""

    def make(*emitters):
        Listing.asked.clear()
        names = [f"listing-{index}" for index in range(len(emitters))]
        plugins = with_backend(BACKEND.replace("[listing]", f"[{', '.join(names)}]"))
        for name, emitter in zip(names, emitters):
            plugins.registry.emitter(name, f"{__name__}:{emitter.__name__}")
        return dovetail.compile(DIGITS / "digits.onnx", "whole-npu", plugins=plugins, try_engines=False)

    return make


def on_backend(result):
    return {node.name for node in result.plan.nodes if node.backend == "whole-npu"}


def test_it_is_asked_once_for_a_model_of_several_regions(compiled, tmp_path):
    result = compiled(Listing)
    assert len({node.region for node in result.plan.nodes if node.backend == "whole-npu"}) > 1
    (asked,) = Listing.asked
    assert (asked.name, asked.backend.name, set(asked.nodes)) == ("model", "whole-npu", PRODUCTS)
    result.save(tmp_path / "out")
    written = tmp_path / "out" / "artifacts" / "whole-npu" / "model" / "nodes.txt"
    assert set(written.read_text().split()) == {node.name for node in asked.source.graph} > PRODUCTS


def test_the_source_is_the_whole_model_in_floats_and_runs(compiled):
    compiled(Listing)
    (asked,) = Listing.asked
    assert all(node.op_type != "Cast" for node in asked.source.graph)
    assert any(node.op_type == "Cast" for node in asked.model.graph)
    images = {"image": np.load(DIGITS / "test.npz")["image"][:2]}
    original = dovetail.compile(DIGITS / "digits.onnx", "host").run(images)
    found = dovetail.compile(asked.source, "host").run(images)
    assert np.allclose(found["probabilities"], original["probabilities"], atol=1e-6)


def test_a_node_that_it_refuses_is_placed_elsewhere(compiled):
    assert on_backend(compiled(RefusesDense)) == PRODUCTS - {"dense_2"}
    assert [len(asked.nodes) for asked in Listing.asked] == [5, 4], "it is asked again for what is left"


def test_a_model_that_it_refuses_leaves_nothing_on_the_backend(compiled):
    result = compiled(RefusesTheModel)
    assert not on_backend(result)
    said = {remark.node: remark.why for remark in result.plan.remarks if remark.rule == "not-emitted"}
    assert set(said) >= PRODUCTS
    assert all("Softmax cannot be read" in why for why in said.values())


def test_other_emitters_of_the_backend_are_asked_for_regions(compiled):
    result = compiled(Listing, PerRegion)
    written = {name for name, _ in result.artifacts.files()}
    regions = {f"region_{node.region}" for node in result.plan.nodes if node.backend == "whole-npu"}
    assert written == {f"whole-npu/{name}/{name}.txt" for name in regions} | {"whole-npu/model/nodes.txt"}


def test_notes_of_an_emitter_are_remarks(compiled):
    result = compiled(HasNotes)
    (remark,) = (remark for remark in result.plan.remarks if remark.rule == "artifact")
    assert remark.why.startswith("emitter 'listing-0'") and remark.why.endswith("older than this model")
    assert on_backend(result) == PRODUCTS


def test_a_node_cannot_stand_for_the_whole_model(compiled):
    with pytest.raises(DovetailError, match="gives a node for the whole model of whole-npu"):
        compiled(GivesNode)
