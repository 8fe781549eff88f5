"""Executors that plugins bring run a compiled model in their own way; what they do wrong names them."""

from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail.plugin import Executor

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
DATA = ROOT / "examples" / "digits" / "test.npz"
IMAGE = {"image": np.load(DATA)["image"][:1]}


class Bad(Executor):
    def __init__(self, compiled):
        self.compiled = compiled

    def run(self, inputs):
        return {}

    def executed(self):
        return 1 / 0


class Crashes(Bad):
    def run(self, inputs):
        raise SystemExit(0)


class Unmade(Bad):
    def __init__(self, compiled):
        raise OSError("no device")


class Lacks(Executor):
    def __init__(self, compiled):
        pass


@pytest.fixture
def plugins(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "example_tools" / "src"))
    found = dovetail.load_plugins()
    found.registry.executor("sequential", "dovetail_example_tools.sequential:Sequential")
    for cls in (Bad, Crashes, Unmade, Lacks):
        found.registry.executor(cls.__name__.lower(), f"{__name__}:{cls.__name__}")
    return found


def test_a_compiled_model_runs_on_the_executor_that_is_named(plugins, tmp_path):
    compiled = dovetail.compile(DIGITS, "host", plugins=plugins)
    expected, found = compiled.run(IMAGE), compiled.run(IMAGE, executor="sequential")
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)
    nodes = len(list(compiled.model.graph))
    assert compiled.notes() == [f"{nodes} nodes run one after the other"]
    assert len(compiled.executed()) == nodes
    assert len(compiled.regions) == 1, "regions are those of the plan"
    compiled.save(tmp_path)
    again = dovetail.load(tmp_path, plugins)
    (batch,) = again.run_on(IMAGE, executor="sequential").values()
    np.testing.assert_allclose(batch, next(iter(expected.values())), rtol=1e-5, atol=1e-6)
    compiled.unload()
    assert "one after the other" not in " ".join(compiled.notes())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sequentail", "unknown executor 'sequentail' (did you mean 'sequential'?)"),
        ("bad", "executor 'bad' of this program gives no output 'probabilities'"),
        ("crashes", "executor 'crashes' of this program failed: SystemExit: 0"),
        ("unmade", "executor 'unmade' of this program failed: OSError: no device"),
        ("lacks", "executor 'lacks' of this program has no executed, run"),
    ],
)
def test_an_executor_that_breaks_its_contract_is_named(plugins, name, message):
    compiled = dovetail.compile(DIGITS, "host", plugins=plugins)
    with pytest.raises(DovetailError) as caught:
        compiled.run(IMAGE, executor=name)
    assert message in str(caught.value)
    assert compiled.run(IMAGE), "the default runs all the same"


def test_what_executed_raises_is_named(plugins):
    with pytest.raises(DovetailError, match="executor 'bad' of this program failed: ZeroDivisionError"):
        dovetail.compile(DIGITS, "host", plugins=plugins).executor("bad").executed()


def test_the_command_line_takes_the_name(plugins, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("dovetail.plugin.loading.loader.load_plugins", lambda **_: plugins)
    dovetail.compile(DIGITS, "host", plugins=plugins).save(tmp_path)
    np.savez(tmp_path / "one.npz", **IMAGE)
    data = str(tmp_path / "one.npz")
    assert main(["run", str(tmp_path), "--data", data, "--executor", "sequential"]) == 0
    assert "nodes run one after the other" in capsys.readouterr().out
    assert main(["run", str(tmp_path), "--data", data, "--executor", "sequentail"]) == 1
    assert "did you mean 'sequential'" in capsys.readouterr().err
