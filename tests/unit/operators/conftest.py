"""Plugin sets with a file of operators."""

import itertools

import pytest

_NUMBERS = itertools.count()


@pytest.fixture
def domain():
    """A domain of the test's own: onnx has one table of schemas in a process."""
    return f"acme{next(_NUMBERS)}"


@pytest.fixture
def with_operators(tmp_path, monkeypatch, with_backend):
    """`with_operators(text, *backends)`: the installed plugins together with a file of operators and with backends."""

    def make(text, *backends, name="acme.ops"):
        plugins = with_backend(*backends)
        package = f"dovetail_inline_operators_{next(_NUMBERS)}"
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / "ops.yaml").write_text(text)
        plugins.registry.operators(name, f"{package}:ops.yaml")
        return plugins

    return make
