"""A backend is a file in any registered format, or a Python class that answers the same questions."""

import sys
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail.plugin import PluginWarning, load_plugins

MODEL = """<ir_version: 10, opset_import: ["" : 22]>
g (float[4] x) => (float[4] y) {
  [low] r = Relu (x)  [other] s = Sin (r)  y = Neg (s) }"""

BACKEND = """
import json
from dovetail.plugin import Backend, BackendFormat, BackendSummary, DovetailError, Verdict

class AcmeNpu(Backend):
    name, summary, device = "acme-npu", "made for a test", "npu"
    low, high, accumulate = "float16", "float32", None
    opset, strategy, engines = (13, 26), "autocast", ("onnxruntime-cpu",)
    facts, border_types, source = (), ("float16", "float32"), "acme_code.AcmeNpu"

    def __init__(self, options, operators=("Relu", "Neg")):
        unknown = options.keys() - {"march"}
        if unknown:
            raise DovetailError(f"acme-npu has no option '{unknown.pop()}'", "its only option is march")
        self.chosen = {"march": options.get("march", "one")}
        self.operators = operators

    def lists(self, domain, op_type):
        return op_type in self.operators

    takes = lists

    def judge(self, opsets, facts):
        return lambda node, region=None: Verdict(node.op_type in self.operators, policy="lower")

class Text(BackendFormat):
    suffix, endings = ".backend.json", (".json",)

    def name(self, source):
        return json.loads(source.read_bytes())["backend"]

    def peek(self, source):
        return BackendSummary(self.name(source), "from JSON", "npu", ("onnxruntime-cpu",))

    def load(self, source, find, options, facts):
        return AcmeNpu(options, json.loads(source.read_bytes())["operators"])

    def check(self, source, known, load):
        load({})
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("m.onnxtxt").write_text(MODEL)
    return "m.onnxtxt"


@pytest.fixture
def backend_class(install, plugin):
    register = plugin(register='registry.backend("acme-npu", "acme_code:AcmeNpu")')
    install("dovetail-acme", {"acme": "acme_plugin"}, {"acme_plugin.py": register, "acme_code.py": BACKEND})


def backends_of(compiled):
    return {entry.name: entry.backend for entry in compiled.plan.nodes}


def test_a_class_is_a_backend(backend_class, model):
    plugins = load_plugins(strict=True)
    compiled = dovetail.compile(model, "acme-npu:march=two", plugins=plugins)
    placed = backends_of(compiled)
    assert (placed["low"], placed["other"]) == ("acme-npu", "host")
    assert compiled.plan.backends[0].options == {"march": "two"}
    x = np.array([-1, 0, 1, 2], np.float32)
    np.testing.assert_allclose(compiled.run({"x": x})["y"], -np.sin(np.maximum(x, 0)), atol=2e-3)
    listed = {info.name: info for info in dovetail.backends(plugins)}["acme-npu"]
    assert (listed.summary, listed.needs, listed.engines[0][0]) == ("made for a test", "npu", "onnxruntime-cpu")


def test_a_class_says_which_options_it_has(backend_class, model):
    with pytest.raises(DovetailError, match="acme-npu has no option 'mrach'"):
        dovetail.compile(model, "acme-npu:mrach=two", plugins=load_plugins())


@pytest.mark.parametrize(
    ("line", "instead", "message"),
    [
        ("self.operators = operators", "1 / 0", "'acme-npu' of dovetail-acme cannot be made: ZeroDivisionError"),
        (
            "return lambda node, region=None: ",
            "return lambda node, region=None: node.mistaken and ",
            "'acme-npu' of dovetail-acme cannot judge node 'low': AttributeError",
        ),
        ("def judge(", "def judged(", "'acme-npu' of dovetail-acme has no judge"),
        ('opset, strategy, engines = (13, 26), "autocast", ', "engines = ", "dovetail-acme has no opset, strategy"),
    ],
)
def test_a_class_that_does_not_answer_is_named(install, plugin, model, line, instead, message):
    register = plugin(register='registry.backend("acme-npu", "acme_code:AcmeNpu")')
    files = {"acme_plugin.py": register, "acme_code.py": BACKEND.replace(line, instead)}
    install("dovetail-acme", {"acme": "acme_plugin"}, files)
    with pytest.raises(DovetailError, match=message):
        dovetail.compile(model, "acme-npu", plugins=load_plugins())


def test_a_format_reads_the_files_of_plugins_that_come_before_it(install, plugin, model):
    """The distribution with the file sorts before the one that can read it."""
    files = {
        "acme_described/__init__.py": "",
        "acme_described/npu.backend.json": '{"backend": "acme-npu", "operators": ["Sin"]}',
    }
    install("dovetail-acme-files", {"acme-files": "acme_described"}, files)
    register = plugin(register='registry.backend_format("acme-json", "acme_code:Text")')
    install("dovetail-zacme", {"zacme": "acme_plugin"}, {"acme_plugin.py": register, "acme_code.py": BACKEND})
    plugins = load_plugins(strict=True)
    assert plugins.registry.backend.entry("acme-npu").owner == "dovetail-acme-files"
    assert {info.name: info.summary for info in dovetail.backends(plugins)}["acme-npu"] == "from JSON"
    placed = backends_of(dovetail.compile(model, "acme-npu", plugins=plugins))
    assert (placed["low"], placed["other"]) == ("host", "acme-npu")


@pytest.mark.parametrize(
    ("line", "instead", "message"),
    [
        ("import json", "import acme_no_such_library", "cannot be loaded from acme_code:Text: ModuleNotFoundError"),
        ("def peek(", "def look(", "backend format 'acme-json' of dovetail-acme has no peek"),
    ],
)
def test_a_broken_format_breaks_its_own_plugin_only(install, plugin, line, instead, message):
    register = plugin(register='registry.backend_format("acme-json", "acme_code:Text")')
    files = {"acme_plugin.py": register, "acme_code.py": BACKEND.replace(line, instead)}
    install("dovetail-acme", {"acme": "acme_plugin"}, files)
    with pytest.warns(PluginWarning, match=message):
        plugins = load_plugins()
    assert [record.name for record in plugins.broken] == ["acme"]
    assert list(plugins.registry.backend_format) == ["yaml"]


def test_without_a_format_the_way_out_is_named(install, model):
    install(
        "dovetail-acme", {"acme": "acme_npu"}, {"acme_npu/__init__.py": "", "acme_npu/npu.backend.yaml": "backend: npu"}
    )
    with pytest.warns(PluginWarning, match="no format of backend files is installed; pip install dovetail-schemas"):
        plugins = load_plugins(block=["dovetail-schemas"])
    with pytest.raises(DovetailError, match="gpu_fp16.yaml: no format of backend files is installed") as caught:
        dovetail.compile(model, "gpu-fp16", plugins=plugins)
    assert "pip install dovetail-schemas" in caught.value.hint
    assert "no format" in {info.name: info.error for info in dovetail.backends(plugins)}["host"]
    assert "acme_code" not in sys.modules


def test_a_file_that_no_format_reads(cli_check, tmp_path):
    (tmp_path / "npu.toml").write_text("backend = 'npu'")
    code, err = cli_check(tmp_path / "npu.toml")
    assert code == 1
    assert "npu.toml: no format of backend files reads it\n  its name must end in one of .backend.yaml" in err


@pytest.fixture
def cli_check(capsys):
    from dovetail.cli.main import main

    def run(path):
        return main(["check", str(path)]), capsys.readouterr().err

    return run


def test_a_file_that_is_laid_over_another_is_listed_with_its_device_and_engines(install):
    file = "backend: acme-lite\nextends: cpu-bf16\n"
    install("dovetail-acme", {"acme": "acme_lite"}, {"acme_lite/__init__.py": "", "acme_lite/lite.backend.yaml": file})
    listed = {info.name: info for info in dovetail.backends(load_plugins())}
    below, lite = listed["cpu-bf16"], listed["acme-lite"]
    assert (lite.needs, lite.error) == (below.needs, "") and lite.needs
    assert [engine[0] for engine in lite.engines] == [engine[0] for engine in below.engines]
