"""Results and plans go to the store for their path, and errors name it."""

from pathlib import Path

import dovetail
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail.planning import Plan
from dovetail.plugin import PluginWarning

MODEL = str(Path(__file__).parents[3] / "examples/digits/digits.onnx")
STORE = """
from types import SimpleNamespace

from dovetail.plugin.compiled import CompiledModel
from dovetail.errors import DovetailError
from dovetail.planning.plan import Plan
from dovetail.plugin import Recognition, ResultStore

ROW = {{'operator': 'Any', 'backend': 'host', 'precision': '', 'nodes': 1}}
shelf, marked = {{}}, []

class Shelf(ResultStore):
    suffixes = {suffixes}

    def save(self, compiled, path, *, external=None, progress=None):
        {save}
        shelf[path.name] = compiled
        path.write_text("on the shelf")

    def load(self, path, plugins):
        compiled = shelf[path.name]
        saved = SimpleNamespace(placements=[ROW], coverage="on the shelf")
        return CompiledModel(compiled.model, compiled.plan, compiled.backends, saved=saved, registry=plugins.registry)

    def recognize(self, job):
        return Recognition(shelf.get("known"), marked.append)

    {more}
"""


LACKS_LOAD = """
from dovetail.plugin import ResultStore

class Shelf(ResultStore):
    suffixes = ('.shelf',)
    save = print
"""


@pytest.fixture
def shelf(install, plugin, tmp_path, monkeypatch):
    """`shelf(...)`: install a store for `.shelf` files, and give its module."""
    monkeypatch.chdir(tmp_path)

    def make(suffixes='(".shelf",)', save="pass", more="pass", name="shelf", distribution="acme", text=STORE):
        module = f"{distribution}_shelf"
        text = text.format(suffixes=suffixes, save=save, more=more)
        hooks = plugin(register=f"registry.result_store({name!r}, '{module}:Shelf')")
        install(distribution, {distribution: f"{module}_hooks"}, {f"{module}.py": text, f"{module}_hooks.py": hooks})
        return lambda: __import__(module)

    return make


def test_the_suffix_decides(shelf):
    shelf()
    compiled = dovetail.compile(MODEL, "host")
    compiled.save("a.shelf")
    assert Path("a.shelf").read_text() == "on the shelf"
    compiled.save("folder")
    assert Path("folder/model.onnx").is_file()
    assert dovetail.load("folder").summary() == compiled.summary()


def test_what_a_store_knows_needs_no_graph(shelf):
    shelf()
    dovetail.compile(MODEL, "host").save("a.shelf")
    loaded = dovetail.load("a.shelf")
    assert loaded.placement_table() == [{"operator": "Any", "backend": "host", "precision": "", "nodes": 1}]
    assert loaded.summary() == "on the shelf"
    loaded.model.touch()
    assert loaded.summary().startswith("host 13")


def test_a_result_goes_from_one_store_to_another(shelf):
    shelf()
    compiled = dovetail.compile(MODEL, "host")
    compiled.save("a.shelf")
    dovetail.load("a.shelf").save("folder")
    assert [node.name for node in dovetail.load("folder").plan.nodes] == [node.name for node in compiled.plan.nodes]


def test_every_store_is_asked_to_recognize_a_request_and_marks_what_is_compiled(shelf):
    module = shelf()
    first = dovetail.compile(MODEL, "host")
    assert module().marked == [first]
    module().shelf["known"] = first
    assert dovetail.compile(MODEL, "host") is first
    assert module().marked == [first]


def test_a_store_may_refuse_a_path_before_anything_is_compiled(shelf, capsys):
    shelf(more="def check(self, path): raise DovetailError(f'{path} is too small')")
    assert main(["compile", "nowhere.onnx", "--backend", "host", "-o", "a.shelf"]) == 1
    assert "a.shelf is too small" in capsys.readouterr().err


def test_plans_have_stores_too(shelf):
    shelf(more="def load_plan(self, path): return Plan(summary={'from': path.name})")
    assert Plan.load("a.shelf").summary == {"from": "a.shelf"}
    Plan().save("b.shelf")  # this store writes none, so it is a plan file as any other
    assert Path("b.shelf").read_text().startswith("version:")


def test_what_a_store_raises_names_it(shelf):
    shelf(save="1 / 0")
    with pytest.raises(DovetailError, match="result store 'shelf' of acme failed: ZeroDivisionError"):
        dovetail.compile(MODEL, "host").save("a.shelf")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"suffixes": "('shelf',)"}, "result store 'shelf' of acme: the suffix 'shelf' does not start with a dot"),
        ({"text": LACKS_LOAD}, "'shelf' of acme has no load"),
        ({"suffixes": "1 / 0"}, "cannot be loaded from acme_shelf:Shelf: ZeroDivisionError"),
    ],
)
def test_a_store_at_fault_is_left_out_and_the_others_save(shelf, changes, message):
    shelf(**changes)
    with pytest.warns(PluginWarning) as caught:
        Plan().save("plan.yaml")
    assert message in str(caught.pop(PluginWarning).message)  # not one of what is collected meanwhile
    assert Path("plan.yaml").is_file()


def test_two_stores_for_one_suffix(shelf):
    shelf(suffixes="('',)")
    with pytest.raises(DovetailError, match="'folder' of dovetail-onnx and .* 'shelf' of acme both load"):
        dovetail.load("out")
