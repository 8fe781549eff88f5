"""Facts of installed distributions: the same that `importlib.metadata` finds, in folders and in archives."""

import zipfile
from importlib import metadata

import pytest
from dovetail.installed import (
    EntryPoint,
    InstalledDistributions,
    entry_points,
    package_folder,
    required_by,
    version_of,
)


def test_all_that_is_installed_here_reads_as_in_python_itself():
    installed = InstalledDistributions()
    for one in metadata.distributions():
        found = installed.get(one.name)
        assert found is not None
        assert (found.name, found.version, list(found.requirements)) == (one.name, one.version, one.requires or [])


@pytest.mark.parametrize("group", ["dovetail", "dovetail.api", "console_scripts", "pytest11"])
def test_entry_points_are_those_that_python_itself_finds(group):
    found = {(point.name, point.value, distribution.name) for point, distribution in entry_points(group)}
    assert found == {(one.name, one.value, one.dist.name) for one in metadata.entry_points(group=group)}
    assert found


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Write the metadata of a distribution into a folder of the path, or into an archive of this name."""

    def write(info, files, archive=""):
        for name, text in files.items():
            if archive:
                with zipfile.ZipFile(tmp_path / archive, "a") as opened:
                    opened.writestr(f"{info}/{name}", text)
            else:
                (tmp_path / info).mkdir(exist_ok=True)
                (tmp_path / info / name).write_text(text)
        monkeypatch.syspath_prepend(tmp_path / archive)

    return write


ACME = """Metadata-Version: 2.1
Name: Acme.Tools
Version: 2.0
Requires-Dist: brick-layer (>=1)
Requires-Dist: mortar; extra == "wet"
License: one
        Name: not this one

Name: nor the description
"""
POINTS = "# a comment\n[other]\nx = y\n[acme]\nfirst = os.path : join [extra]\n; another\nsecond=string\n"


@pytest.mark.parametrize("archive", ["", "packages.zip"])
def test_a_distribution_in_a_folder_and_in_an_archive(put, archive):
    put("Acme_Tools-2.0.dist-info", {"METADATA": ACME, "entry_points.txt": POINTS}, archive)
    found = InstalledDistributions().get("acme-tools")
    assert (found.name, found.version) == ("Acme.Tools", "2.0")
    assert (found.required(), found.required(with_extras=True)) == ({"brick-layer"}, {"brick-layer", "mortar"})
    assert required_by(["acme.tools"]) == {"acme.tools", "brick-layer"}
    points = {point.name: point.load() for point, _ in entry_points("acme")}
    import os
    import string

    assert points == {"first": os.path.join, "second": string}


def test_damaged_metadata_leaves_the_names_of_the_folder(put):
    put("acme-3.dist-info", {"entry_points.txt": "[acme]\nx = acme_module:X\n"})
    ((point, distribution),) = entry_points("acme")
    assert (distribution.name, version_of("acme")) == ("acme", "3")
    with pytest.raises(ImportError, match="No module named 'acme_module'"):
        point.load()


def test_what_is_not_installed_has_no_version():
    assert (InstalledDistributions().get("acme"), version_of("acme")) == (None, "")


def test_a_target_of_another_form_is_named():
    with pytest.raises(ImportError, match="entry point 'x' names 'a file.py', which is no module:attribute"):
        EntryPoint("x", "a file.py").load()


@pytest.mark.parametrize("archived", [False, True], ids=["folder", "archive"])
def test_files_of_a_package_are_found_in_a_folder_and_in_an_archive(archived, tmp_path, monkeypatch):
    package = "acme_archived" if archived else "acme_plain"
    files = {f"{package}/__init__.py": "", f"{package}/data.yaml": "a: 1\n"}
    if archived:
        with zipfile.ZipFile(tmp_path / "packages.zip", "w") as opened:
            for name, text in files.items():
                opened.writestr(name, text)
    else:
        (tmp_path / package).mkdir()
        for name, text in files.items():
            (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "packages.zip" if archived else tmp_path)
    assert package_folder(package).joinpath("data.yaml").read_text() == "a: 1\n"
