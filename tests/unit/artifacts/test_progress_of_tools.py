"""What a tool says while it compiles or loads a region is the progress of the compilation."""

from pathlib import Path

import dovetail
import pytest
from dovetail.passes import Instrumentation
from dovetail.plugin import Artifact, Availability, Call, Emitter, Engine, EngineError, Reads, Tool

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
BACKEND = """
backend: slow-npu
device: npu
opset: 13..21
dynamic: accept
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops: {"Conv, Relu, MaxPool, Gemm, Flatten": {types: f, policy: lower}}
place: {strategy: autocast}
emit: {engines: [slow, onnxruntime-cpu], artifacts: [slow]}
"""
WORKER = """
def compile(region):
    yield "optimizing\\x1b[2J " + region
    yield "scheduling"


def load():
    yield "to the device"
"""


class Slow(Emitter):
    """Compiles with a tool that tells how far it is, and prints on the way."""

    worker = None

    def emit(self, region, folder):
        print("a banner of the vendor")
        with Tool.start(self.worker, title="slow") as tool:
            tool.ask("compile", region=region.name)
        (folder / "net.bin").write_bytes(b"")
        return Artifact(("net.bin",), Call())


class SlowEngine(Engine):
    name = "slow"
    loads_artifacts = True
    reads = Reads(21, 10, frozenset({"float32", "float16", "int64"}))

    def available(self):
        return Availability(True)

    def load(self, region, options):
        with Tool.start(Slow.worker, title="slow") as tool:
            tool.ask("load")
        raise EngineError("no device")


@pytest.fixture
def plugins(with_backend, tmp_path, monkeypatch):
    (tmp_path / "worker.py").write_text(WORKER)
    monkeypatch.setattr(Slow, "worker", tmp_path / "worker.py")
    found = with_backend(BACKEND)
    found.registry.emitter("slow", f"{__name__}:Slow")
    found.registry.engine("slow", f"{__name__}:SlowEngine")
    return found


def test_lines_of_a_tool_reach_the_progress_of_the_compilation(plugins, capsys):
    told = []

    def progress(what, done, total):
        print(f"<{what}>")
        told.append((what, done, total))

    dovetail.compile(DIGITS, "slow-npu", plugins=plugins, pins=["relu_3=host"], progress=progress)
    lines = [what for what, *_ in told]
    assert ("emit region_0 of slow-npu", 0, 2) in told and ("emit region_2 of slow-npu", 1, 2) in told
    first = lines.index("emit region_0 of slow-npu: optimizing\\x1b[2J region_0")
    assert lines[first + 1] == "emit region_0 of slow-npu: scheduling"
    assert "load: to the device" in lines
    printed = capsys.readouterr().out
    assert "<emit region_0 of slow-npu: scheduling>" in printed, "what the caller prints is no output of the emitter"
    assert "banner" not in printed


def test_instrumentation_and_the_report_of_stages_see_them(plugins):
    from dovetail_commands.stages import StageReport

    said, told = [], []
    report = StageReport(said.append, plugins.registry)

    def begins(what, done, total):
        report.begins(what)
        told.append(what)

    watch = Instrumentation(progress=begins, passed=report.passed, finished=report.finished)
    dovetail.compile(DIGITS, "slow-npu", plugins=plugins, instrumentation=watch)
    assert "emit region_0 of slow-npu: scheduling" in told
    assert [line.split()[0] for line in said[:3]] == ["prepare", "decide", "carry"], "a line of a tool ends no stage"


def test_without_progress_nothing_is_said(plugins, capsys):
    dovetail.compile(DIGITS, "slow-npu", plugins=plugins)
    assert "scheduling" not in "".join(capsys.readouterr())
