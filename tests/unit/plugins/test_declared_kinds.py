"""A distribution may declare kinds of its own; core knows none of them."""

import dovetail
import onnx
import pytest
from dovetail.errors import DovetailError
from dovetail.plugin import PluginWarning, Registry, load_plugins

DECLARING = """
from dovetail.plugin import hookimpl
dovetail_api = 1
dovetail_kinds = {"brick": "code", "wall": "file"}
"""


@pytest.fixture
def declared(install):
    install("walls", {"walls": "brick_walls"}, {"brick_walls.py": DECLARING})


def test_any_plugin_registers_components_of_it(install, declared, plugin):
    """Also one whose name comes first."""
    hooks = plugin(register='registry.brick("red", "acme_bricks:Red")')
    install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": hooks, "acme_bricks.py": "class Red:\n    pass\n"})
    registry = load_plugins(strict=True).registry
    assert registry.brick["red"].__name__ == "Red"
    assert registry.brick.title("red") == "brick 'red' of acme"
    with pytest.raises(DovetailError, match="target 'a:B' of wall 'x' is not of the form 'package:path/to/file.yaml'"):
        registry.wall("x", "a:B")


def test_without_the_distribution_the_kind_is_unknown_and_its_table_empty(install, declared):
    registry = load_plugins(block=["walls"]).registry
    assert len(registry.table("brick")) == 0
    with pytest.raises(DovetailError, match="there is no kind 'brick'"):
        registry.brick("red", "acme_bricks:Red")


@pytest.mark.parametrize(("kind", "form"), [("engine", "code"), ("tables", "code"), ("a b", "code"), ("brick", "text")])
def test_names_that_are_taken_and_other_forms_are_errors(kind, form):
    with pytest.raises(DovetailError, match=f"the kind '{kind}' of the form '{form}' cannot be declared"):
        Registry().declare(kind, form)


def test_a_plugin_with_such_a_declaration_is_at_fault(install):
    text = DECLARING.replace('"brick"', '"engine"')
    install("walls", {"walls": "brick_walls"}, {"brick_walls.py": text})
    with pytest.warns(PluginWarning, match="walls.*the kind 'engine' of the form 'code' cannot be declared"):
        assert load_plugins().broken


MODEL = """<ir_version: 8, opset_import: ["": 18]> g (float[4] x) => (float[4] y) { y = Relu (x) }"""
NPU = """
backend: npu
device: npu
opset: 13..26
ops: {Relu: {}}
place: {strategy: autocast}
emit: {engines: [kernels]}
"""


@pytest.fixture
def without_kernels(monkeypatch):
    monkeypatch.setenv("DOVETAIL_PLUGINS", ",".join(r.name for r in load_plugins().plugins if r.name != "kernels"))


def test_without_dovetail_kernels_everything_else_works(without_kernels, with_backend):
    plugins = with_backend()
    compiled = dovetail.compile(onnx.parser.parse_model(MODEL), "cpu-bf16", plugins=plugins)
    assert not [remark for remark in compiled.remarks if "kernels" in remark.why]


def test_a_backend_that_consists_of_kernels_says_what_to_install(without_kernels, with_backend):
    with pytest.raises(DovetailError, match="backend 'npu' has no engine here .*`pip install dovetail-kernels`"):
        dovetail.compile(onnx.parser.parse_model(MODEL), "npu", plugins=with_backend(NPU))
