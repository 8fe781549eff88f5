"""A backend in float16 that ONNX Runtime executes, so that its results can be compared with the original's."""

import sys

import pytest
from dovetail.plugins import load_plugins

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
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""


@pytest.fixture(scope="session")
def fp16(tmp_path_factory):
    """The installed plugins with `test-fp16`."""
    root = tmp_path_factory.mktemp("backends")
    package = root / "dovetail_backend_of_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "fp16.yaml").write_text(FILE)
    sys.path.insert(0, str(root))
    plugins = load_plugins()
    plugins.registry.backend("test-fp16", "dovetail_backend_of_tests:fp16.yaml")
    yield plugins
    sys.path.remove(str(root))
