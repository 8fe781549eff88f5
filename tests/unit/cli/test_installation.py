"""`dovetail doctor` names distributions that do not fit together, with the command that repairs the installation."""

import pytest
from dovetail import __version__
from dovetail_commands.installation import installation_problems

OURS = "Author: The Dovetail authors\n"


@pytest.fixture
def problems(tmp_path, monkeypatch):
    """`problems({"folder/name": ("1.0", header)})`: what is wrong where these are installed, and the commands."""

    def of(installed):
        folders = {name.partition("/")[0] for name in installed}
        monkeypatch.setattr("sys.path", [str(tmp_path / folder) for folder in sorted(folders)])
        for name, (version, header) in installed.items():
            folder, _, name = name.partition("/")
            facts = tmp_path / folder / f"{name.replace('-', '_')}-{version}.dist-info"
            facts.mkdir(parents=True)
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{header}"
            (facts / "METADATA").write_text(text)
        return [(problem.text, problem.command) for problem in installation_problems()]

    return of


CORE = ("a/dovetail-core", (__version__, OURS))


def test_what_fits_together_is_no_problem(problems):
    built = (f"{__version__}+tree5f0c9d1e2a3b", OURS)
    assert problems(dict([CORE, ("a/dovetail-onnx", built), ("a/dovetail-acme", ("7.0", "Author: Acme\n"))])) == []


def test_a_foreign_package_with_the_same_files(problems):
    assert problems(dict([CORE, ("a/dovetail", ("1.0b3", "Author: Tom\n"))])) == [
        (
            "the distribution dovetail 1.0b3 is not a part of dovetail-core and has files in the same folder",
            "pip uninstall -y dovetail && pip install --force-reinstall --no-deps dovetail-core==" + __version__,
        )
    ]


def test_parts_of_another_version(problems):
    assert problems(dict([CORE, ("a/dovetail-onnx", ("0.0.9", OURS)), ("a/Dovetail_Tune", ("9.9", OURS))])) == [
        (
            f"Dovetail {__version__} has parts of other versions: dovetail-onnx 0.0.9, dovetail-tune 9.9",
            f"pip install dovetail-onnx=={__version__} dovetail-tune=={__version__}",
        )
    ]


def test_a_part_that_is_installed_twice(problems):
    """Once in the environment, and once in the user's folder, as after `pip install --user`."""
    installed = [CORE, ("a/dovetail-onnx", (__version__, OURS)), ("b/dovetail-onnx", ("0.0.9", OURS))]
    twice, _ = problems(dict(installed))
    assert twice == (
        f"dovetail-onnx is installed 2 times, as {__version__} and 0.0.9",
        f"pip uninstall -y dovetail-onnx; pip uninstall -y dovetail-onnx; pip install dovetail-onnx=={__version__}",
    )
