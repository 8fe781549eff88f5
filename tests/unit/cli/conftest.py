"""A stand-in for the Python API, so that the command line is tested alone."""

import types
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail.planning import Remark


class Plan:
    backends = ({"name": "npu"},)
    notes = ("what an option says",)
    remarks = ()

    def __str__(self):
        return "version: 1\n"

    def as_dict(self):
        return {"version": 1, "nodes": [{"name": "conv_0", "backend": "npu"}]}

    def save(self, path):
        Path(path).write_text("version: 1\n")


class Verification:
    broken = False
    random = False
    missed = ()
    notes = ()
    warnings = ()
    advice = ""

    def as_dict(self):
        return {"outputs": [{"name": "y", "snr_db": 41.2}]}

    def lines(self):
        return ["y  41.2 dB"]


class Compiled:
    plan = Plan()
    remarks = (Remark("missed", "conv_0", "place", "too-big", "H = 9; allowed: ..8"),)

    def warnings(self):
        return []

    def __init__(self, verification=None):
        self.verification = verification

    def placement_table(self):
        return [{"operator": "Conv", "backend": "npu", "nodes": 3}, {"operator": "Relu", "backend": "host", "nodes": 1}]

    def notes(self):
        return ["npu: emulated"]

    def summary(self):
        return "npu 3/4 nodes in 1 region, host 1"

    def save(self, folder, external=None, progress=None):
        Path(folder).mkdir(parents=True)

    def run_on(self, data, executor=""):
        return {"y": 2 * np.load(data)["x"]}

    def executed(self):
        return {"conv_0": ("float16", "reported")}


class Api(types.ModuleType):
    """Records the calls and answers them."""

    def __init__(self):
        super().__init__("dovetail.api")
        self.calls = []
        self.error = None

    def _called(self, name, arguments):
        self.calls.append((name, arguments))
        if self.error:
            raise self.error

    def open(self, path, plugins=None):
        self._called("open", {"path": path})
        return "model"

    def compile(self, model, backends, **arguments):
        self._called("compile", {"backends": backends, **arguments})
        arguments["progress"]("place", 1, 2)
        compiled = Compiled(Verification() if arguments["verify"] else None)
        arguments["keep"](compiled)
        return compiled

    def plan(self, model, backends, **arguments):
        self._called("plan", {"backends": backends, **arguments})
        return Plan()

    def load(self, path, plugins=None):
        self._called("load", {"path": path})
        return Compiled()

    def verify(self, original, result, data=None, **arguments):
        self._called("verify", {"data": data, **arguments})
        return Verification()

    def explain(self, result, node=None, *, all=False, model=None, plugins=None):
        self._called("explain", {"node": node})
        if node == "nope":
            raise DovetailError("no node 'nope'")
        return ["conv_0 runs on host", "H = 9; allowed: ..8"]

    def backends(self, plugins=None, names=()):
        self._called("backends", {"plugins": plugins})
        info = {"name": "npu", "summary": "Acme NPU", "distribution": "dovetail-npu", "needs": "data", "error": ""}
        return [types.SimpleNamespace(**info, engines=[("npu-sdk", False, "not installed"), ("reference", True, "")])]


@pytest.fixture
def api(monkeypatch):
    fake = Api()
    monkeypatch.setattr("dovetail_verify.functions.verify", fake.verify)
    monkeypatch.setattr("dovetail_commands.explain.command.explain", fake.explain)
    monkeypatch.setattr("dovetail_commands.backends.backends", fake.backends)
    monkeypatch.setitem(vars(dovetail), "api", fake)
    for name in ("open", "load"):
        monkeypatch.setitem(vars(dovetail), name, getattr(fake, name))
    return fake


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Run a command in an empty folder that holds `m.onnx` and `x.npz`; returns code, output, errors."""
    monkeypatch.chdir(tmp_path)
    Path("m.onnx").write_bytes(b"")
    np.savez("x.npz", x=np.array([1.0, 3.0], np.float32))

    def run(*arguments):
        code = main(list(map(str, arguments)))
        return code, *capsys.readouterr()

    return run
