"""The command line as users have it: a program of its own, in an empty folder.

By default its process is forked from one that has imported everything; with DOVETAIL_SLOW=1 or DOVETAIL_FORK=off, it
is started anew.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from . import program_server

FORKED = hasattr(os, "fork") and not os.environ.get("DOVETAIL_SLOW") and os.environ.get("DOVETAIL_FORK") != "off"


def pytest_ignore_collect(collection_path, config):
    """Examples have a run of their own, `pytest tests/e2e/examples`."""
    all_rows = config.getoption("--all-rows") or os.environ.get("DOVETAIL_SLOW")
    return True if collection_path.name == "examples" and not all_rows else None


@pytest.fixture(scope="session")
def server():
    """The path of the socket of a server that forks programs, or None: they are started anew."""
    if not FORKED:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket has to be short
        path = Path(folder) / "socket"
        process = program_server.start(path)
        yield path
        process.kill()
        process.communicate()


@pytest.fixture
def dovetail(server, tmp_path, monkeypatch):
    """Run `dovetail ARGUMENTS` in an empty folder, the current one; the result holds code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DOVETAIL_PLUGINS", raising=False)

    def run(*arguments, python=sys.executable, before="", **environment):
        if server and python == sys.executable and not before:
            return program_server.run(server, [*map(str, arguments)], {**os.environ, **environment})
        command = [python, "-m", "dovetail.cli.main", *map(str, arguments)]
        if before:
            command = ["bash", "-c", f'{before}; exec "$@"', "bash", *command]
        variables = {**os.environ, **environment}
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=variables)

    return run


@pytest.fixture(scope="session")
def python(server):
    """`python(code, **environment)`: what Python prints that runs the code in the current folder."""

    def run(code, **environment):
        if server:
            done = program_server.run(server, [], {**os.environ, **environment}, code)
        else:
            command = [sys.executable, "-c", code]
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
        assert done.returncode == 0, done.stderr
        return done.stdout

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


@pytest.fixture
def weighted(tmp_path):
    """Write a graph in ONNX text as a model; its initializers without data get random weights, of the scale given."""

    def write(text, opset=17, /, **scales):
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
        rng = np.random.default_rng(0)
        for value in list(model.graph.value_info):
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            array = (rng.standard_normal(shape) * 0.3 * scales.get(value.name, 1)).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            model.graph.value_info.remove(value)
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        return path

    return write


@pytest.fixture(scope="session")
def pip_installed(tmp_path_factory):
    """`pip_installed(source)`: the folder that pip installs a distribution of the tests in, without a network."""

    def install(source):
        folder = tmp_path_factory.mktemp(source.name)
        copied = shutil.copytree(source, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index"]
        options = ["--no-deps", "--no-build-isolation", "--target", folder / "site", copied]
        done = subprocess.run([*pip, *options], capture_output=True, text=True, env=os.environ)
        assert done.returncode == 0, done.stderr
        return folder / "site"

    return install


@pytest.fixture
def broken_copy(tmp_path):
    """`broken_copy(site)`: a function that copies an installed folder with one file of it changed in part."""

    def of(site):
        (package,) = (path.name for path in Path(site).glob("dovetail_example_*") if not path.name.endswith("-info"))

        def change(file, old, new):
            folder = shutil.copytree(site, tmp_path / "broken", ignore=shutil.ignore_patterns("__pycache__"))
            path = folder / package / file
            assert old in path.read_text()
            path.write_text(path.read_text().replace(old, new))
            return str(folder)

        return change

    return of
