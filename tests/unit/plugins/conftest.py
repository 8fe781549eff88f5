"""Real distributions in a temporary folder on the path: the loader finds them as it finds installed ones."""

import sys

import pytest


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution: `install("acme", "1.0", {"acme": "acme_plugin"}, {"acme_plugin.py": "..."})`."""
    monkeypatch.delenv("DOVETAIL_PLUGINS", raising=False)
    before = set(sys.modules)

    def put(distribution, entry_points, files=None, version="1.0"):
        root = tmp_path / distribution
        info = root / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        lines = [f"{name} = {target}" for name, target in entry_points.items()]
        (info / "entry_points.txt").write_text("[dovetail]\n" + "\n".join(lines) + "\n")
        for name, text in (files or {}).items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.syspath_prepend(root)

    yield put
    for name in set(sys.modules) - before:
        if name.startswith(("acme", "brick")):
            del sys.modules[name]


@pytest.fixture
def plugin():
    """Source text of a plugin whose hooks have the given bodies: `plugin(register="registry.pass_(...)")`."""
    arguments = {
        "register": "registry",
        "before_opening": "registry",
        "opened": "model, registry",
        "configure_pipeline": "pipeline, request",
        "before_pass": "pass_, model",
        "after_pass": "pass_, model, result",
        "pass_failed": "pass_, model, error",
    }

    def source(**bodies):
        hooks = (f"@hookimpl\ndef {name}({arguments.get(name, '')}):\n    {body}\n" for name, body in bodies.items())
        return "from dovetail.plugin import hookimpl\ndovetail_api = 1\nseen = []\n" + "\n".join(hooks)

    return source
