"""Build, check and number the distributions of this repository; they have one version together.

    python .ci/packages.py wheels dist        builds a wheel of each, with dovetail-all, which pins the others
    python .ci/packages.py check dist         builds them, runs `twine check`, installs them elsewhere
    python .ci/packages.py version 0.2.0      writes the version everywhere, and opens its section in CHANGELOG.md

`wheels` needs hatchling, `check` also twine; both are in `.[test]`. The file of dovetail-all names its members by their
folders, so that `pip install .` takes them from here; a wheel must not do that, and names their version instead.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHANGES = "CHANGELOG.md"
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)((a|b|rc)\d+)?")
_OWN = re.compile(r'^(\s*"dovetail[\w-]*)>=[\d.]+,<[\d.]+(",?)$', re.MULTILINE)
_LINE = re.compile(r'^version = "[^"]*"$', re.MULTILINE)
_CORE = re.compile(r'^__version__ = "[^"]*"$', re.MULTILINE)
_BY_FOLDER = re.compile(r'^(\s*"dovetail[\w-]*) @ \{root:uri\}/[\w/]+(",?)$', re.MULTILINE)
_HOOK = re.compile(
    r"^\[tool\.hatch\.metadata\.hooks\.custom\]\n.+\n(?P<members>dependencies = \[\n(.+\n)+?\]\n)\n", re.MULTILINE
)
_DYNAMIC = re.compile(r'^dynamic = \["dependencies"\].*\n', re.MULTILINE)
_HEADING = re.compile(r"^## (\S+)", re.MULTILINE)
_SMOKE = """
import dovetail, numpy, sys
assert not dovetail.__file__.startswith(sys.argv[1]), dovetail.__file__
from dovetail.plugin import load_plugins
assert not load_plugins(strict=True).broken
compiled = dovetail.compile(sys.argv[2], "cpu-bf16")
print(compiled.summary(), dovetail.InferenceSession(sys.argv[2]).get_providers())
"""


class PackageError(Exception):
    """The distributions do not fit together, or cannot be built; the text says which and why."""


def members(root: Path = ROOT) -> list[Path]:
    """Return the folders of all distributions but dovetail-all, in the order of their names."""
    found = [root / "core", root / "schemas"]
    found += [path.parent for group in ("plugins", "backends") for path in (root / group).glob("*/pyproject.toml")]
    return sorted(found)


def problems(root: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong with the versions: those of all files, of requirements among them, and of the changelog."""
    wanted = project_of(root)["version"]
    for folder in members(root):
        project = project_of(folder)
        where = folder.relative_to(root) / "pyproject.toml"
        if project["version"] != wanted:
            yield f"{where} has version {project['version']}, dovetail-all has {wanted}"
        for text in project["dependencies"]:
            if text.startswith("dovetail") and not text.endswith(compatible(wanted)):
                yield f"{where} requires {text}, which is not {compatible(wanted)}"
    if f'__version__ = "{wanted}"' not in (root / "core/src/dovetail/__init__.py").read_text():
        yield f"core/src/dovetail/__init__.py has another __version__ than {wanted}"
    headings = _HEADING.findall((root / CHANGES).read_text())
    if wanted not in headings:
        yield f"{CHANGES} has no section '## {wanted}'"


def project_of(folder: Path) -> dict:
    """Return the table `project` of a distribution."""
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def compatible(version: str) -> str:
    """Return the versions that work with one: `>=0.1,<0.2` with 0.1.3, `>=1.2,<2` with 1.2.0."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return f">={major}.{minor},<{f'0.{minor + 1}' if major == 0 else major + 1}"


def set_version(version: str, root: Path = ROOT) -> list[Path]:
    """Write a version into every file that has one, and return the files that changed.

    Raises:
        PackageError: It is no version, or a file has no place for it.
    """
    if not VERSION.fullmatch(version):
        raise PackageError(f"{version!r} is no version: write MAJOR.MINOR.PATCH, and rc1 or the like behind it")
    changed = []
    for folder in [root, *members(root)]:
        path = folder / "pyproject.toml"
        text, number = _LINE.subn(f'version = "{version}"', path.read_text(), count=1)
        if not number:
            raise PackageError(f"{path} has no line 'version = ...'")
        text = _OWN.sub(lambda found: f"{found[1]}{compatible(version)}{found[2]}", text)
        changed += _written(path, text)
    core = root / "core/src/dovetail/__init__.py"
    changed += _written(core, _CORE.sub(f'__version__ = "{version}"', core.read_text()))
    changes = root / CHANGES
    text = changes.read_text()
    if version not in _HEADING.findall(text):
        place = _HEADING.search(text)
        at = place.start() if place else len(text)
        changed += _written(changes, f"{text[:at]}## {version}\n\n{text[at:]}")
    return changed


def released(root: Path = ROOT) -> str:
    """Return the `pyproject.toml` of dovetail-all as its wheel has it: members by version, not by folder."""
    version = project_of(root)["version"]
    text = (root / "pyproject.toml").read_text()
    hook = _HOOK.search(text)
    if hook is None:
        raise PackageError("pyproject.toml has no hook that lists the members")
    members = _BY_FOLDER.sub(rf"\g<1>=={version}\g<2>", hook["members"])
    text = _DYNAMIC.sub(lambda _: members, text.replace(hook[0], ""))
    if direct := [one for one in tomllib.loads(text)["project"]["dependencies"] if "@" in one]:
        raise PackageError(f"pyproject.toml: {direct[0]} names a place, which a wheel must not")
    return text


def build(output: Path, root: Path = ROOT) -> list[Path]:
    """Build the wheels of all distributions into a folder, and return them.

    Raises:
        PackageError: The versions do not fit together, the folder holds other wheels, or a build fails.
    """
    if wrong := list(problems(root)):
        raise PackageError("\n".join(wrong))
    output.mkdir(parents=True, exist_ok=True)
    if others := sorted(output.glob("*.whl")):
        raise PackageError(f"{output} holds wheels already, such as {others[0].name}: name an empty folder")
    with tempfile.TemporaryDirectory(prefix="dovetail-all-") as folder:
        whole = Path(folder)
        (whole / "pyproject.toml").write_text(released(root))
        shutil.copy(root / "README.md", whole)
        paths = list(map(str, [*members(root), whole]))
        _run(
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", output, *paths]
        )
    wheels = sorted(output.glob("*.whl"))
    if len(wheels) != len(paths):
        raise PackageError(f"{len(paths)} distributions gave {len(wheels)} wheels in {output}")
    for wheel in wheels:
        if direct := [line for line in requirements_of(wheel) if " @ " in line]:
            raise PackageError(f"{wheel.name} requires {direct[0]}, a place that others do not have")
    return wheels


def requirements_of(wheel: Path) -> list[str]:
    """Return what a wheel requires."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    return [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]


def check(output: Path, third_party: Sequence[Path] = ()) -> None:
    """Build the wheels, check their metadata, install dovetail-all from them alone, and compile a model with it.

    Args:
        output: The folder for the wheels.
        third_party: Folders with the wheels of everything else. Without any, what is installed here serves.

    Raises:
        PackageError: A step fails.
    """
    wheels = build(output)
    _run([sys.executable, "-m", "twine", "check", "--strict", *wheels])
    with tempfile.TemporaryDirectory(prefix="dovetail-wheels-") as folder:
        place = Path(folder)
        venv.create(place / "venv", with_pip=True)
        python = place / "venv/bin/python"
        links = [word for path in (output, *third_party) for word in ("--find-links", str(path.resolve()))]
        offline = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", *links]
        if third_party:
            _run([*offline, "dovetail-all"], place)
        else:
            site = next((place / "venv/lib").glob("python*/site-packages"))
            # Behind the packages of the new environment, which therefore come first.
            (site / "others.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("-packages")))
            names = [project_of(member)["name"] for member in members()]
            _run([*offline, "--no-deps", "--ignore-installed", "dovetail-all", *names], place)
        shutil.copy(ROOT / "examples/digits/digits.onnx", place)
        (place / "smoke.py").write_text(_SMOKE)
        _run([python, "smoke.py", str(ROOT), "digits.onnx"], place)


def _written(path: Path, text: str) -> list[Path]:
    if text == path.read_text():
        return []
    path.write_text(text)
    return [path]


def _run(words: Sequence[object], folder: Path | None = None) -> None:
    done = subprocess.run(list(map(str, words)), cwd=folder, env=None if folder is None else _clean())
    if done.returncode:
        raise PackageError(f"`{' '.join(map(str, words[:6]))} ...` ended with {done.returncode}")


def _clean() -> dict[str, str]:
    import os

    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("wheels", "check"):
        one = commands.add_parser(name)
        one.add_argument("output", type=Path, metavar="FOLDER")
        if name == "check":
            one.add_argument("--third-party", type=Path, action="append", default=[], metavar="FOLDER")
    commands.add_parser("version").add_argument("version", metavar="X.Y.Z")
    args = parser.parse_args(argv)
    try:
        if args.command == "version":
            for path in set_version(args.version):
                print(path.relative_to(ROOT))
        elif args.command == "wheels":
            print(*(wheel.name for wheel in build(args.output)), sep="\n")
        else:
            check(args.output, args.third_party)
    except (PackageError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
