"""What an installation holds, and who imports whom."""

import ast
import importlib.util
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEMBERS = sorted(path.parent for path in ROOT.glob("*/pyproject.toml")) + sorted(
    path.parent for group in ("plugins", "backends") for path in (ROOT / group).glob("*/pyproject.toml")
)
NAMES = {"yaml": "pyyaml", "google": "protobuf", "dovetail": "dovetail-core"}


@pytest.mark.parametrize("name", ["core", "plugins", "backends", "schemas", "tests", "bench", "examples"])
def test_folders_are_not_importable(name, tmp_path):
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is not None)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path).returncode == 0


@pytest.mark.slow
def test_import_contracts_hold():
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_member_is_part_of_the_whole():
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = {
        line.partition("{root:uri}/")[2]
        for line in whole["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]
    }
    folders = {str(member.relative_to(ROOT)) for member in MEMBERS}
    assert named == folders
    edits = (ROOT / "requirements-dev.txt").read_text().split()
    assert {line.removeprefix("./") for line in edits if line.startswith("./")} == folders
    linted = set(whole["tool"]["importlinter"]["root_packages"])
    assert linted == {package.name for member in MEMBERS for package in (member / "src").iterdir() if package.is_dir()}


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("member", MEMBERS, ids=[str(member.relative_to(ROOT)) for member in MEMBERS])
def test_members_declare_what_they_import(member):
    project = tomllib.loads((member / "pyproject.toml").read_text())["project"]
    optional = [text for texts in project.get("optional-dependencies", {}).values() for text in texts]
    declared = {_name(requirement) for requirement in (*project["dependencies"], *optional)} | {project["name"]}
    distributions = packages_distributions()
    imported = {}
    for path in (member / "src").rglob("*.py"):
        for module in _imports(path):
            if module not in sys.stdlib_module_names:
                names = {NAMES.get(module, name.lower()) for name in distributions.get(module, [module])}
                imported.setdefault(frozenset(names), path.name)
    missing = {next(iter(names)): file for names, file in imported.items() if not _known(names, declared)}
    assert missing == {}


def _known(names, declared):
    return bool({name.replace("_", "-") for name in names} & declared)


def _name(requirement):
    for character in "<>=!~ @[;":
        requirement = requirement.partition(character)[0]
    return requirement.lower().replace("_", "-")


def _imports(path):
    """Names of the packages that a file imports absolutely."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("arguments", [["backends"], ["--help"], ["compile", "--help"]], ids=" ".join)
def test_a_listing_imports_nothing_heavy(arguments):
    heavy = ("onnx", "onnx_ir", "onnxruntime", "openvino", "numpy")
    code = (
        f"import sys; from dovetail.cli.main import main; main({arguments!r});"
        f"sys.exit(' '.join(name for name in {heavy!r} if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_program_is_installed():
    assert importlib.util.find_spec("dovetail") is not None
    program = Path(sys.executable).with_name("dovetail")
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("dovetail ")
