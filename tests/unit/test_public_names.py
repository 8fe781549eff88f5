"""What distributions use of each other: backends and examples the public names alone, which one page lists."""

import ast
import re
from pathlib import Path

import pytest
from dovetail.lazy_imports import stub_imports

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "schemas", *ROOT.glob("plugins/*"), *ROOT.glob("backends/*")]
STUBS = {stub.parent.name: stub for folder in FOLDERS for stub in folder.glob("src/*/__init__.pyi")}
PAGE = ROOT / "docs" / "reference" / "public_names.md"
PACKAGES = {
    "dovetail_placement.search", "dovetail_transforms.decompositions", "dovetail_transforms.lowering",
    "dovetail_transforms.rewriting",
}  # fmt: skip
"""Packages below those of distributions whose names are public, too."""
EXAMPLES = "dovetail_acme", "dovetail_example"


def imports(text, own=""):
    """The modules of other distributions that a source imports from, each with the names."""
    for node in ast.walk(ast.parse(text)):
        module = node.module or "" if isinstance(node, ast.ImportFrom) and node.level == 0 else ""
        if module.startswith("dovetail_") and not module.startswith(EXAMPLES) and module.partition(".")[0] != own:
            yield module, {alias.name for alias in node.names}


def hidden(text, own=""):
    """What a source imports from other distributions although it is not public."""
    for module, names in imports(text, own):
        if module not in PACKAGES:
            public = stub_imports(STUBS[module]) if module in STUBS else {}
            yield from (f"{module}.{name}" for name in sorted(names - public.keys()))


def test_hidden_names_are_found():
    text = "from dovetail_onnx import open_text, nothing\nfrom dovetail_onnx.opening import open_text\nimport dovetail"
    assert list(hidden(text)) == ["dovetail_onnx.nothing", "dovetail_onnx.opening.open_text"]
    assert not list(hidden(text, "dovetail_onnx"))


USERS = [*ROOT.glob("backends/*/src/*"), *ROOT.glob("tests/example_*/src/*")]


@pytest.mark.parametrize("folder", USERS, ids=lambda folder: folder.name)
def test_backends_use_public_names(folder):
    sources = folder.rglob("*.py")
    assert [(path.name, name) for path in sources for name in hidden(path.read_text("utf-8"), folder.name)] == []


def test_what_new_backend_writes_uses_public_names():
    templates = [*ROOT.glob("plugins/testing/src/dovetail_testing/kit/templates/*.py.txt")]
    assert templates
    for template in templates:
        text = re.sub(r"@(\w+)@", r"\1", template.read_text("utf-8"))
        assert list(hidden(text)) == [], template.name


def test_pages_for_plugin_authors_use_public_names():
    pages = [ROOT / "docs" / "plugins.md", *ROOT.glob("docs/kinds/*.md"), *ROOT.glob("docs/guides/*.md")]
    for page in [*pages, *ROOT.glob("docs/tutorials/*.md")]:
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            assert list(hidden(block)) == [], page.name


def test_the_page_lists_every_public_name():
    sections = re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    listed = {package: set(re.findall(r"^\| `(\w+)` \| \S", text, re.MULTILINE)) for package, text in sections}
    assert listed == {package: set(stub_imports(stub)) for package, stub in STUBS.items()}
