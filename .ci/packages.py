"""Release and number the distributions of this repository; they have one version and one set of metadata together.

    python .ci/packages.py release dist       build and check an sdist and a wheel of each; nothing is uploaded
    python .ci/packages.py version 0.2.0      write the version everywhere, and open its section in CHANGELOG.md
    python .ci/packages.py metadata           copy authors, classifiers, URLs and license files from the root to all

`release` needs hatchling and twine, which are in `.[test]`. An sdist is built from a copy in which links of README.md
lead to the repository, and its wheel from the sdist alone, so that both work without the repository. The file of
dovetail-all names its members by their folders, so that `pip install .` takes them from here; its sdist names their
version instead.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
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
_SHARED = re.compile(r"^# The same in every distribution: .*\n(?:.+\n)+?# Until here\.\n", re.MULTILINE)
_LICENSE_FILES = ("LICENSE", "NOTICE")
_LINK = re.compile(r"(?P<before>\]\(|(?:src|srcset|href)=\")(?![a-z]+:|#)(?P<path>[^)\"#\s]+)")
_FIRST = re.compile(r"^    pip install \. && (.*)$", re.MULTILINE)  # the first command of README.md
_PLACE = """
import pathlib, sys, dovetail
from dovetail.plugin import load_plugins
assert pathlib.Path(dovetail.__file__).is_relative_to(sys.prefix), dovetail.__file__
assert not load_plugins(strict=True).broken
"""


class PackageError(Exception):
    """The distributions do not fit together, or cannot be built; the text says which and why."""


def members(root: Path = ROOT) -> list[Path]:
    """Return the folders of all distributions that dovetail-all brings, in the order of their names."""
    found = [root / "core", root / "schemas"]
    found += [path.parent for group in ("plugins", "backends") for path in (root / group).glob("*/pyproject.toml")]
    return sorted(found)


def distributions(root: Path = ROOT) -> list[Path]:
    """Return the folders of all distributions but dovetail-all: its members, and those of examples."""
    return [*members(root), *sorted(path.parent for path in (root / "examples").glob("*/pyproject.toml"))]


def problems(root: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong with versions (of files, requirements and the changelog), names and shared metadata."""
    wanted = project_of(root)["version"]
    shared = shared_metadata(root)
    for folder in distributions(root):
        project = project_of(folder)
        where = folder.relative_to(root) / "pyproject.toml"
        if not project["name"].startswith("dovetail-"):
            yield f"{where} has the name {project['name']}; names of distributions begin with dovetail-"
        if shared_metadata(folder) != shared:
            yield f"{where} has other metadata than the root's: run `python .ci/packages.py metadata`"
        for name in _LICENSE_FILES:
            if not (folder / name).is_file() or (folder / name).read_bytes() != (root / name).read_bytes():
                yield f"{folder.relative_to(root) / name} differs from {name}: run `python .ci/packages.py metadata`"
        if not {*_LICENSE_FILES} <= {*project["license-files"]} or "Apache-2.0" not in project["license"]:
            yield f"{where} does not name the license Apache-2.0 and the files {' and '.join(_LICENSE_FILES)}"
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


def shared_metadata(folder: Path) -> str:
    """Return the lines of a `pyproject.toml` that are the same in all distributions.

    Raises:
        PackageError: There are none.
    """
    found = _SHARED.search((folder / "pyproject.toml").read_text())
    if found is None:
        raise PackageError(f"{folder / 'pyproject.toml'} has no lines from '# The same in every distribution' on")
    return found[0]


def copy_metadata(root: Path = ROOT) -> list[Path]:
    """Write the root's shared metadata and license files into every distribution; return the files that changed.

    Raises:
        PackageError: A file has no place for it.
    """
    shared = shared_metadata(root)
    changed = []
    for folder in distributions(root):
        path = folder / "pyproject.toml"
        changed += _written(path, path.read_text().replace(shared_metadata(folder), shared))
        for name in _LICENSE_FILES:
            changed += _written(folder / name, (root / name).read_text())
    return changed


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
    for folder in [root, *distributions(root)]:
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


def copy_sources(folder: Path, target: Path, root: Path = ROOT) -> None:
    """Write what the sdist of a distribution holds: its files of git's index, ready to leave the repository."""
    listed = subprocess.run(
        ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "src"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, ["README.md", *_LICENSE_FILES, *(listed.split("\0") if folder != root else ())]):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, target / name)
    (target / "README.md").write_text(linked(target / "README.md", folder, root))
    text = released(root) if folder == root else (folder / "pyproject.toml").read_text()
    (target / "pyproject.toml").write_text(text)


def linked(page: Path, folder: Path, root: Path = ROOT) -> str:
    """Return the text of a page of a folder, whose relative links lead to the repository at the released version."""
    project = project_of(root)
    source, version = project["urls"]["Source"], project["version"]

    def absolute(found: re.Match[str]) -> str:
        path = (folder / found["path"]).resolve()
        kind = "raw" if path.suffix in (".svg", ".png") else "tree" if path.is_dir() else "blob"
        return f"{found['before']}{source}/{kind}/v{version}/{path.relative_to(root.resolve()).as_posix()}"

    return _LINK.sub(absolute, page.read_text())


def build(output: Path, root: Path = ROOT) -> list[Path]:
    """Build sdists of all distributions into a folder, and wheels from the sdists; return both.

    Raises:
        PackageError: Versions or metadata do not fit together, the folder holds others, or a build fails.
    """
    if wrong := list(problems(root)):
        raise PackageError("\n".join(wrong))
    output.mkdir(parents=True, exist_ok=True)
    if others := sorted([*output.glob("*.whl"), *output.glob("*.tar.gz")]):
        raise PackageError(f"{output} holds distributions already, such as {others[0].name}: name an empty folder")
    folders = [root, *distributions(root)]
    with tempfile.TemporaryDirectory(prefix="dovetail-all-") as place:
        for folder in folders:
            sources = Path(place, project_of(folder)["name"])
            sources.mkdir()
            copy_sources(folder, sources, root)
            _run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", output.resolve()], sources)
    sdists = sorted(output.glob("*.tar.gz"))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    _run([*pip, "-w", output, *sdists])
    wheels = sorted(output.glob("*.whl"))
    if not len(folders) == len(sdists) == len(wheels):
        raise PackageError(f"{len(folders)} distributions gave {len(sdists)} sdists and {len(wheels)} wheels")
    for wheel in wheels:
        if direct := [line for line in requirements_of(wheel) if " @ " in line]:
            raise PackageError(f"{wheel.name} requires {direct[0]}, a place that others do not have")
    for archive in (*sdists, *wheels):
        held = {Path(name).name for name in _names_in(archive)}
        if lacking := [name for name in _LICENSE_FILES if name not in held]:
            raise PackageError(f"{archive.name} has no file {lacking[0]}")
    return [*sdists, *wheels]


def _names_in(archive: Path) -> list[str]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.namelist()
    with tarfile.open(archive) as sdist:
        return sdist.getnames()


def requirements_of(wheel: Path) -> list[str]:
    """Return what a wheel requires."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    return [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]


def release(output: Path, third_party: Sequence[Path] = ()) -> None:
    """Build sdists and wheels, check their metadata, and use them without the repository, as a stranger would.

    From the wheels alone, dovetail-all and the examples are installed; the first command of README.md runs; and a
    package that `dovetail new-backend` wrote is installed, checked, and passes its own tests.

    Args:
        output: The folder for the archives.
        third_party: Folders with the wheels of everything else. Without any, what is installed here serves.

    Raises:
        PackageError: A step fails.
    """
    archives = build(output)
    _run([sys.executable, "-m", "twine", "check", "--strict", *archives])
    with tempfile.TemporaryDirectory(prefix="dovetail-wheels-") as folder:
        place = Path(folder)
        venv.create(place / "venv", with_pip=True)
        programs = place / "venv/bin"
        links = [word for path in (output, *third_party) for word in ("--find-links", str(path.resolve()))]
        install = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
        install += [*links, "--no-build-isolation"]
        names = [project_of(folder)["name"] for folder in (ROOT, *distributions())]
        if not third_party:
            site = next((place / "venv/lib").glob("python*/site-packages"))
            # Behind the packages of the new environment, which therefore come first.
            (site / "others.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("-packages")))
            install += ["--no-deps"]
        _run([*install, "--ignore-installed", *names], place)
        _run([programs / "python", "-c", _PLACE], place)
        shutil.copytree(ROOT / "examples/digits", place / "examples/digits")
        first = _FIRST.search((ROOT / "README.md").read_text())
        if first is None:
            raise PackageError("README.md begins with no command that this can run")
        _run([programs / word if word == "dovetail" else word for word in first[1].split()], place)
        _run([programs / "dovetail", "new-backend", "acme-npu", "-o", "acme"], place)
        _run([*install, "./acme"], place)
        _run([programs / "dovetail", "check", "--installed", "acme-npu", "--time-limit", "60"], place)
        _run([programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider"], place / "acme")


def _written(path: Path, text: str) -> list[Path]:
    if path.is_file() and text == path.read_text():
        return []
    path.write_text(text)
    return [path]


def _run(words: Sequence[object], folder: Path | None = None) -> None:
    done = subprocess.run(list(map(str, words)), cwd=folder, env=None if folder is None else _clean())
    if done.returncode:
        raise PackageError(f"`{' '.join(map(str, words[:6]))} ...` ended with {done.returncode}")


def _clean() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("release")
    one.add_argument("output", type=Path, metavar="FOLDER")
    one.add_argument("--third-party", type=Path, action="append", default=[], metavar="FOLDER")
    commands.add_parser("version").add_argument("version", metavar="X.Y.Z")
    commands.add_parser("metadata")
    args = parser.parse_args(argv)
    try:
        if args.command == "release":
            release(args.output, args.third_party)
        else:
            for path in set_version(args.version) if args.command == "version" else copy_metadata():
                print(path.relative_to(ROOT))
    except (PackageError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
