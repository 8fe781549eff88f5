"""Reproducers of what fails after a decision was rejected: they replay the compilation from its source."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from dovetail.compiler import Driver
from dovetail.errors import DovetailError
from dovetail.passes import Context, Instrumentation, Pass, Request
from dovetail.planning import placement_of
from dovetail.plugin import load_plugins
from dovetail_commands.opt import read_reproducer
from dovetail_onnx.opening import open_text


@dataclass(frozen=True)
class RefuseThenCrash(Pass):
    """Refuse the first node on gpu-fp16, and crash when that has been decided again."""

    name: ClassVar[str] = "refuse-then-crash"
    stage: ClassVar[str] = "calibrate"

    def run(self, model, ctx):
        if placement_of(model.graph[0]).backend != "gpu-fp16":
            raise IndexError("second round")
        model.touch()  # so the next round begins with a copy of the prepared model
        ctx.refuse(model.graph[0], "gpu-fp16", "it is the first", rule="test")
        return False


def test_a_crash_in_a_later_round_is_reproduced_from_the_source_and_all_passes(tmp_path):
    source = """<ir_version: 10, opset_import: ["": 21]>
    g (float[2,3] x) => (float[2,3] y) { [first] a = Relu (x) [idle] b = Identity (a) [last] y = Sigmoid (b) }"""
    plugins = load_plugins()
    ctx = Context(Request.of("gpu-fp16"), plugins=plugins)
    ctx.load_backends()
    path = tmp_path / "crash.onnx"
    with pytest.raises(DovetailError, match="second round"):
        Driver(open_text(source, "m"), ctx, [RefuseThenCrash()], Instrumentation(reproducer=path)).compile()
    model, data = read_reproducer(path, plugins.registry)
    assert [node.name for node in model.graph] == ["first", "idle", "last"]  # preparing removes one
    passes = data["pipeline"].split(",")
    assert passes.index("normalize") < passes.index("place") < passes.index("refuse-then-crash")
    assert passes.count("normalize") == passes.count("place") == 1
