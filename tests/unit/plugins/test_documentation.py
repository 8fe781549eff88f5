"""A hook, a kind or a name of `dovetail.plugin` that is not documented, or has no tested example, fails here."""

import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from dovetail import plugin
from dovetail.cli import common
from dovetail.plugin import hookspecs, load_plugins
from dovetail_commands import instrumentation, request, terminal

ROOT = Path(__file__).parents[3]
KINDS = sorted(name for name in vars(load_plugins().registry) if name != "owner" and not name.startswith("_"))
SECTIONS = [
    section for page in sorted((ROOT / "docs/kinds").glob("*.md")) for section in page.read_text().split("\n## ")[1:]
]
TOOLS = (ROOT / "tests/example_tools/src/dovetail_example_tools/__init__.py").read_text()
HOOKS = {
    name: function
    for name, function in vars(hookspecs).items()
    if inspect.isfunction(function) and hasattr(function, "dovetail_spec")
}


def test_the_contract_is_seven_hooks_in_a_short_file():
    around_passes = {"configure_pipeline", "before_pass", "after_pass", "pass_failed"}
    assert set(HOOKS) == {"register", "before_opening", "opened", *around_passes}
    assert len(inspect.getsource(hookspecs).splitlines()) < 100


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


def section_of(kind):
    """The section of the pages on kinds whose heading ends in the name of the table."""
    found = [section for section in SECTIONS if section.partition("\n")[0].endswith(f": `registry.{kind}`")]
    assert len(found) == 1, f"{len(found)} headings in docs/kinds name registry.{kind}"
    return found[0]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_heading_with_a_tested_example(kind):
    """The example registers something of the kind, or uses what `tests/example_tools` registers."""
    examples = re.findall(r"^<!-- test -->\n```\w+\n(.*?)^```$", section_of(kind), re.MULTILINE | re.DOTALL)
    brought = re.findall(rf'registry\.{kind}\("([^"]+)"', TOOLS)
    uses = [rf"registry\.{kind}\(", *(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in brought)]
    assert any(re.search(use, example) for use in uses for example in examples)


@pytest.mark.parametrize("kind", KINDS)
def test_the_plugin_page_links_every_kind(kind):
    heading = section_of(kind).partition("\n")[0]
    anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
    rows = [row for row in (ROOT / "docs/plugins.md").read_text().splitlines() if f"| `registry.{kind}` |" in row]
    assert len(rows) == 1
    assert f"#{anchor})" in rows[0]


@pytest.mark.parametrize("name", plugin.__all__)
def test_every_name_of_the_one_import_is_documented(name):
    pages = [ROOT / "docs/plugins.md", *(ROOT / "docs/kinds").glob("*.md"), *(ROOT / "docs/guides").glob("*.md")]
    code = [part for page in pages for part in re.findall(r"```.*?```|`[^`]+`", page.read_text(), re.DOTALL)]
    assert any(re.search(rf"\b{name}\b", part) for part in code), f"no page mentions {name}"


@pytest.mark.parametrize("attribute", KINDS)
def test_every_kind_is_read(attribute):
    """What plugins register and nobody looks for would be a promise that is not kept."""
    sources = [
        path for member in ("core", "schemas", "plugins", "backends") for path in (ROOT / member).rglob("src/**/*.py")
    ]
    uses = rf"registry\.{attribute}\b(?!\()"
    readers = [path for path in sources if path.name != "registry.py" and re.search(uses, path.read_text())]
    assert readers, f"nothing reads registry.{attribute}"


def test_the_page_lists_every_distribution_of_the_house():
    files = [ROOT / "core/pyproject.toml", ROOT / "schemas/pyproject.toml"]
    files += [*ROOT.glob("plugins/*/pyproject.toml"), *ROOT.glob("backends/*/pyproject.toml")]
    names = {tomllib.loads(file.read_text())["project"]["name"] for file in files}
    table = (ROOT / "docs/distributions.md").read_text().partition("## Names")[0]
    assert names == set(re.findall(r"`(dovetail-[\w-]+)`", table))


@pytest.mark.parametrize(
    "name", [name for module in (common, request, instrumentation, terminal) for name in module.__all__]
)
def test_what_commands_share_is_documented(name):
    text = (ROOT / "docs/kinds/commands.md").read_text()
    assert re.search(rf"`{name}[`(]", text), f"docs/kinds/commands.md does not mention {name}"


def test_the_one_import_of_a_plugin_imports_neither_onnx_nor_numpy():
    names = ", ".join(plugin.__all__)
    code = f"from dovetail.plugin import {names}; import sys; print({{'onnx', 'onnx_ir', 'numpy'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
