"""A small stand-in for a graph, so that pipelines are tested without ONNX: a model is a list of words."""

import json
from pathlib import Path
from types import SimpleNamespace

import dovetail.ir
import pytest
from dovetail.errors import DovetailError
from dovetail.plugin import Frontend, Registry


class Words:
    """Has what the manager asks of a model."""

    def __init__(self, *words, path=None):
        self.words = list(words)
        self.path = path
        self.revision = 0
        self.fault = ""
        self._source = None
        self.dialect = object()
        self.ir = SimpleNamespace(metadata_props={})

    @property
    def source(self):
        """What the manager keeps of the model before any pass."""
        if self._source is None:
            self._source = SimpleNamespace(
                name="the words", with_metadata=self._first().with_metadata, fault=lambda: self.fault
            )
        return self._source

    def interface(self):
        return [], []

    def __str__(self):
        return " ".join(self.words)

    def touch(self):
        self.revision += 1

    def with_metadata(self, metadata, weights):
        self.ir.metadata_props.update(metadata)
        return self

    def save(self, path):
        Path(path).write_text(json.dumps([self.words, self.ir.metadata_props]))

    def _first(self):
        return Words(*self.words)


def _verify(model, changed=None):
    if "bad" in model.words:
        raise DovetailError("word 'bad' is not allowed")


class WordsFrontend(Frontend):
    """Reads what `Words.save` writes."""

    suffixes = (".onnx",)

    def read(self, path):
        words, props = json.loads(path.read_text())
        model = Words(*words, path=path)
        model.ir.metadata_props.update(props)
        return model

    open_declared = read


@pytest.fixture(autouse=True)
def words_for_graphs(monkeypatch):
    monkeypatch.setitem(vars(dovetail.ir), "verify_model", _verify)


@pytest.fixture
def words():
    return Words


@pytest.fixture
def shelve():
    """Make a registry of passes; each is found in the module that defines it."""

    def make(*classes, owner="acme"):
        registry = Registry(owner)
        registry.frontend("words", f"{WordsFrontend.__module__}:{WordsFrontend.__qualname__}")
        for cls in classes:
            registry.pass_(cls.name, f"{cls.__module__}:{cls.__qualname__}")
        return registry

    return make
