import pytest
from dovetail.errors import DovetailError
from dovetail.passes import Context, Request
from dovetail.plugin import Registry

FILE = """backend: {name}
summary: made for a test
device: npu
opset: 13..22
precision: {{low: float16, high: float32}}
options: {{march: [small, big]}}
unlisted: refuse
ops: {{Relu: {{policy: lower}}}}
place: {{strategy: autocast}}
emit: {{engines: [reference]}}
"""


@pytest.fixture
def registry(tmp_path, monkeypatch):
    package = tmp_path / "acme_registered"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry("acme")
    registry.backend_format("yaml", "dovetail_schemas.backend_yaml:BackendYaml")
    for name in ("npu", "host"):
        (package / f"{name}.yaml").write_text(FILE.format(name=name))
        registry.backend(name, f"acme_registered:{name}.yaml")
    return registry


def test_backends_are_loaded_when_asked_for(registry):
    ctx = Context(Request.of("npu:march=big", "host"), registry=registry)
    assert "backends" not in vars(ctx)
    assert [backend.name for backend in ctx.backends] == ["npu"]
    assert ctx.host.name == "host"
    assert Context(registry=registry).backends == ()
    assert Context(registry=registry).host.name == "host"


@pytest.mark.parametrize(
    ("choice", "message"),
    [("npv", r"unknown backend 'npv' \(did you mean 'npu'\?\)"), ("npu:mrch=big", "unknown option 'mrch'")],
)
def test_a_wrong_choice_is_the_user_s_error(registry, choice, message):
    with pytest.raises(DovetailError, match=message):
        _ = Context(Request.of(choice), registry=registry).backends
