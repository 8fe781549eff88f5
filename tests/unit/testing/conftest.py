"""A vendor's distribution as pytest finds one: a folder on the path with a package and its metadata."""

import itertools

import pytest

_NUMBERS = itertools.count()  # a package that was imported once would be found again

BACKEND = """
backend: {name}
summary: float16 on ONNX Runtime
device: cpu
precision: {{low: float16, high: float32}}
opset: 13..26
dynamic: accept
types: {{f: [float16, float32]}}
unlisted: refuse
ops:
  Add, Conv, Gemm, MatMul, Relu, Softmax: {{types: f, policy: lower}}
place: {{strategy: autocast}}
emit: {{engines: [onnxruntime-cpu]}}
"""

REGISTER = """
from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    registry.backend({name!r}, "{package}:npu.yaml")
{more}
"""


class Vendor:
    """A distribution that is installed for one test: `name` is its backend, `package` what it imports as."""

    def __init__(self, root):
        number = next(_NUMBERS)
        self.root, self.name, self.package = root, f"acme-{number}", f"acme_of_tests_{number}"
        self.registered = []
        self.folder = root / self.package
        self.folder.mkdir(parents=True)
        info = root / f"{self.package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {self.name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[dovetail]\n{self.name} = {self.package}\n")
        (self.folder / "npu.yaml").write_text(BACKEND.format(name=self.name))
        self._write()

    def bring(self, kind, name, file, text):
        """Add a file, registered under a kind; for code, `file` names the attribute behind a colon."""
        path, colon, attribute = file.partition(":")
        (self.folder / path).write_text(text)
        target = f"{self.package}.{path.removesuffix('.py')}:{attribute}" if colon else f"{self.package}:{path}"
        self.registered.append(f"    registry.{kind}({name!r}, {target!r})")
        self._write()

    def lists(self, text):
        """Ship lists."""
        self.bring("conformance", self.name, "conformance.yaml", f"backend: {self.name}\n{text}")

    def _write(self):
        code = REGISTER.format(name=self.name, package=self.package, more="\n".join(self.registered))
        (self.folder / "__init__.py").write_text(code)


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    """A vendor with a backend in float16 that takes six operators."""
    made = Vendor(tmp_path / "site")
    monkeypatch.syspath_prepend(made.root)
    return made
