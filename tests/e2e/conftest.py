"""The command line as users have it: a program of its own, in an empty folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def dovetail(tmp_path, monkeypatch):
    """Run `dovetail ARGUMENTS` in an empty folder, the current one; the result holds code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DOVETAIL_PLUGINS", raising=False)

    def run(*arguments, python=sys.executable, before="", **environment):
        command = [python, "-m", "dovetail.cli.main", *map(str, arguments)]
        if before:
            command = ["bash", "-c", f'{before}; exec "$@"', "bash", *command]
        variables = {**os.environ, **environment}
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=variables)

    return run


def content(folder):
    """Every file below `folder` with its bytes, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.fixture
def earlier():
    """A folder `out` with the result of an earlier run; called afterwards, it says whether that is still as it was."""
    out = Path("out")

    def make():
        out.mkdir()
        for name in ("model.onnx", "plan.yaml", "remarks.json"):
            (out / name).write_bytes(f"earlier {name}".encode())
        before = content(out)
        return lambda: content(out) == before

    return make
