"""A hook that is not documented or not tested fails here."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from dovetail import plugin
from dovetail.cli import common
from dovetail.plugin import Registry, hookspecs

ROOT = Path(__file__).parents[3]
HOOKS = {
    name: function
    for name, function in vars(hookspecs).items()
    if inspect.isfunction(function) and hasattr(function, "dovetail_spec")
}


def test_the_contract_is_five_hooks_in_a_short_file():
    assert set(HOOKS) == {"register", "configure_pipeline", "before_pass", "after_pass", "pass_failed"}
    assert len(inspect.getsource(hookspecs).splitlines()) < 80


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_has_a_heading_with_its_signature(name):
    signature = f"{name}({', '.join(inspect.signature(HOOKS[name]).parameters)})"
    assert f"### `{signature}`\n" in (ROOT / "docs/plugins.md").read_text()


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_has_a_test(name):
    assert f"def test_hook_{name}(" in (ROOT / "tests/unit/plugins/test_hooks.py").read_text()


@pytest.mark.parametrize("name", HOOKS)
def test_every_argument_is_described(name):
    text = inspect.getdoc(HOOKS[name])
    assert all(f"{argument}: " in text for argument in inspect.signature(HOOKS[name]).parameters)


@pytest.mark.parametrize("attribute", [name for name, table in vars(Registry()).items() if name != "owner"])
def test_every_kind_is_documented(attribute):
    text = (ROOT / "docs/plugins.md").read_text()
    assert f"`registry.{attribute}`" in text or f"`.{attribute}`" in text


@pytest.mark.parametrize("attribute", [name for name in vars(Registry()) if name != "owner"])
def test_every_kind_is_read(attribute):
    """What plugins register and nobody looks for would be a promise that is not kept."""
    sources = [
        path for member in ("core", "schemas", "plugins", "backends") for path in (ROOT / member).rglob("src/**/*.py")
    ]
    uses = rf"registry\.{attribute}\b(?!\()"
    readers = [path for path in sources if path.name != "registry.py" and re.search(uses, path.read_text())]
    assert readers, f"nothing reads registry.{attribute}"


@pytest.mark.parametrize("name", common.__all__)
def test_what_commands_share_is_documented(name):
    text = (ROOT / "docs/plugins.md").read_text()
    assert re.search(rf"`{name}[`(]", text), f"docs/plugins.md does not mention {name}"


def test_the_one_import_of_a_plugin_imports_neither_onnx_nor_numpy():
    names = ", ".join(plugin.__all__)
    code = f"from dovetail.plugin import {names}; import sys; print({{'onnx', 'onnx_ir', 'numpy'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
