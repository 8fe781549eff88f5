"""Ways to write a backend file and a node in one line."""

from pathlib import Path

import onnx_ir as ir
import pytest
from dovetail_schemas import load_backend
from onnx import parser

REPOSITORY = Path(__file__).parents[3]
HEADER = "backend: x\ndevice: cpu\nopset: 22\n"


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture
def schemas() -> Path:
    """The shipped data."""
    return REPOSITORY / "schemas/src/dovetail_schemas"


@pytest.fixture
def backend_file():
    """The file that a backend ships: `backend_file("cpu_bf16")`."""
    return lambda name: REPOSITORY / f"backends/{name}/src/dovetail_{name}/{name}.yaml"


@pytest.fixture(scope="session")
def shipped() -> list[Path]:
    """The backend files that are shipped."""
    return sorted(
        path for path in REPOSITORY.glob("backends/*/src/*/*.yaml") if path.stem not in ("conformance", "latency")
    )


@pytest.fixture
def recorded() -> Path:
    """Recorded answers of other systems."""
    return REPOSITORY / "tests/oracle"


@pytest.fixture
def data() -> Path:
    return Path(__file__).parent / "data"


@pytest.fixture
def write(tmp_path):
    """Write a file; a text without `backend:` gets the three lines that every backend file needs."""

    def write_file(text: str, name: str = "x.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text if text.startswith(("backend:", "policy:", "extends:")) else HEADER + text)
        return path

    return write_file


@pytest.fixture
def load(write):
    def load_text(text: str, name: str = "x.yaml", **arguments):
        return load_backend(write(text, name), **arguments)

    return load_text


@pytest.fixture
def node():
    """The last node of a graph in ONNX text: `node("(float[1] x) => (float[1] y) { y = Relu(x) }")`."""

    def parse(text: str, opset: int = 22, domains: str = "") -> ir.Node:
        header = f'<ir_version: 10, opset_import: ["": {opset}{domains}]> agraph '
        graph = ir.from_proto(parser.parse_model(header + text)).graph
        return list(graph)[-1]

    return parse
