"""Runs the RUN lines of the files beside it.

A file is ONNX text whose first lines say how it is tested; lines that start with `//` are comments to Dovetail:

    // RUN: dovetail opt %s -p 'dead-code' | filecheck %s

`%s` is the file, `%S` its folder. `not` before a command expects it to fail, and `2>&1` adds what it says on standard
error.
"""

import contextlib
import io
import re
import shlex
import shutil
import sys
from pathlib import Path

import filecheck.main
import pytest
from dovetail.cli.main import main
from dovetail.plugin import load_plugins
from dovetail.plugin.loading import loader

HERE = Path(__file__).parent
RUN = "// RUN:"
FILES = sorted(HERE.rglob("*.onnxtxt"))


def test_every_registered_pass_has_a_file():
    tested = {
        step.split("{")[0].split("(")[-1].rstrip(")")
        for path in FILES
        for pipeline in re.findall(r"-p '([^']*)'", path.read_text(encoding="utf-8"))
        for step in pipeline.split(",")
    }
    assert sorted(set(load_plugins().registry.pass_) - tested) == []


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    """A package with the backend files, operators and kernels beside this one."""
    root = tmp_path_factory.mktemp("backends")
    (root / "dovetail_filecheck").mkdir()
    (root / "dovetail_filecheck" / "__init__.py").write_text("")
    for file in (*HERE.glob("*.yaml"), *HERE.glob("acme_*.py")):
        shutil.copy(file, root / "dovetail_filecheck")
    return root / "dovetail_filecheck"


@pytest.fixture(autouse=True)
def backends_beside(package, monkeypatch):
    """Let `--backend NAME` find `NAME.backend.yaml` beside this file, and the operators of the domain acme."""
    real = loader.load_plugins

    def load(*arguments, **keywords):
        plugins = real(*arguments, **keywords)
        plugins.registry.operators("acme", "dovetail_filecheck:acme.ops.yaml")
        plugins.registry.kernel("acme-scale", "dovetail_filecheck.acme_kernels:Scale")
        for file in package.glob("*.backend.yaml"):
            plugins.registry.backend(file.name.partition(".")[0], f"dovetail_filecheck:{file.name}")
        return plugins

    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(loader, "load_plugins", load)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_file(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith(RUN), f"the first line must start with {RUN}"
    for line in lines:
        if line.startswith(RUN):
            commands = [
                [word.replace("%S", str(path.parent)) if word != "%s" else str(path) for word in shlex.split(command)]
                for command in line.removeprefix(RUN).split(" | ")
            ]
            text = ""
            for command in commands:
                text = run(command, text, monkeypatch)


def run(words, text, monkeypatch):
    """Run one command on `text` in this process and return what it printed."""
    fails = words[0] == "not"
    program, *arguments = words[fails:]
    both = "2>&1" in arguments
    arguments = [word for word in arguments if word != "2>&1"]
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out if both else err):
        code = {"dovetail": main, "filecheck": run_filecheck}[program](arguments)
    said = out.getvalue() + err.getvalue()
    assert (code != 0) == fails, f"{shlex.join(words)} left with {code}:\n{said}\n--- its input ---\n{text}"
    return out.getvalue()


def run_filecheck(arguments):
    try:
        filecheck.main.main(["filecheck", *arguments])
    except SystemExit as leave:
        return leave.code or 0
    return 0
