"""An emitter that refuses a region and names no node: halves of it are compiled, so that one node costs itself."""

from pathlib import Path

import dovetail
import pytest
from dovetail.plugin import Artifact, Call, Emitter

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
FLOATS = """
backend: blind-npu
device: npu
opset: 13..21
dynamic: accept
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops: {"Conv, Relu, MaxPool, Gemm, Flatten": {types: f, policy: lower}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu], artifacts: [blind]}
"""
INTEGERS = FLOATS.replace("float16, high", "int8, high").replace(
    "f: [float16, float32]", "f: {dtype: int8, scheme: symmetric, observer: minmax}"
)


class Blind(Emitter):
    """Compiles regions; subclasses are tools that fail without a name."""

    regions = []

    def emit(self, region, folder):
        operators = [node.op_type for node in region.source.graph]
        assert len(operators) == len(region.nodes)  # a part is given as the whole is: in both models
        assert set(operators) <= {node.op_type for node in region.model.graph}
        self.regions.append(region.nodes)
        self.check(operators, region)
        (folder / "net.txt").write_text(" ".join(operators))
        return Artifact(("net.txt",), Call())

    def check(self, operators, region):
        pass


class NoPool(Blind):
    def check(self, operators, region):
        if "MaxPool" in operators:
            raise RuntimeError("the process ended")


class NamesOne(Blind):
    """Names a node only where the region is small."""

    def check(self, operators, region):
        if "Flatten" in operators:
            names = [name for name in region.nodes if name.startswith("flatten")]
            raise dovetail.plugin.EngineError("no Flatten", nodes=names if len(operators) < 7 else [])


class Six(Blind):
    def check(self, operators, region):
        if len(operators) > 6:
            raise RuntimeError("out of memory")


class NoLicense(Blind):
    def check(self, operators, region):
        raise RuntimeError("no license")


@pytest.fixture
def compile_with(with_backend, monkeypatch):
    def run(tool, file=FLOATS, **goals):
        monkeypatch.setattr(tool, "regions", [])
        plugins = with_backend(file)
        plugins.registry.emitter("blind", f"{__name__}:{tool.__name__}")
        return dovetail.compile(DIGITS / "digits.onnx", "blind-npu", data=DIGITS / "test.npz", plugins=plugins, **goals)

    return run


def left_out(compiled):
    return [node.name for node in compiled.plan.nodes if node.backend == "host" and node.op_type != "Softmax"]


def attempts(compiled):
    return [remark.reason for remark in compiled.remarks if remark.rule == "part-tried"]


TOOLS = [(NoPool, ["pool_1", "pool_2"]), (NamesOne, ["flatten_1"]), (Six, ["conv_3"])]


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("file", [FLOATS, INTEGERS], ids=["floats", "integers"])
@pytest.mark.parametrize(("tool", "lost"), TOOLS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_node_costs_itself(tool, lost, file, compile_with):
    compiled = compile_with(tool, file)
    assert left_out(compiled) == lost
    assert len({node.region for node in compiled.plan.nodes if node.backend == "blind-npu"}) == len(lost) + 1
    assert compiled.verification.lines()
    assert min(output.snr_db for output in compiled.verification.outputs) > 20
    tried = attempts(compiled)
    assert tried[0].startswith(("compiled: 6 nodes of region ", "refused: 6 nodes of region "))
    assert len(tried) <= 16
    (why,) = {remark.reason for remark in compiled.remarks if remark.rule == "not-emitted" and remark.node == lost[0]}
    assert {"NoPool": "the process ended", "NamesOne": "no Flatten", "Six": "this node is between them"}[
        tool.__name__
    ] in why


def test_a_tool_that_refuses_everything_is_asked_a_bounded_number_of_times(compile_with):
    compiled = compile_with(NoLicense)
    assert not [node for node in compiled.plan.nodes if node.backend == "blind-npu"]
    assert len(NoLicense.regions) <= 25
    assert "no license" in "\n".join(dovetail.explain(compiled, "conv_2"))


@pytest.mark.slow
def test_what_was_found_is_not_searched_again_in_trials(compile_with):
    compiled = compile_with(NoPool, INTEGERS, min_snr=45)
    assert NoPool.regions.count(("pool_1",)) == NoPool.regions.count(("pool_2",)) == 1
    assert {"pool_1", "pool_2"} <= {*left_out(compiled)}
