"""Plugin sets with operators and kernels of a vendor."""

import itertools

import pytest

_NUMBERS = itertools.count()


@pytest.fixture
def domain():
    """A domain of the test's own: onnx has one table of schemas in a process."""
    return f"kernels{next(_NUMBERS)}"


@pytest.fixture
def with_kernels(tmp_path, monkeypatch, with_backend):
    """`with_kernels(module, operators, *backends)`: the installed plugins and a vendor's, whose kernels are all classes
    of the module that are based on Kernel."""

    def make(module, operators, *backends):
        plugins = with_backend(*backends)
        package = f"dovetail_inline_kernels_{next(_NUMBERS)}"
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / "ops.yaml").write_text(operators)
        (tmp_path / package / "kernels.py").write_text(module)
        monkeypatch.syspath_prepend(str(tmp_path))
        plugins.registry.operators("acme.ops", f"{package}:ops.yaml")
        for line in module.splitlines():
            if line.startswith("class ") and "Kernel" in line:
                name = line.removeprefix("class ").partition("(")[0]
                plugins.registry.kernel(f"acme-{name.lower()}", f"{package}.kernels:{name}")
        return plugins

    return make
