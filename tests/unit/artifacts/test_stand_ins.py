"""A compiled region is one node `EPContext`, as ONNX Runtime's execution providers know it."""

from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail.plugin import Artifact, Availability, Emitter, Engine, Executed, Reads, RegionModel, Session, StandIn
from dovetail_runtime import engine_source

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
IMAGES = np.load(DIGITS.parent / "test.npz")["image"][:4]
BACKEND = """
backend: acme-npu
device: npu
opset: 13..22
dynamic: accept
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops: {"Conv, Relu, MaxPool, Flatten, Gemm": {types: f, policy: lower}}
place: {strategy: autocast}
emit: {engines: [acme], artifacts: [acme]}
"""


class Compiler(Emitter):
    """Writes a program with a file of tables; subclasses say more of it."""

    attributes = {}

    def version(self):
        return "acme 2.1"

    def emit(self, region, folder):
        (folder / "net.blob").write_bytes(engine_source(RegionModel(region.model)))
        (folder / "a-table.bin").write_bytes(b"table")
        return Artifact(("net.blob", "a-table.bin"), StandIn(attributes=self.attributes))


class Saying(Compiler):
    attributes = {"source": "AcmeExecutionProvider", "notes": "fast", "revision": 2, "embed_mode": 0}


class Runtime(Engine):
    name = "acme"
    loads_artifacts = True
    reads = Reads(22, 10, frozenset({"float32", "float16", "int64"}))

    def available(self):
        return Availability(True)

    def load(self, region, options):
        return Program(onnxruntime.InferenceSession(region.artifact / "net.blob"), region.model.graph.outputs)


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
    """Compiles the digits with an emitter, and returns the plugins, the result, and its file as ONNX reads it."""
    monkeypatch.setenv("DOVETAIL_ARTIFACT_CACHE", "off")

    def make(emitter):
        plugins = with_backend(BACKEND)
        plugins.registry.emitter("acme", f"{__name__}:{emitter.__name__}")
        plugins.registry.engine("acme", f"{__name__}:Runtime")
        result = dovetail.compile(DIGITS, "acme-npu", plugins=plugins, verify=False)
        result.save(tmp_path / "out")
        return plugins, result, onnx.load(tmp_path / "out" / "model.onnx")

    return make


def attributes(model):
    (node,) = (node for node in model.graph.node if node.domain == "com.microsoft")
    assert (node.op_type, node.name) == ("EPContext", "region_0")
    values = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


def test_its_attributes_lead_a_provider_to_the_first_file(compiled, tmp_path):
    _, _, model = compiled(Compiler)
    found = attributes(model)
    assert found == {
        "main_context": 1, "embed_mode": 0, "ep_cache_context": "artifacts/acme-npu/region_0/net.blob",
        "partition_name": "region_0", "source": "acme-npu", "ep_sdk_version": "acme 2.1",
    }  # fmt: skip
    assert (tmp_path / "out" / found["ep_cache_context"]).is_file()
    assert {each.domain: each.version for each in model.opset_import}["com.microsoft"] == 1


def test_an_export_loads_that_file_first(compiled, tmp_path):
    plugins, _, _ = compiled(Compiler)
    description = dovetail.export(tmp_path / "out", tmp_path / "shipped", plugins=plugins)
    (step,) = (step for step in description["steps"] if step["engine"] == "acme")
    assert [Path(file["path"]).name for file in step["files"]] == ["net.blob", "a-table.bin"]


def test_an_emitter_may_name_the_provider_and_more(compiled):
    _, _, model = compiled(Saying)
    found = attributes(model)
    assert (found["source"], found["notes"], found["revision"]) == ("AcmeExecutionProvider", "fast", 2)
    assert found["partition_name"] == "region_0"


def test_plain_tools_see_types_and_shapes_of_what_it_computes(compiled):
    _, _, model = compiled(Compiler)
    onnx.checker.check_model(model, full_check=True)
    (node,) = (node for node in model.graph.node if node.op_type == "EPContext")
    declared = {value.name: value.type.tensor_type for value in model.graph.value_info}
    (found,) = (declared[name] for name in node.output)
    assert found.elem_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
    assert found.shape.dim[1].dim_value == 10


def test_onnxruntime_takes_the_node_and_misses_only_the_provider(compiled, tmp_path):
    compiled(Compiler)
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented) as caught:
        onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx", providers=["CPUExecutionProvider"])
    assert "EPContext" in str(caught.value) and "region_0" in str(caught.value)
    assert "registered function" not in str(caught.value)


def test_a_saved_result_runs_its_program(compiled, tmp_path):
    plugins, result, _ = compiled(Compiler)
    wanted = result.run({"image": IMAGES})["probabilities"]
    loaded = dovetail.load(tmp_path / "out", plugins=plugins)
    np.testing.assert_array_equal(loaded.run({"image": IMAGES})["probabilities"], wanted)


def test_a_result_with_a_node_of_another_domain_runs_as_before(compiled, tmp_path):
    """Results of earlier versions have operators of their backends' own domains."""
    plugins, result, _ = compiled(Compiler)
    wanted = result.run({"image": IMAGES})["probabilities"]
    (node,) = (node for node in result.model.graph if node.op_type == "EPContext")
    node.op_type, node.domain = "Program", "com.acme.npu"
    result.model.graph.opset_imports["com.acme.npu"] = 1
    node.attributes.clear()
    result.save(tmp_path / "old")
    loaded = dovetail.load(tmp_path / "old", plugins=plugins)
    np.testing.assert_array_equal(loaded.run({"image": IMAGES})["probabilities"], wanted)
