"""What an emitter compiled, later compilations take from the user's cache, unless what it is made of changed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import dovetail
import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from dovetail.cli.main import main
from dovetail.plugin import (
    Artifact,
    Availability,
    Call,
    Emitter,
    Engine,
    Executed,
    Option,
    Reads,
    RegionModel,
    Session,
    StandIn,
)
from dovetail_onnx import ARTIFACTS
from dovetail_runtime import engine_source

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
IMAGES = {"image": np.load(DIGITS / "test.npz")["image"][:4]}
BACKEND = """
backend: kept-npu
device: npu
opset: 13..21
dynamic: accept
options: {speed: ["1", "2"]}
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops: {"Conv, Relu, MaxPool, Gemm, Flatten": {types: f, policy: lower}}
place: {strategy: autocast}
emit: {engines: [kept, onnxruntime-cpu], artifacts: [kept]}
"""


class Compiler(Emitter):
    """Counts its calls; subclasses are tools of other kinds."""

    calls = []
    tool = "acme 2.1"

    def version(self):
        return self.tool

    def emit(self, region, folder):
        self.calls.append(region.nodes)
        (folder / "deep").mkdir()
        (folder / "deep" / "net.onnx").write_bytes(self.program(region))
        attributes = {"raw": b"\x00\xff", "numbers": [1, 2], "speed": int(region.backend.chosen["speed"])}
        return Artifact(("deep/net.onnx",), StandIn(attributes=attributes), ("a note",), {"cycles": 1200})

    def program(self, region):
        model = region.model.clone()
        model.graph.name = "program"
        return engine_source(RegionModel(model))


class Newer(Compiler):
    tool = "acme 2.2"


class Unknown(Compiler):
    tool = ""


class Numbered(Compiler):
    """Its programs hold the number of their region."""

    def program(self, region):
        return engine_source(RegionModel(region.model))


class Calling(Compiler):
    def emit(self, region, folder):
        super().emit(region, folder)
        return Artifact(("deep/net.onnx",), Call({"level": 3}))


class Runtime(Engine):
    name = "kept"
    loads_artifacts = True
    reads = Reads(21, 10, frozenset({"float32", "float16", "int64"}))

    def available(self):
        return Availability(True)

    def load(self, region, options):
        (node,) = region.model.graph
        assert region.artifact is not None
        if path := node.attributes.get_string("ep_cache_context", ""):
            assert path.split("/")[2] == region.artifact.name, "the path leads into the folder of the region"
        loaded = onnxruntime.InferenceSession(region.artifact / "deep" / "net.onnx")
        return Program(loaded, [value.name for value in node.outputs])


class Program(Session):
    def __init__(self, loaded, outputs):
        self._loaded, self._outputs = loaded, outputs

    def run(self, inputs):
        given = {value.name: array for value, array in zip(self._loaded.get_inputs(), inputs.values())}
        return dict(zip(self._outputs, self._loaded.run(None, given), strict=True))

    def executed(self):
        return {"": Executed("", "not-reported")}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(ARTIFACTS.variable, str(tmp_path / "cache"))
    return ARTIFACTS.open()


@pytest.fixture
def compiled(with_backend):
    """Compiles as a new program does; gives the result and the calls of the emitter."""
    plugins = with_backend(BACKEND)
    plugins.registry.emitter("kept", f"{__name__}:Compiler")
    plugins.registry.engine("kept", f"{__name__}:Runtime")

    def make(emitter=Compiler, backend="kept-npu", model=DIGITS / "digits.onnx", **request):
        plugins.registry.emitter.drop("kept")
        plugins.registry.emitter("kept", f"{__name__}:{emitter.__name__}")
        Compiler.calls.clear()
        return dovetail.compile(model, backend, plugins=plugins, **request), list(Compiler.calls)

    make.plugins = plugins
    return make


def remarks(result):
    return [remark for remark in result.remarks if remark.rule == "artifact-cache"]


@pytest.mark.parametrize("emitter", [Compiler, Numbered, Calling])
def test_a_second_compilation_compiles_nothing(cache, compiled, emitter):
    first, calls = compiled(emitter)
    again, later = compiled(emitter)
    assert len(calls) == 1 and not later
    assert not remarks(first)
    (remark,) = remarks(again)
    assert "taken from the cache" in remark.why and remark.node == calls[0][0]
    node, known = (next(iter(one.model.nodes())) for one in (again, first))
    assert {name: value.value for name, value in node.attributes.items()} == {
        name: value.value for name, value in known.attributes.items()
    }
    np.testing.assert_array_equal(again.run(IMAGES)["probabilities"], first.run(IMAGES)["probabilities"])
    others = [[remark for remark in one.remarks if remark.rule != "artifact-cache"] for one in (first, again)]
    assert others[0] == others[1], "notes and facts of the tool, too"


CHANGES = {
    "the version of the tool": {"emitter": Newer},
    "an option of the backend": {"backend": "kept-npu:speed=2"},
    "a type": {"high": ["conv_2"]},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_is_compiled_again(cache, compiled, change):
    compiled()
    assert compiled(**CHANGES[change])[1]


class Table(Option):
    """Names a file that the tool reads."""

    commands, keywords = ("compile",), ("table",)

    def add_arguments(self, parser):
        pass

    def recorded(self, keywords):
        return {"table": keywords.get("table")}


TABLE = Table()


def test_another_content_of_a_file_that_an_option_names_is_compiled_again(cache, compiled, tmp_path):
    compiled()
    compiled.plugins.registry.option("table", f"{__name__}:TABLE")
    for content, calls in (("one", 1), ("one", 0), ("two", 1)):
        (tmp_path / "table.txt").write_text(content)
        os.utime(tmp_path / "table.txt", (0, 0))
        assert len(compiled(table=str(tmp_path / "table.txt"))[1]) == calls


def test_other_weights_are_compiled_again(cache, compiled):
    compiled()
    model = dovetail.open(DIGITS / "digits.onnx")
    weight = next(node for node in model.graph if node.op_type == "Conv").inputs[1]
    weight.const_value = ir.tensor(weight.const_value.numpy() * 2, name=weight.name)
    model.touch()
    assert compiled(model=model)[1]


def test_options_of_others_change_nothing(cache, compiled):
    compiled()
    assert not compiled(verify=True, data=IMAGES)[1]


def test_a_region_under_another_number_is_the_same(cache, compiled):
    """A node that leaves the backend cuts the region before it in two; what follows keeps its program."""
    compiled(pins=["relu_3=host"])
    result, calls = compiled(pins=["relu_1=host", "relu_3=host"])
    assert any("conv_1" in nodes for nodes in calls)
    assert all("dense_2" not in nodes for nodes in calls)
    result.run(IMAGES)


def test_programs_that_hold_the_number_of_their_region_are_compiled_again(cache, compiled):
    compiled(Numbered, pins=["relu_3=host"])
    _, calls = compiled(Numbered, pins=["relu_1=host", "relu_3=host"])
    assert any("dense_2" in nodes for nodes in calls)


def test_without_a_version_and_with_the_cache_off_nothing_is_kept(cache, compiled, monkeypatch):
    for _ in range(2):
        assert compiled(Unknown)[1]
    assert cache.entries() == []
    monkeypatch.setenv(ARTIFACTS.variable, "off")
    for _ in range(2):
        assert compiled()[1]


@pytest.mark.parametrize("damage", ["file", "cut", "facts", "gone"])
def test_damage_costs_a_compilation(cache, compiled, damage):
    compiled()
    (entry,) = cache.entries()
    (program,) = entry.folder.rglob("net.onnx")
    about = entry.folder / "about.json"
    if damage == "file":
        program.write_bytes(bytes(len(program.read_bytes())))
    elif damage == "cut":
        program.write_bytes(program.read_bytes()[:-1])
    elif damage == "facts":
        told = json.loads(about.read_text())
        about.write_text(json.dumps({**told, "facts": {"artifact": {"files": ["../../x"]}, "files": []}}))
    else:
        shutil.rmtree(program.parent)
    assert compiled()[1]
    assert not compiled()[1], "the damaged one was replaced"


def test_the_least_recently_used_go(cache, compiled, monkeypatch):
    monkeypatch.setenv(f"{ARTIFACTS.variable}_SIZE", "1")
    for speed in "12":
        compiled(backend=f"kept-npu:speed={speed}")
    assert len(cache.entries()) == 1
    assert not compiled(backend="kept-npu:speed=2")[1]


def test_the_command_shows_and_clears_it(cache, compiled, capsys):
    compiled()
    assert main(["cache"]) == 0
    shown = capsys.readouterr().out
    assert "by acme 2.1" in shown and f"{cache.folder}: 1 artifact" in shown
    assert main(["cache", "--clear", "--json"]) == 0
    (kept,) = [one for one in json.loads(capsys.readouterr().out)["caches"] if one["cache"] == "artifacts"]
    assert len(kept["entries"]) == 1 and cache.entries() == []
    assert compiled()[1]


@pytest.mark.slow
def test_programs_at_once_do_not_disturb_each_other(cache, tmp_path):
    """Every process finds a whole entry or none, whoever writes and removes it meanwhile."""
    script = """
import sys
from pathlib import Path
from dovetail_onnx import ARTIFACTS

cache = ARTIFACTS.open()
for number in range(150):
    key = f"{number % 3:064x}"
    def write(folder):
        for name in "ab":
            (folder / name).write_text("x" * 100)
        return {"files": 2}
    cache.store(key, "an entry", write)
    found = cache.find(key)
    if found is not None:
        try:
            texts = [(found[0] / name).read_text() for name in "ab"]
        except FileNotFoundError:
            continue  # removed meanwhile
        assert texts == ["x" * 100] * 2 and found[1] == {"files": 2}
    if number % 7 == 0:
        cache.clear()
"""
    (tmp_path / "script.py").write_text(script)
    size = {f"{ARTIFACTS.variable}_SIZE": "700"}
    command = [sys.executable, str(tmp_path / "script.py")]
    processes = [subprocess.Popen(command, env={**os.environ, **size}, cwd=tmp_path) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert [path for path in cache.folder.iterdir() if path.name.startswith(".")] == []
