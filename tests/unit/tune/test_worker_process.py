"""Workers: what goes wrong in one costs a candidate, and says how it ended."""

import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
from dovetail.plugin import EngineError
from dovetail_tune.worker_process import Worker

CRASHING = """
    import os, signal
    from dovetail.plugin import Availability, Engine, Reads

    class Crashing(Engine):
        name = "crashing"
        reads = Reads(opset=22, ir_version=10, types=frozenset({"float16", "float32"}))

        def available(self):
            return Availability(True, "")

        def load(self, region, options):
            print("the engine prints this")
            os.kill(os.getpid(), signal.SIGSEGV)
"""
REGISTER = """
    from dovetail.plugin import hookimpl
    dovetail_api = 1

    @hookimpl
    def register(registry):
        registry.engine("crashing", "crashing_npu.engine:Crashing")
        registry.backend("crashing-npu", "crashing_npu:crashing.backend.yaml")
"""
BACKEND = """
    backend: crashing-npu
    device: npu
    opset: 13..22
    precision: {low: float16, high: float32}
    types: {f: [float16, float32]}
    ops:
      Conv, Relu, Gemm, MaxPool, Flatten, Softmax: {types: f}
    policies: fp16
    place: {strategy: autocast}
    emit: {engines: [crashing]}
"""


@pytest.fixture
def crashing_npu(tmp_path, monkeypatch):
    """An installed distribution whose engine kills its process."""
    package, metadata = tmp_path / "crashing_npu", tmp_path / "crashing_npu-1.dist-info"
    package.mkdir()
    metadata.mkdir()
    for name, text in (("__init__.py", REGISTER), ("engine.py", CRASHING), ("crashing.backend.yaml", BACKEND)):
        (package / name).write_text(textwrap.dedent(text))
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: crashing-npu\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[dovetail]\ncrashing = crashing_npu\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "crashing-npu"
    for name in [name for name in sys.modules if name.startswith("crashing_npu")]:
        del sys.modules[name]


def children():
    """The processes that this one started."""
    return {int(child) for task in Path("/proc/self/task").glob("*/children") for child in task.read_text().split()}


def test_a_job_that_fails_leaves_the_worker_usable():
    with Worker() as worker:
        for _ in range(2):
            with pytest.raises(EngineError, match="nothing is loaded"):
                worker.ask({"job": "time", "runs": 1})


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="children are listed in /proc")
def test_a_process_that_is_killed_is_an_error_that_names_the_signal_and_is_not_replaced():
    """Another one would not have the result that is timed."""
    others = children()
    with Worker() as worker:
        with pytest.raises(EngineError, match="nothing is loaded"):  # it has started
            worker.ask({"job": "time", "runs": 1})
        (pid,) = children() - others
        os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(EngineError, match="its process ended with signal SIGKILL"):
                worker.ask({"job": "time", "runs": 1})
    assert children() == others


def test_a_job_that_takes_too_long_ends_its_process():
    with Worker() as worker, pytest.raises(EngineError, match="its process took longer than 0 s"):
        worker.ask({"job": "time", "runs": 1}, timeout=0.001)


@pytest.mark.slow
def test_an_engine_that_kills_its_process_is_left_out_and_the_others_go_on(crashing_npu):
    import dovetail

    tuned = dovetail.tune(
        "examples/digits/digits.onnx", crashing_npu, data="examples/digits/test.npz", min_snr=30, mixed=False
    )
    remarks = {entry.candidate.name: entry.remark for entry in tuned.entries}
    assert remarks["crashing-npu"].startswith("left out: its process ended with signal SIGSEGV")
    assert tuned.winner.candidate.name == "host"
