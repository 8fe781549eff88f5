"""Packages that import names on first use read them from the stub that type checkers and editors read."""

import importlib
from pathlib import Path

import pytest
from dovetail.lazy_imports import stub_imports

ROOT = Path(__file__).parents[2]
MEMBERS = [ROOT / "schemas", *ROOT.glob("plugins/*"), *ROOT.glob("backends/*")]
PACKAGES = (
    "dovetail",
    *(f"dovetail.{name}" for name in ("cli", "compiler", "ir", "passes", "planning", "plugin")),
    *sorted(stub.parent.name for member in MEMBERS for stub in member.glob("src/*/__init__.pyi")),
    "dovetail_transforms.lowering",
    "dovetail_transforms.rewriting",
)


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_of_the_stub_is_the_one_of_its_module(name):
    package = importlib.import_module(name)
    names = stub_imports(Path(package.__file__).with_suffix(".pyi"))
    assert names.keys() <= set(package.__all__) <= {*dir(package)}
    for public, module in names.items():
        assert getattr(package, public) is getattr(importlib.import_module(module), public)


@pytest.mark.parametrize("name", PACKAGES[1:])
def test_other_names_are_missing(name):
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nonsense'"):
        importlib.import_module(name).nonsense  # noqa: B018 - the attribute is what is tested


@pytest.mark.parametrize("name", PACKAGES)
def test_a_type_checker_reads_the_types_of_an_installed_package(name):
    assert (Path(importlib.import_module(name.partition(".")[0]).__file__).parent / "py.typed").is_file()
