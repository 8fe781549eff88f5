"""`pytest --changed`: the tests that a change may affect, in a small repository with plugins and a backend."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.changed import Repository

PLUGIN = """
def register(registry):
    registry.pass_("first", "dovetail_alpha.first:First")
    registry.command("show", "dovetail_alpha.show:SHOW")
"""
BACKEND = """
def register(registry):
    registry.backend("acme-npu", "dovetail_acme:acme.yaml")
    registry.engine("acme-engine", "dovetail_acme.engine:Engine")
"""
FIXTURES = """
import pytest

pytest_plugins = ["tests.changed"]

@pytest.fixture
def result():
    import dovetail
    return dovetail.compile
"""
FILES = {
    ".gitignore": "__pycache__\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\ntestpaths = ['tests']\n",
    "core/src/dovetail/__init__.py": "__getattr__ = None\n",
    "core/src/dovetail/__init__.pyi": "from dovetail.api import compile as compile\n",
    "core/src/dovetail/api.py": "def compile():\n    from dovetail import running\n",
    "core/src/dovetail/running.py": "",
    "core/src/dovetail/text.py": "",
    "plugins/alpha/src/dovetail_alpha/__init__.py": PLUGIN,
    "plugins/alpha/src/dovetail_alpha/first.py": "def run():\n    from .tables import lookup\n",
    "plugins/alpha/src/dovetail_alpha/tables/__init__.py": "",
    "plugins/alpha/src/dovetail_alpha/tables/lookup.py": "",
    "plugins/alpha/src/dovetail_alpha/tables/rows.yaml": "",
    "plugins/alpha/src/dovetail_alpha/show.py": "",
    "plugins/alpha/src/dovetail_alpha/lone.py": "LAZY = 'dovetail_alpha.show:SHOW'\n",
    "backends/acme/src/dovetail_acme/__init__.py": BACKEND,
    "backends/acme/src/dovetail_acme/acme.yaml": "",
    "backends/acme/src/dovetail_acme/engine.py": "",
    "docs/page.md": "",
    "tests/conftest.py": FIXTURES,
    "tests/test_first.py": "def test_it():\n    import dovetail_alpha.first\n",
    "tests/test_lone.py": "def test_it():\n    from dovetail_alpha import lone\n",
    "tests/test_text.py": "import dovetail.text\ndef test_it(): pass\n",
    "tests/test_page.py": "PAGE = 'docs/page.md'\ndef test_it(): pass\n",
    "tests/e2e/__init__.py": "",
    "tests/e2e/nets.py": "BACKEND = 'acme-npu:option=1'\n",
    "tests/e2e/graphs/one.onnxtxt": "",
    "tests/e2e/test_acme.py": "from . import nets\ndef test_it(result): pass\n",
    "tests/e2e/test_show.py": "def test_it(result):\n    'dovetail show out'\n",
    "tests/e2e/test_all.py": "def test_it(result): return result.registry\n",
}
LOADING = {"acme", "show", "all"}
EVERY = {"first", "lone", "text", "page"} | LOADING


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copy(Path(__file__).parents[1] / "changed.py", tmp_path / "tests")
    return tmp_path


def names(paths):
    return {Path(path).stem.removeprefix("test_") for path in paths}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("core/src/dovetail/text.py", {"text"}),
        ("core/src/dovetail/running.py", EVERY),  # a fixture imports it, which any test may ask for
        ("plugins/alpha/src/dovetail_alpha/tables/lookup.py", {"first"} | LOADING),
        ("plugins/alpha/src/dovetail_alpha/tables/rows.yaml", {"first"} | LOADING),
        ("plugins/alpha/src/dovetail_alpha/tables/deleted.py", {"first"} | LOADING),
        ("plugins/alpha/src/dovetail_alpha/show.py", {"lone", "show", "all"}),
        ("backends/acme/src/dovetail_acme/engine.py", {"acme", "all"}),
        ("backends/acme/src/dovetail_acme/acme.yaml", {"acme", "all"}),
        ("docs/page.md", {"page"}),
        ("tests/test_text.py", {"text"}),
        ("tests/e2e/nets.py", {"acme"}),
        ("tests/e2e/graphs/one.onnxtxt", LOADING),
        ("tests/conftest.py", EVERY),
        ("pyproject.toml", EVERY),
    ],
)
def test_a_change_affects_what_imports_loads_or_names_it(root, changed, expected):
    assert names(Repository(root).affected({root / changed})) == expected


def test_the_option_runs_what_differs_from_a_commit(root):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=root, check=True)

    def collected(*words):
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *words]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return names(line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line), done.stderr

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "all")
    assert collected()[0] == EVERY
    found, printed = collected("--changed")
    assert not found and "no test depends on" in printed
    (root / "docs/page.md").write_text("more")
    (root / "tests/test_new.py").write_text("def test_it(): pass")
    assert collected("--changed")[0] == {"page", "new"}
    git("add", ".")
    git("commit", "-q", "-m", "more")
    (root / "core/src/dovetail/text.py").write_text("more = 1")
    assert collected("tests", "--changed")[0] == {"text"}
    assert collected("--changed=HEAD~1")[0] == {"page", "new", "text"}
    assert collected("tests/e2e", "--changed")[0] == set()
