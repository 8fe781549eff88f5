"""`dovetail opt` and `dovetail passes` with real models and a plugin made for the test."""

import json
import sys
from pathlib import Path

import pytest
from dovetail.cli import main as cli_main

MODEL = """<ir_version: 10, opset_import: ["": 17]>
agraph (float[2] x) => (float[2] y) {
  t = Relu(x)
  y = Relu(t)
}
"""
PASSES = '''
from dataclasses import dataclass
from dovetail.plugin import hookimpl
from dovetail.passes import Pass
from dovetail.planning import origin_of

dovetail_api = 1

@hookimpl
def register(registry):
    registry.pass_("acme-sigmoid", "acme_plugin:Sigmoid")
    registry.pass_("acme-crash", "acme_plugin:Crash")
    registry.pass_("acme-lost", "acme_plugin:Lost")

@dataclass(frozen=True)
class Sigmoid(Pass):
    """Turn every Relu into a Sigmoid."""
    name = "acme-sigmoid"
    stage = "emit"
    def run(self, model, ctx):
        for node in model.nodes():
            if node.op_type == "Relu":
                node.op_type = "Sigmoid"
                ctx.count("turned")
                ctx.remark("passed", node.outputs[0].name, "sigmoid", "Relu is out of fashion", because=["x"])
                model.touch()
        return True

@dataclass(frozen=True)
class Crash(Pass):
    """Crash."""
    name = "acme-crash"
    def run(self, model, ctx):
        raise RuntimeError(f"crash on {next(iter(model.nodes())).op_type}")
'''


@pytest.fixture
def opt(tmp_path, monkeypatch, capsys):
    """Run the command line beside `m.onnxtxt` with the plugin acme installed."""
    info = tmp_path / "site" / "acme-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dovetail]\nacme = acme_plugin\n")
    (tmp_path / "site" / "acme_plugin.py").write_text(PASSES)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path)
    Path("m.onnxtxt").write_text(MODEL)

    def run(*arguments):
        code = cli_main.main(list(map(str, arguments)))
        return code, *capsys.readouterr()

    yield run
    sys.modules.pop("acme_plugin", None)


def test_text_in_and_text_out(opt):
    code, out, err = opt("opt", "m.onnxtxt", "-p", "acme-sigmoid", "--remarks")
    assert (code, err) == (0, "")
    assert "Relu (" not in out
    assert "y = Sigmoid (t)" in out
    assert out.splitlines()[-1] == "// passed y: acme-sigmoid/sigmoid: Relu is out of fashion (because of x)"


@pytest.mark.parametrize("name", ["out.onnx", "out.onnxtxt"])
def test_a_written_file_can_be_read_again(opt, name):
    assert opt("opt", "m.onnxtxt", "-p", "acme-sigmoid", "-o", name) == (0, "", "")
    assert "y = Sigmoid (t)" in opt("opt", name, "-p", "")[1]


def test_as_json(opt):
    document = json.loads(opt("opt", "m.onnxtxt", "-p", "acme-sigmoid", "--json")[1])
    assert document["passes"][0]["counts"] == {"turned": 2}
    assert [remark["node"] for remark in document["remarks"]] == ["t", "y"]
    assert "Sigmoid" in document["text"]


def test_timing_and_statistics_go_to_standard_error(opt):
    _, out, err = opt("opt", "m.onnxtxt", "-p", "acme-sigmoid", "--timing", "--stats")
    assert "turned" not in out
    assert [line.split()[-1] for line in err.splitlines()] == ["acme-sigmoid", "verifier", "total", "turned"]


def test_a_crash_leaves_a_file_that_repeats_it(opt):
    code, _, err = opt("opt", "m.onnxtxt", "-p", "acme-sigmoid,acme-crash")
    assert code == 1
    first = "error: pass 'acme-crash' of acme failed: RuntimeError: crash on Sigmoid (site/acme_plugin.py:34)"
    assert err.splitlines()[0] == first
    assert "dovetail opt dovetail-reproducer.onnx --run-reproducer" in err
    Path("m.onnxtxt").unlink()
    code, _, err = opt("opt", "dovetail-reproducer.onnx", "--run-reproducer")
    assert code == 1
    assert err.splitlines()[0] == "pipeline: acme-sigmoid,acme-crash"
    assert "error: pass 'acme-crash' of acme failed: RuntimeError: crash on Sigmoid" in err
    assert opt("opt", "dovetail-reproducer.onnx", "-p", "acme-sigmoid")[0] == 0


def test_passes_are_listed_by_stage_and_a_lost_one_with_its_error(opt):
    code, out, _ = opt("passes")
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[lines.index("emit:") + 1] == "acme-sigmoid acme Turn every Relu into a Sigmoid."
    assert lines[lines.index("only where a pipeline names them:") + 1] == "acme-crash acme Crash."
    assert "acme-lost acme pass 'acme-lost' of acme cannot be loaded" in lines[lines.index("cannot be loaded:") + 1]
    document = json.loads(opt("passes", "--json")[1])
    assert {item["name"]: item["stage"] for item in document["passes"]}["acme-sigmoid"] == "emit"


def test_a_broken_plugin_is_listed_and_the_rest_works(opt, tmp_path):
    (tmp_path / "site" / "acme_plugin.py").write_text("1 / 0")
    code, out, err = opt("passes")
    assert code == 0
    assert "warning: plugin acme (acme): does not import: ZeroDivisionError" in err
    assert "not in use:" in out
    assert "broken" in out
    assert "acme" not in opt("passes", "--no-plugin", "acme")[2]
