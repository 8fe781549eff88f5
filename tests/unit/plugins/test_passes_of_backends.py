"""A pass for one backend is part of the compilations that choose it, and finds its nodes."""

import sys
from dataclasses import dataclass

import dovetail
import pytest
from dovetail.passes import Pass
from dovetail.planning import get_placement
from dovetail.plugin.loading.isolation import PluginWarning

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


def registered(install, plugin, said):
    """Register a pass for cpu-bf16 from a module of its own, with what its registration says of the backend."""
    code = """
from dovetail.passes import Pass

class Late(Pass):
    name = "acme-late"
    stage = "outline"
    for_backend = "cpu-bf16"

    def run(self, model, ctx):
        return False
"""
    register = f'registry.pass_("acme-late", "acme_late:Late", for_backend={said!r})'
    install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": plugin(register=register), "acme_late.py": code})


def test_one_that_is_registered_for_its_backend_is_imported_with_it_alone(install, plugin):
    registered(install, plugin, "cpu-bf16")
    dovetail.compile(DIGITS, ["gpu-fp16"])
    assert "acme_late" not in sys.modules
    dovetail.compile(DIGITS, ["cpu-bf16"])
    assert "acme_late" in sys.modules


def test_a_registration_for_another_backend_than_that_of_the_class_is_a_fault(install, plugin):
    registered(install, plugin, "gpu-fp16")
    with pytest.warns(PluginWarning, match="of acme is registered for backend 'gpu-fp16', and its class for"):
        dovetail.compile(DIGITS, ["gpu-fp16"])


def test_only_passes_are_registered_for_a_backend():
    with pytest.raises(dovetail.DovetailError, match="engine 'acme' is registered for a backend, which only a pass"):
        dovetail.load_plugins().registry.engine("acme", "acme:Engine", for_backend="cpu-bf16")
