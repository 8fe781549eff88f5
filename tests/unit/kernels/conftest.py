"""Plugin sets with operators and kernels of a vendor."""

import itertools

import pytest

_NUMBERS = itertools.count()


@pytest.fixture
def domain():
    """A domain of the test's own: onnx has one table of schemas in a process."""
    return f"kernels{next(_NUMBERS)}"


@pytest.fixture
def with_operators(tmp_path, monkeypatch, with_backend):
    """`with_operators(text, *backends)`: the installed plugins together with a file of operators and with backends.

    Kernels are all classes of a module that are based on Kernel.
    """

    def make(text, *backends, name="acme.ops", module=""):
        plugins = with_backend(*backends)
        package = f"dovetail_inline_operators_{next(_NUMBERS)}"
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / "ops.yaml").write_text(text)
        (tmp_path / package / "kernels.py").write_text(module)
        monkeypatch.syspath_prepend(str(tmp_path))
        plugins.registry.operators(name, f"{package}:ops.yaml")
        for line in module.splitlines():
            if line.startswith("class ") and "Kernel" in line:
                kernel = line.removeprefix("class ").partition("(")[0]
                plugins.registry.kernel(f"acme-{kernel.lower()}", f"{package}.kernels:{kernel}")
        return plugins

    return make


@pytest.fixture
def with_kernels(with_operators):
    """`with_kernels(module, operators, *backends)`: `with_operators` with the kernels of a module."""
    return lambda module, operators, *backends: with_operators(operators, *backends, module=module)
