"""`configure_pipeline`: once for a compilation, with all of its passes; and what is printed may be any of these."""

import sys

import dovetail
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.passes import Pass, Pipeline
from dovetail.plugin import load_plugins

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[1,4] x) => (float[1,4] y) { [first] a = Sigmoid (x)  [second] y = Sigmoid (a) }"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    return "m.onnx"


@pytest.fixture
def configured(install, plugin):
    def put(body):
        install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": plugin(configure_pipeline=body)})
        plugins = load_plugins(strict=True)
        return plugins, sys.modules["acme_plugin"].seen

    return put


def test_once_however_often_a_compilation_decides(configured, model):
    plugins, seen = configured("seen.append([pass_.name for pass_ in pipeline.passes()])")
    dovetail.compile(model, "cpu-bf16", plugins=plugins)
    assert len(seen) == 1
    assert seen[0].index("normalize") < seen[0].index("place") < seen[0].index("load")
    dovetail.plan(model, "cpu-bf16", plugins=plugins)
    assert len(seen) == 2


class Marked(Pass):
    name = "marked"

    def run(self, model, ctx):
        return False


class Before(Pass):
    """A pass of the stage `place`."""

    name = "before"
    stage = "place"

    def run(self, model, ctx):
        return False


class After(Pass):
    """A pass of the stage `calibrate`."""

    name = "after"
    stage = "calibrate"

    def run(self, model, ctx):
        return False


def test_parts_of_a_pipeline():
    groups = [("place", "type"), ("calibrate",)]

    def cut(change):
        pipeline = Pipeline([Before(), After()])
        change(pipeline)
        return [[step.name for step in part] for part in pipeline.parts(groups)]

    assert cut(lambda pipeline: None) == [["before"], ["after"]]
    assert cut(lambda pipeline: pipeline.insert_after("before", Marked())) == [["before", "marked"], ["after"]]
    assert cut(lambda pipeline: pipeline.insert_before("after", Marked())) == [["before"], ["marked", "after"]]
    assert cut(lambda pipeline: pipeline.insert_before("before", Marked())) == [["marked", "before"], ["after"]]
    assert cut(lambda pipeline: pipeline.steps.reverse()) == [[], ["after", "before"]]


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("option", ["--print-after", "--print-before"])
@pytest.mark.parametrize("name", ["normalize", "place", "assign-types", "join", "load"])
def test_every_pass_of_a_compilation_may_be_printed(model, option, name, capsys):
    assert main(["compile", model, "--backend", "cpu-bf16", option, name]) == 0
    assert capsys.readouterr().err.count(f"----- {option.removeprefix('--print-')} {name}") >= 1


def test_a_name_of_no_pass_is_an_error_before_anything_runs(model, capsys):
    assert main(["compile", model, "--backend", "cpu-bf16", "--print-after", "plaze"]) == 2
    assert "the pipeline has no pass 'plaze' (did you mean 'place'?)" in capsys.readouterr().err


def test_the_pipeline_that_help_shows_exists(model, capsys):
    assert main(["opt", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    shown = text.split("for example: '")[1].split("'")[0].replace(" ", "")
    assert main(["opt", model, "-p", shown]) == 0
