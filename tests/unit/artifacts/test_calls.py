"""An emitter that gives a `Call` makes its regions functions of the model, which every engine computes."""

from dataclasses import dataclass
from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
import onnxruntime
import pytest
from dovetail.ir import format_of
from dovetail.passes import Pass
from dovetail.planning import Placement, get_placement, set_placement
from dovetail.plugin import Artifact, Availability, Call, Emitter, Engine, EngineError, Executed, Reads, Session
from dovetail.plugin.artifacts import artifact_of

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
BACKEND = """
backend: call-npu
device: npu
opset: 13..22
dynamic: accept
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops: {"Conv, Relu, MaxPool, Gemm": {types: f, policy: lower}}
place: {strategy: autocast}
emit: {engines: [ENGINES], artifacts: [calls]}
"""


class Calls(Emitter):
    """Gives calls; with files where a subclass says so."""

    files = ()

    def emit(self, region, folder):
        for file in self.files:
            (folder / file).write_bytes(b"compiled")
        return Artifact(self.files, Call({"low": 1, "shapes": ["image:1x1x8x8"], "note": region.name}))


class Compiles(Calls):
    files = ("net.program",)


class Programs(Engine):
    """An engine for such files, which answers with ones; it refuses what was not compiled."""

    name = "programs"
    loads_artifacts = True
    reads = Reads(26, 13, frozenset({"float32", "float16", "int64"}))

    def available(self):
        return Availability(True)

    def load(self, region, options):
        (node,) = region.model.graph
        if region.artifact is None or (region.artifact / "net.program").read_bytes() != b"compiled":
            raise EngineError("there is no program", node=node.name)
        return Ones(region.model.graph.outputs, node.name)


class Ones(Session):
    def __init__(self, outputs, node):
        self._outputs, self._node = list(outputs), node

    def run(self, inputs):
        (batch,) = {array.shape[0] for array in inputs.values()}
        shapes = {value.name: (batch, *list(value.shape)[1:]) for value in self._outputs}
        types = {value.name: value.dtype.numpy() for value in self._outputs}
        return {name: np.ones(shape, types[name]) for name, shape in shapes.items()}

    def executed(self):
        return {self._node: Executed("float16", "reported")}


@pytest.fixture
def images():
    return np.load(DIGITS / "test.npz")["image"][:4]


@pytest.fixture
def compiled(with_backend):
    """Compile the digits with an emitter of this class, for these engines."""

    def make(emitter=Calls, engines="onnxruntime-cpu", **request):
        plugins = make.plugins = with_backend(BACKEND.replace("ENGINES", engines))
        plugins.registry.emitter("calls", f"{__name__}:{emitter.__name__}")
        plugins.registry.engine("programs", f"{__name__}:Programs")
        return dovetail.compile(DIGITS / "digits.onnx", "call-npu", plugins=plugins, **request)

    return make


def calls_in(result):
    return [node for node in result.model.graph if node.domain == "dovetail.call-npu"]


def test_a_region_becomes_a_call_with_its_weights_and_attributes(compiled):
    result = compiled()
    first, *_ = calls_in(result)
    assert first.op_type == "region_0"
    assert {name: attribute.value for name, attribute in first.attributes.items()} == {
        "low": 1, "shapes": ("image:1x1x8x8",), "note": "region_0",
    }  # fmt: skip
    weights = [value for value in first.inputs if value.is_initializer()]
    assert weights and len(weights) < len(first.inputs)


def test_coverage_and_explanations_look_inside(compiled):
    result = compiled()
    assert result.coverage().startswith("call-npu 11/13 nodes in 2 regions, host 2")
    assert dovetail.explain(result, "conv_2")[0].startswith("conv_2 (Conv)")


@pytest.mark.parametrize("emitter", [Calls, Compiles])
def test_the_saved_model_runs_on_onnx_runtime_alone_bit_for_bit(compiled, images, tmp_path, emitter):
    result = compiled(emitter)
    result.save(tmp_path / "out")
    path = tmp_path / "out" / "model.onnx"
    onnx.checker.check_model(str(path))
    inlined = onnx.inliner.inline_local_functions(onnx.load(path))
    assert not inlined.functions
    outlined, inside = (_run(model, images) for model in (path.read_bytes(), inlined.SerializeToString()))
    np.testing.assert_array_equal(outlined, inside)
    # What ONNX Runtime keeps in float32 between operators in float16, `dovetail run` rounds.
    loaded = dovetail.load(tmp_path / "out", compiled.plugins).run({"image": images})
    np.testing.assert_allclose(loaded["probabilities"], outlined, atol=1e-3)


def _run(model, images):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(["probabilities"], {"image": images})[0]


def test_an_engine_for_artifacts_is_given_the_files(compiled, images):
    result = compiled(Compiles, "programs, onnxruntime-cpu")
    assert set(result.run({"image": images})["probabilities"].ravel()) != set(_plain(compiled, images).ravel())
    assert {how.how for how in result.executed().values()} >= {"reported"}


@pytest.mark.parametrize("reported", [{}, {"": Executed("", "not-reported")}, None])
def test_nodes_of_programs_whose_engine_tells_nothing(compiled, monkeypatch, reported):
    """The column `executed` says that they are in a program, rather than nothing."""
    monkeypatch.setattr(
        Ones, "executed", lambda one: {one._node: Executed("", "not-reported")} if reported is None else reported
    )
    result = compiled(Compiles, "programs, onnxruntime-cpu", verify=False)
    inside = {row["executed"] for row in result.placement_table() if row["backend"] == "call-npu"}
    assert inside == {"in-program"}
    assert result.executed()["conv_2"] == Executed("", "in-program")


def test_other_engines_compute_the_function(compiled, images, tmp_path):
    result = compiled(Compiles, "onnxruntime-cpu")
    result.save(tmp_path / "out")
    np.testing.assert_array_equal(
        dovetail.load(tmp_path / "out", plugins=compiled.plugins).run({"image": images})["probabilities"],
        _plain(compiled, images),
    )


def _plain(compiled, images):
    return compiled().run({"image": images})["probabilities"]


def test_calls_side_by_side_stay_regions_of_their_own(compiled):
    # Without room for all nodes in one region, the second call reads the first one's result.
    result = compiled(pins=["relu_2=host"])
    regions = [get_placement(node).region for node in calls_in(result)]
    assert len(regions) == len(set(regions)) > 1


def test_compiled_again_the_model_gives_the_same_placements(compiled, with_backend, tmp_path):
    first = compiled(Compiles)
    first.save(tmp_path / "out")
    again = dovetail.plan(
        tmp_path / "out" / "model.onnx", "call-npu", plugins=with_backend(BACKEND.replace("ENGINES", "onnxruntime-cpu"))
    )
    operators = [node.operator for node in again.nodes if node.backend == "call-npu"]
    assert sorted(operators) == ["Conv"] * 3 + ["Gemm"] * 2 + ["MaxPool"] * 2 + ["Relu"] * 4


def test_layers_are_measured_inside(compiled, images):
    result = compiled(Compiles)
    errors = dovetail.layer_errors(DIGITS / "digits.onnx", result, {"image": images}, plugins=compiled.plugins)
    assert {layer.node for layer in errors.layers} >= {"conv_1", "conv_2", "dense_1"}
    assert calls_in(result), "the result itself is not changed"


def test_goals_are_met_with_calls_in_the_result(compiled, images):
    result = compiled(data=[{"image": images[:1]}] + [{"image": image[None]} for image in images] * 2, min_snr=60)
    assert result.plan.summary["accuracy"]["met"] is not False
    assert calls_in(result)


def test_a_region_may_read_another_one_directly(with_backend):
    # b is computed elsewhere, so that a and c are in two regions, of which the second reads the first one's result.
    plugins = with_backend(BACKEND.replace("ENGINES", "onnxruntime-cpu").replace("Conv, Relu", "MatMul, Conv, Relu"))
    plugins.registry.emitter("calls", f"{__name__}:Calls")
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[4,4] x) => (float[4,4] y) '
        "{ a = MatMul(x, x)  b = Sinh(a)  c = MatMul(a, b)  d = Sinh(c)  y = MatMul(c, d) }"
    )
    result = dovetail.compile(model, "call-npu", plugins=plugins)
    assert [node.op_type for node in calls_in(result)] == ["region_0", "region_2", "region_4"]
    x = np.full((4, 4), 0.25, np.float32)
    b = np.sinh(a := x @ x)
    np.testing.assert_allclose(result.run({"x": x})["y"], (c := a @ b) @ np.sinh(c), rtol=1e-2)


CAPTURES = """<ir_version: 10, opset_import: ["": 20]>
g (bool c, float[2,8] x) => (float[2,8] y) <float[8,8] w> {
  a = MatMul(x, w)
  b = Relu(a)
  d = If(c) <then_branch = t () => (float[2,8] p) { p = MatMul(b, w) },
             else_branch = e () => (float[2,8] q) { q = Relu(a) }>
  y = Add(d, b)
}"""


def test_bodies_that_read_values_of_their_region(with_backend):
    text = BACKEND.replace("ENGINES", "onnxruntime-cpu").replace("Gemm", "Gemm, MatMul, If, Add")
    plugins = with_backend(text)
    plugins.registry.emitter("calls", f"{__name__}:Calls")
    model = onnx.parser.parse_model(CAPTURES)
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    del model.graph.initializer[:], model.graph.value_info[:]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    result = dovetail.compile(model, "call-npu", plugins=plugins)
    assert [node.op_type for node in result.model.graph] == ["region_0"]
    feeds = {"c": np.array(True), "x": np.ones((2, 8), np.float32)}
    inside = np.maximum(feeds["x"] @ weight, 0)
    np.testing.assert_allclose(result.run(feeds)["y"], inside @ weight + inside, rtol=0.02)


@dataclass(frozen=True)
class CopyOnBackend(Pass):
    """Let the readers of b read a copy that stands on call-npu, as a conversion does that two of its regions read."""

    name = "copy-on-backend"
    stage = "join"

    def run(self, model, ctx):
        (value,) = [value for node in model.graph for value in node.outputs if value.name == "b"]
        copy = ir.Value(name="copied", type=value.type, shape=value.shape)
        value.replace_all_uses_with(copy)
        node = ir.Node("", "Identity", [value], outputs=[copy], name="copy")
        set_placement(node, Placement("call-npu", format_of(value.dtype)))
        model.graph.insert_after(value.producer(), node)
        model.touch()
        return True


def test_a_region_may_be_a_conversion_alone(with_backend):
    plugins = with_backend(BACKEND.replace("ENGINES", "onnxruntime-cpu").replace("Conv, Relu", "MatMul, Conv, Relu"))
    plugins.registry.emitter("calls", f"{__name__}:Calls")
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[4,4] x) => (float[4,4] y) '
        "{ a = MatMul(x, x)  b = Sinh(a)  y = Sinh(b) }"
    )
    result = dovetail.compile(model, "call-npu", plugins=plugins, passes=[CopyOnBackend()])
    assert [node.op_type for node in calls_in(result)] == ["region_0", "region_2"]
    assert result.run({"x": np.eye(4, dtype=np.float32)})["y"].shape == (4, 4)


ELSEWHERE = ["../../home", "call-npu/../../../home", "call-npu\\..\\..", "call-npu//", ".", "C:/home", "HOME"]


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_node_of_a_result_names_no_artifact_elsewhere(compiled, images, tmp_path, name):
    compiled(Compiles, "programs, onnxruntime-cpu").save(tmp_path / "out")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/net.program").write_bytes(b"compiled")
    loaded = dovetail.load(tmp_path / "out", compiled.plugins)
    for node in calls_in(loaded):
        artifact_of(node, name.replace("HOME", str(tmp_path / "home")))
    with pytest.raises(dovetail.DovetailError, match="leads out of the result|is missing"):
        loaded.run({"image": images})


@pytest.mark.parametrize("what", ["a file", "a link", "a linked folder"])
def test_an_engine_gets_no_file_that_somebody_added_to_an_artifact(compiled, images, tmp_path, what):
    compiled(Compiles, "programs, onnxruntime-cpu").save(tmp_path / "out")
    (folder, *_) = (tmp_path / "out/artifacts/call-npu").iterdir()
    if what == "a file":
        (folder / "evil.so").write_bytes(b"\x7fELF")
    elif what == "a link":
        (folder / "evil.so").symlink_to("/etc/hostname")
    else:
        folder.rename(tmp_path / "home")
        folder.symlink_to(tmp_path / "home", target_is_directory=True)
    with pytest.raises(
        dovetail.DovetailError, match=r"evil.so does not belong to the result|leads out of the result|net"
    ):
        dovetail.load(tmp_path / "out", compiled.plugins).run({"image": images})
