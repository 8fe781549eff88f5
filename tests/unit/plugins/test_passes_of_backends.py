"""A pass for one backend is part of the compilations that choose it, and finds its nodes."""

from dataclasses import dataclass

import dovetail
from dovetail.passes import Pass
from dovetail.planning import get_placement

DIGITS = "examples/digits/digits.onnx"


@dataclass(frozen=True)
class Own(Pass):
    """Count the nodes of cpu-bf16."""

    name = "own"
    stage = "outline"
    for_backend = "cpu-bf16"

    def run(self, model, ctx):
        nodes = self.own_nodes(model)
        assert nodes == [node for node in model.graph if get_placement(node).backend == "cpu-bf16"]
        ctx.count("own", len(nodes))
        return False


def counted(*backends):
    results = []
    watch = dovetail.Instrumentation(finished=results.append)
    dovetail.compile(DIGITS, list(backends), passes=[Own()], instrumentation=watch)
    return results[0].statistics.get("own")


def test_it_runs_where_its_backend_is_chosen():
    assert counted("cpu-bf16")["own"] > 0
    assert counted("gpu-fp16", "cpu-bf16") is not None


def test_it_is_left_out_elsewhere():
    assert counted("gpu-fp16") is None


def test_a_pipeline_that_names_it_runs_it():
    plugins = dovetail.load_plugins()
    globals()["Own"] = Own
    plugins.registry.pass_("own", f"{__name__}:Own")
    assert "own" in str(dovetail.Pipeline.parse("own", plugins.registry))
