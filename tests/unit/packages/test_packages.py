"""The distributions have one version, which one command writes, and dovetail-all can be published."""

import importlib.util
import re
import shutil
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f".ci/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


packages, member_wheels = loaded("packages"), loaded("member_wheels")


@pytest.fixture
def copy(tmp_path):
    """The files with versions and metadata, in a folder of their own."""
    folders = [ROOT, *packages.distributions()]
    files = [folder / name for folder in folders for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE")]
    files += [ROOT / "CHANGELOG.md", ROOT / "core/src/dovetail/__init__.py"]
    for file in files:
        target = tmp_path / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    return tmp_path


def test_all_distributions_have_the_version_and_metadata_of_the_whole_and_the_changelog_has_it():
    assert list(packages.problems()) == []


def test_every_distribution_says_what_it_is():
    for folder in [ROOT, *packages.distributions()]:
        project = packages.project_of(folder)
        assert project["readme"] == "README.md" and (folder / "README.md").read_text().startswith("# ")
        assert project["classifiers"] and project["urls"]["Source"] and project["authors"]
        assert 20 < len(project["description"]) < 150


NAMES = re.findall(r"^    (dovetail-[\w-]+)$", (ROOT / "docs/distributions.md").read_text(), re.MULTILINE)


def test_the_page_lists_the_names_of_all_distributions():
    """`dovetail` alone belongs to another project in the public index."""
    files = [file for file in ROOT.glob("**/pyproject.toml") if not {"build", "out", ".venv"} & {*file.parts}]
    names = {packages.project_of(file.parent)["name"] for file in files if "/template" not in file.as_posix()}
    assert sorted(names) == NAMES and "dovetail" not in names


@pytest.mark.parametrize("version, range_", [("0.2.0", ">=0.2,<0.3"), ("1.4.2", ">=1.4,<2"), ("2.0.0rc1", ">=2.0,<3")])
def test_one_command_writes_a_version_everywhere(copy, version, range_):
    packages.set_version(version, copy)
    assert list(packages.problems(copy)) == []
    for folder in packages.distributions(copy):
        project = packages.project_of(folder)
        own = [text for text in project["dependencies"] if text.startswith("dovetail")]
        assert project["version"] == version and all(text.endswith(range_) for text in own)
    assert f'__version__ = "{version}"' in (copy / "core/src/dovetail/__init__.py").read_text()
    headings = re.findall(r"^## (\S+)", (copy / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:2] == [version, "0.1.0"]
    assert packages.set_version(version, copy) == []  # nothing is left to write


def test_the_wheel_of_the_whole_names_versions_and_not_folders(copy):
    packages.set_version("0.2.0", copy)
    project = tomllib.loads(packages.released(copy))["project"]
    names = sorted(packages.project_of(folder)["name"] for folder in packages.members(copy))
    assert sorted(project["dependencies"]) == sorted(f"{name}==0.2.0" for name in names)


@pytest.mark.parametrize("version", ["", "1", "1.2", "1.x.0", "v1.2.3", "1.2.3-rc1", "1.2.3 "])
def test_what_is_no_version_is_refused_and_changes_nothing(copy, version):
    with pytest.raises(packages.PackageError, match="is no version: write MAJOR.MINOR.PATCH"):
        packages.set_version(version, copy)
    assert list(packages.problems(copy)) == []


TUNE = "plugins/tune/pyproject.toml"


@pytest.mark.parametrize(
    "file, old, new, why",
    [
        (TUNE, 'version = "0.1.0"', 'version = "0.0.9"', f"{TUNE} has version 0.0.9"),
        (TUNE, "dovetail-verify>=0.1,<0.2", "dovetail-verify>=0.1", "requires dovetail-verify>=0.1"),
        ("core/src/dovetail/__init__.py", '"0.1.0"', '"0.1.1"', "has another __version__"),
        ("CHANGELOG.md", "## 0.1.0", "## 0.0.1", "has no section '## 0.1.0'"),
        (TUNE, "Development Status :: 4", "Development Status :: 5", f"{TUNE} has other metadata than the root's"),
        (TUNE, "https://", "http://", f"{TUNE} has other metadata than the root's: run `python .ci/packages.py meta"),
        (TUNE, 'name = "dovetail-tune"', 'name = "tune"', f"{TUNE} has the name tune; names of distributions begin"),
        (TUNE, 'license = "Apache-2.0"', 'license = "MIT"', f"{TUNE} does not name the license Apache-2.0"),
        (TUNE, '["LICENSE", "NOTICE"]', '["LICENSE"]', f"{TUNE} does not name the license Apache-2.0 and the files"),
        ("plugins/tune/LICENSE", "Apache License", "License", "plugins/tune/LICENSE differs from LICENSE"),
        ("NOTICE", "2026", "2027", "NOTICE differs from NOTICE: run `python .ci/packages.py metadata`"),
    ],
)
def test_what_does_not_fit_together_is_named_before_anything_is_built(copy, tmp_path, file, old, new, why):
    path = copy / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(packages.PackageError, match=re.escape(why)):
        packages.build(tmp_path / "dist", copy)
    assert not (tmp_path / "dist").exists()


def test_one_command_copies_metadata_from_the_root(copy):
    root = copy / "pyproject.toml"
    root.write_text(root.read_text().replace("The Dovetail authors", "Somebody else"))
    (copy / "NOTICE").write_text("Another notice.\n")
    (copy / "plugins/tune/LICENSE").unlink()
    assert list(packages.problems(copy))
    packages.copy_metadata(copy)
    assert list(packages.problems(copy)) == []
    assert packages.project_of(copy / "plugins/tune")["authors"] == [{"name": "Somebody else"}]
    assert packages.copy_metadata(copy) == []  # nothing is left to write


def test_a_file_without_a_place_for_metadata_is_named(copy):
    path = copy / TUNE
    path.write_text(path.read_text().replace("# The same in every distribution", "# Metadata"))
    with pytest.raises(packages.PackageError, match=f"{TUNE} has no lines from '# The same in every distribution' on"):
        packages.copy_metadata(copy)


def test_pages_in_archives_lead_to_the_repository(tmp_path):
    """An index shows README.md, but has none of the files that it links to."""
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "a").mkdir()
    page = tmp_path / "a/README.md"
    page.write_text(
        "[one](../docs/x.md#part) [two](https://other.example) [three](#here) [four](../docs)\n"
        '<img src="../docs/y.svg"> <source srcset="z.png">\n'
    )
    source = packages.project_of(tmp_path)["urls"]["Source"]
    assert packages.linked(page, tmp_path / "a", tmp_path) == (
        f"[one]({source}/blob/v0.1.0/docs/x.md#part) [two](https://other.example) [three](#here)"
        f" [four]({source}/tree/v0.1.0/docs)\n"
        f'<img src="{source}/raw/v0.1.0/docs/y.svg"> <source srcset="{source}/raw/v0.1.0/a/z.png">\n'
    )


def test_a_folder_with_other_wheels_is_refused(copy, tmp_path):
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist/other-1.0-py3-none-any.whl").write_bytes(b"")
    with pytest.raises(packages.PackageError, match="holds distributions already, such as other-1.0"):
        packages.build(tmp_path / "dist", copy)


def test_a_place_among_the_requirements_is_refused(copy):
    path = copy / "pyproject.toml"
    path.write_text(path.read_text().replace("{root:uri}/core", "file:///somewhere"))
    with pytest.raises(packages.PackageError, match="dovetail-core @ file:///somewhere names a place"):
        packages.released(copy)


HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]["custom"]


MEMBERS = [requirement.partition("{root:uri}/")[2] for requirement in HOOK["dependencies"]]


def member(root):
    """A repository of one member; what its hook lists."""
    (root / "a/src/dovetail_a").mkdir(parents=True)
    (root / "a/src/dovetail_a/__init__.py").write_text("X = 1\n")
    (root / "a/pyproject.toml").write_text(
        '[project]\nname = "dovetail-a"\nversion = "0.1.0"\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["src/dovetail_a"]\n'
    )
    return ["dovetail-a @ {root:uri}/a"]


def required(root, requirements):
    metadata = {"version": "0.1.0"}
    member_wheels.MemberWheels(str(root), {"dependencies": requirements}).update(metadata)
    return metadata["dependencies"]


def test_pip_gets_wheels_of_members_which_are_built_once_and_anew_after_an_edit(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_BUILD_TRACKER", "")
    (first,) = required(tmp_path, requirements := member(tmp_path))
    (wheel,) = (tmp_path / "build/wheels").glob("*")
    assert first == f"dovetail-a @ {wheel.as_uri()}"
    assert re.fullmatch(r"dovetail_a-0\.1\.0\+tree[0-9a-f]{12}-py3-none-any\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("dovetail_a/__init__.py") == b"X = 1\n"
    before = wheel.stat().st_mtime_ns
    assert required(tmp_path, requirements) == [first] and wheel.stat().st_mtime_ns == before
    (tmp_path / "a/src/dovetail_a/__init__.py").write_text("X = 2\n")
    assert required(tmp_path, requirements) != [first]  # pip does not install a version that it has installed
    (latest,) = (tmp_path / "build/wheels").glob("*")
    with zipfile.ZipFile(latest) as archive:
        assert archive.read("dovetail_a/__init__.py") == b"X = 2\n"


@pytest.mark.parametrize("pip", [False, True])
def test_other_front_ends_get_versions_as_does_pip_without_the_folders(tmp_path, monkeypatch, pip):
    if pip:
        monkeypatch.setenv("PIP_BUILD_TRACKER", "")
    else:
        monkeypatch.delenv("PIP_BUILD_TRACKER", raising=False)
    found = required(tmp_path, HOOK["dependencies"])
    assert found == [f"{packages.project_of(ROOT / place)['name']}==0.1.0" for place in MEMBERS]
    assert not list(tmp_path.iterdir())


def test_requirements_are_read_from_a_wheel(tmp_path):
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("x-1.dist-info/METADATA", "Name: x\nRequires-Dist: a>=1\nRequires-Dist: b @ file:///b\n")
    assert packages.requirements_of(wheel) == ["a>=1", "b @ file:///b"]
