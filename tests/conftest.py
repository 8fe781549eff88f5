"""Backends in float16 that ONNX Runtime executes, so that their results can be compared with the original's."""

import itertools
import os
import sys
import zlib

import pytest
from dovetail.plugin import load_plugins
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")


def pytest_addoption(parser):
    parser.addoption("--all-rows", action="store_true", help="run all generated rows, and not one of three")


def pytest_collection_modifyitems(config, items):
    """Of rows that are marked as generated, run one of three, the same each time: by a hash of their names."""
    if config.getoption("--all-rows") or os.environ.get("DOVETAIL_SLOW"):
        return
    left_out = [item for item in items if item.get_closest_marker("generated") and zlib.crc32(item.name.encode()) % 3]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


FILE = """
backend: test-fp16
summary: float16 by the autocast lists, on ONNX Runtime
device: cpu
precision: {low: float16, high: float32}
opset: 13..26
dynamic: accept
policies: fp16
types: {f: [float16, float32]}
unlisted: {types: f}
ops:
  LayerNormalization: {policy: pass, set: {stash_type: 1}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""


SOME = FILE.replace("test-fp16", "test-some").replace(
    "unlisted: {types: f}\nops:",
    "unlisted: refuse\nops:\n  MatMul, Relu, Tanh, Add, Max, Where: {types: f}\n  Sinh: {types: float16}",
)


@pytest.fixture(scope="session", autouse=True)
def engine_cache(tmp_path_factory):
    """Engines that tests build are kept for the other tests, and never in the user's folder."""
    os.environ["DOVETAIL_ENGINE_CACHE"] = str(tmp_path_factory.mktemp("engines"))


@pytest.fixture(scope="session")
def fp16(tmp_path_factory):
    """The installed plugins with `test-fp16`, which takes everything, and `test-some`, which takes a few operators."""
    root = tmp_path_factory.mktemp("backends")
    package = root / "dovetail_backend_of_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "fp16.yaml").write_text(FILE)
    (package / "some.yaml").write_text(SOME)
    sys.path.insert(0, str(root))
    plugins = load_plugins()
    plugins.registry.backend("test-fp16", "dovetail_backend_of_tests:fp16.yaml")
    plugins.registry.backend("test-some", "dovetail_backend_of_tests:some.yaml")
    yield plugins
    sys.path.remove(str(root))


_NUMBERS = itertools.count()  # a package name that was imported once would be found again


@pytest.fixture
def with_backend(tmp_path, monkeypatch):
    """`with_backend(text, ...)`: the installed plugins together with the backends that the texts of files describe."""

    def make(*texts):
        plugins = load_plugins()
        monkeypatch.syspath_prepend(tmp_path)
        for text in texts:
            package = f"dovetail_inline_backend_{next(_NUMBERS)}"
            (tmp_path / package).mkdir()
            (tmp_path / package / "__init__.py").write_text("")
            (tmp_path / package / "inline.yaml").write_text(text)
            name = next(line.split(":")[1].strip() for line in text.splitlines() if line.startswith("backend:"))
            plugins.registry.backend(name, f"{package}:inline.yaml")
        return plugins

    return make
