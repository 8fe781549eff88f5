"""What an engine refuses goes back to placement, and everything says what happened."""

import gc
import itertools
import json
import weakref
from concurrent.futures import ThreadPoolExecutor

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail.plugin import EngineError, load_plugins
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu

BACKEND = """
backend: acme-npu
summary: An accelerator whose engine knows better than its table
device: npu
opset: 13..26
precision: {low: float16, high: float32}
policies: fp16
types: {f: [float16, float32]}
ops:
  Add, Mul, Neg, Abs, Exp, MatMul: {types: f}
place: {strategy: autocast}
emit: {engines: [picky]}
"""

ENGINE = """
from dovetail.plugin import EngineError
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu

REFUSES = {refuses!r}

class Picky(OnnxRuntimeCpu):
    name = "picky"

    def load(self, region, options):
        for node in region.model.nodes():
            if node.op_type in REFUSES:
                raise EngineError(f"picky refuses node '{{node.name}}'", node=node.name if {names} else "")
        return super().load(region, options)
"""

MODEL = """<ir_version: 10, opset_import: ["" : 22]>
g (float[2,4] x) => (float[2,4] y) {
    [add] a = Add (x, x)  [exp_1] b = Exp (a)  [neg] c = Neg (b)  [exp_2] d = Exp (c)  [mul] y = Mul (d, a)
}"""

_NUMBERS = itertools.count()  # modules of one name would be imported once


@pytest.fixture
def picky(tmp_path, monkeypatch):
    """Install the backend `acme-npu` with an engine that refuses some operators; returns the plugins."""
    monkeypatch.chdir(tmp_path)

    def install(refuses, names=True):
        number = next(_NUMBERS)
        root, package = tmp_path / f"dist{number}", f"acme_npu_{number}"
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text("")
        (root / package / "npu.backend.yaml").write_text(BACKEND)
        (root / package / "engine.py").write_text(ENGINE.format(refuses=tuple(refuses), names=names))
        monkeypatch.syspath_prepend(root)
        plugins = load_plugins()
        with plugins.registry.on_behalf_of("dovetail-acme-npu"):
            plugins.registry.backend("acme-npu", f"{package}:npu.backend.yaml")
            plugins.registry.engine("picky", f"{package}.engine:Picky")
        (tmp_path / "m.onnxtxt").write_text(MODEL)
        return plugins

    return install


def placed(compiled):
    return {node.name: node.backend for node in compiled.plan.nodes}


def test_nodes_that_are_named_go_to_the_host_and_the_rest_stays(picky):
    compiled = dovetail.compile("m.onnxtxt", "acme-npu", plugins=picky(["Exp"]), verify=True)
    assert placed(compiled) == {
        "add": "acme-npu",
        "exp_1": "host",
        "neg": "acme-npu",
        "exp_2": "host",
        "mul": "acme-npu",
    }
    said = [remark for remark in compiled.remarks if remark.rule == "engine-refused"]
    assert [(remark.kind, remark.node) for remark in said] == [("failed", "exp_1"), ("failed", "exp_2")]
    assert said[0].why == "not on acme-npu: picky (dovetail-acme-npu) refuses node 'exp_1'"
    assert {runner.engine for runner in compiled.regions if runner.backend == "acme-npu"} == {"picky"}
    assert "acme-npu 3/" in compiled.summary() and "host" in compiled.summary()
    assert not compiled.verification.broken


def test_an_engine_that_names_one_node_at_a_time_costs_two_rounds(picky):
    """What is left of a refused region is loaded without the named node before anything is decided again."""
    chain = "  ".join(f"[exp_{i}] e{i} = Exp (n{i - 1})  [neg_{i}] n{i} = Neg (e{i})" for i in range(1, 9))
    plugins = picky(["Exp"])
    with open("m.onnxtxt", "w") as file:
        file.write(
            '<ir_version: 10, opset_import: ["" : 22]> g (float[2,4] x) => (float[2,4] y) '
            f"{{ [first] n0 = Neg (x) {chain} [last] y = Abs (n8) }}"
        )
    results = []
    watch = dovetail.Instrumentation(finished=results.append)
    compiled = dovetail.compile("m.onnxtxt", "acme-npu", plugins=plugins, instrumentation=watch)
    assert {name for name, backend in placed(compiled).items() if backend == "host"} == {
        f"exp_{i}" for i in range(1, 9)
    }
    assert sum(step.name == "place" for result in results for step in result.passes) == 2


def test_nodes_that_are_refused_without_a_name_are_found(picky):
    """Halves of the region are loaded until one node is left."""
    compiled = dovetail.compile("m.onnxtxt", "acme-npu", plugins=picky(["Exp"], names=False))
    assert {name for name, backend in placed(compiled).items() if backend == "host"} == {"exp_1", "exp_2"}
    tried = [remark.reason for remark in compiled.remarks if remark.rule == "part-tried"]
    assert "loaded: 1 node of region 0, 'add', alone" in tried
    assert any(text.startswith("refused: 1 node of region 0, 'exp_1', alone: picky") for text in tried)
    compiled.run({"x": np.ones((2, 4), np.float32)})


def test_a_region_whose_parts_all_load_goes_as_a_whole(picky, monkeypatch):
    plugins, load = picky([]), OnnxRuntimeCpu.load

    def refuse_large(engine, region, options):
        if engine.name == "picky" and len(region.model.graph) > 4:
            raise EngineError("picky refuses the region: it is large")
        return load(engine, region, options)

    monkeypatch.setattr(OnnxRuntimeCpu, "load", refuse_large)
    compiled = dovetail.compile("m.onnxtxt", "acme-npu", plugins=plugins)
    assert set(placed(compiled).values()) == {"host"}


def test_a_conversion_that_is_refused_takes_the_node_around_it_along(picky):
    compiled = dovetail.compile("m.onnxtxt", "acme-npu", plugins=picky(["Cast"]))
    result = compiled.run({"x": np.ones((2, 4), np.float32)})["y"]
    np.testing.assert_allclose(result, 2 * np.exp(-np.exp(np.full((2, 4), 2.0))), rtol=1e-2)
    assert all(runner.engine == "picky" for runner in compiled.regions if runner.backend == "acme-npu")


def test_a_pin_on_what_the_engine_refuses_is_an_error(picky):
    with pytest.raises(DovetailError, match=r"pin 'exp_1=acme-npu'.* picky \(dovetail-acme-npu\) refuses node 'exp_1'"):
        dovetail.compile("m.onnxtxt", "acme-npu", plugins=picky(["Exp"]), pins="exp_1=acme-npu")


def test_what_was_loaded_for_the_trial_runs_the_model_until_it_is_unloaded(picky, monkeypatch):
    loads, load = [], OnnxRuntimeCpu.load
    monkeypatch.setattr(OnnxRuntimeCpu, "load", lambda *arguments: loads.append(1) or load(*arguments))
    compiled = dovetail.compile("m.onnxtxt", "acme-npu", plugins=picky([]), check_prepare=False)
    tried = len(loads)
    compiled.run({"x": np.ones((2, 4), np.float32)})
    assert len(loads) == tried == len(compiled.regions)
    executor = weakref.ref(compiled.executor())
    compiled.unload()
    gc.collect()
    assert executor() is None
    compiled.run({"x": np.ones((2, 4), np.float32)})
    assert len(loads) == 2 * tried


def test_threads_that_run_a_model_at_once_load_it_once(picky, monkeypatch):
    loads, load = [], OnnxRuntimeCpu.load
    monkeypatch.setattr(OnnxRuntimeCpu, "load", lambda *arguments: loads.append(1) or load(*arguments))
    compiled = dovetail.compile("m.onnxtxt", "host", plugins=picky([]), check_prepare=False)
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: compiled.run({"x": np.ones((2, 4), np.float32)})["y"], range(16)))
    assert len(loads) == 1
    assert all((result == results[0]).all() for result in results)


def test_engines_are_not_tried_where_nobody_wants_it(picky):
    compiled = dovetail.compile("m.onnxtxt", "acme-npu", plugins=picky(["Exp"]), try_engines=False)
    assert set(placed(compiled).values()) == {"acme-npu"}
    with pytest.raises(DovetailError, match="no engine runs region 0"):
        compiled.run({"x": np.ones((2, 4), np.float32)})


def test_the_commands_say_it(picky, monkeypatch, capsys):
    plugins = picky(["Exp"])
    monkeypatch.setattr("dovetail.plugin.loading.loader.load_plugins", lambda **_: plugins)
    assert main(["compile", "m.onnxtxt", "--backend", "acme-npu", "-o", "out"]) == 0
    printed = capsys.readouterr().out
    assert "acme-npu 3/" in printed.splitlines()[-1]
    assert "executed" in printed.splitlines()[0]
    assert main(["explain", "out", "exp_1"]) == 0
    assert "picky (dovetail-acme-npu) refuses node 'exp_1'" in capsys.readouterr().out
    np.savez("x.npz", x=np.ones((2, 4), np.float32))
    assert main(["run", "out", "--data", "x.npz", "--json"]) == 0
    assert "acme-npu 3/" in json.loads(capsys.readouterr().out)["summary"]
