"""Every kind of thing that a plugin registers, by every way to misbehave: an error or a note names it."""

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.passes import Pass
from dovetail.plugin import Reads
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
BACKEND = """backend: odd-npu
device: npu
opset: 13..22
precision: {low: float16, high: float32}
policies: fp16
types: {f: [float16, float32]}
ops: {"Conv, Relu, MaxPool, Gemm, Flatten": {types: fLIMITS}}
place: {strategy: STRATEGY, regions: PARTITIONER}
emit: {engines: [ENGINE]EMITTER}
"""


class Odd(BaseException):
    """No Exception, as some libraries raise."""


def _raise(error):
    raise error


def _recurse():
    return _recurse()


WAYS = {
    "KeyError": lambda: _raise(KeyError("odd")),
    "SystemExit": lambda: sys.exit(3),
    "BaseException": lambda: _raise(Odd("odd")),
    "RecursionError": _recurse,
    "MemoryError": lambda: _raise(MemoryError()),
    "None": lambda: None,
    "a number": lambda: 5,
    "a text": lambda: "odd",
    "a print": lambda: print("odd"),
}
NOW = {}


def act(*_, **__):
    return NOW["way"]()


class Strategy:
    claim = act


class RegionPartitioner(dovetail.plugin.Partitioner):
    form = act


class Emitter(dovetail.plugin.Emitter):
    emit = act


class Editor(dovetail.plugin.Editor):
    sides = ("after",)
    apply = act


class Front(dovetail.plugin.Frontend):
    suffixes = (".odd",)
    read = act


@dataclass(frozen=True)
class OddPass(Pass):
    name = "odd-pass"
    stage = "join"

    def run(self, model, ctx):
        return act()


class Engine(OnnxRuntimeCpu):
    name = "odd-engine"
    reads = Reads(22, 10, frozenset({"float32", "float16"}))

    def available(self):
        return act() if NOW["at"] == "available" else super().available()

    def load(self, region, options):
        loaded = act() if NOW["at"] == "load" else super().load(region, options)
        return Session(loaded) if NOW["at"] in ("run", "executed") else loaded


class Session(dovetail.plugin.Session):
    def __init__(self, loaded):
        self._loaded = loaded

    def run(self, inputs):
        return act() if NOW["at"] == "run" else self._loaded.run(inputs)

    def executed(self):
        return act()


KINDS = {
    "strategy": ({"STRATEGY": "odd"}, {}),
    "partitioner": ({"PARTITIONER": "odd"}, {}),
    "emitter": ({"EMITTER": ", artifacts: [odd]"}, {}),
    "fact": ({"LIMITS": ", limits: {odd_fact: 1..}"}, {}),
    "pass_": ({}, {}),
    "edit": ({}, {"edits": ["odd=conv_1:after"]}),
    "solver": ({}, {"solver": "odd"}),
    "frontend": ({}, {}),
    "engine available": ({"ENGINE": "odd-engine"}, {}),
    "engine load": ({"ENGINE": "odd-engine"}, {}),
    "engine run": ({"ENGINE": "odd-engine"}, {}),
    "engine executed": ({"ENGINE": "odd-engine"}, {}),
}
CODE = {
    "strategy": ("odd", "Strategy"), "partitioner": ("odd", "RegionPartitioner"), "emitter": ("odd", "Emitter"),
    "fact": ("odd_fact", "act"), "pass_": ("odd-pass", "OddPass"), "edit": ("odd", "Editor"), "solver": ("odd", "act"),
    "frontend": ("odd", "Front"), "engine": ("odd-engine", "Engine"),
}  # fmt: skip
HARMLESS = {  # what these return is not asked for, or may be anything
    ("fact", "None"), ("fact", "a number"), ("fact", "a text"), ("fact", "a print"),
    ("engine executed", "KeyError"), ("engine executed", "SystemExit"), ("engine executed", "BaseException"),
    ("engine executed", "RecursionError"), ("engine executed", "MemoryError"), ("engine executed", "None"),
    ("engine executed", "a number"), ("engine executed", "a text"),
}  # fmt: skip


@pytest.mark.generated
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_named_and_nothing_else_is_blamed(kind, way, with_backend, tmp_path, capsys):
    NOW.update(way=WAYS[way], at=kind.partition(" ")[2])
    changed, request = KINDS[kind]
    text = BACKEND
    plain = {
        "LIMITS": "",
        "STRATEGY": "autocast",
        "PARTITIONER": "topological",
        "ENGINE": "onnxruntime-cpu",
        "EMITTER": "",
    }
    for word, default in plain.items():
        text = text.replace(word, changed.get(word, default))
    plugins = with_backend(text)
    name, code = CODE[kind.partition(" ")[0]]
    getattr(plugins.registry, kind.partition(" ")[0])(name, f"{__name__}:{code}")
    model = DIGITS / "digits.onnx"
    if kind == "frontend":
        model = tmp_path / "model.odd"
        model.write_text("odd")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            compiled = dovetail.compile(model, "odd-npu", plugins=plugins, **request)
            compiled.run({"image": np.load(DIGITS / "test.npz")["image"][:4]})
            compiled.placement_table()
            said = " ".join(
                [*compiled.notes(), *(remark.why for remark in compiled.remarks if remark.kind != "passed")]
            )
        except dovetail.DovetailError as error:
            said = f"{error.message} {error.hint}"
    said += " ".join(str(warning.message) for warning in seen)
    assert capsys.readouterr().out == "", "standard output belongs to the command"
    assert "defect of Dovetail" not in said and "Traceback" not in said
    if (kind, way) not in HARMLESS:
        assert "odd" in said.replace("odd-npu", "")
