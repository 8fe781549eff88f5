"""Two results that differ in everything, and a way to die at any moment of saving one."""

import gc
import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail import api
from dovetail.errors import DovetailError
from onnx import numpy_helper

TEXT = '<ir_version: 10, opset_import: ["": 22]> g (float[2,8] x) => (float[2,4096] y) { [mul] y = MatMul (x, w) }'


def write_model(path, fill, name="mul"):
    proto = onnx.parser.parse_model(TEXT.replace("[mul]", f"[{name}]"))
    proto.graph.initializer.append(numpy_helper.from_array(np.full((8, 4096), fill, np.float32), "w"))
    Path(path).write_bytes(proto.SerializeToString())


def files_of(folder):
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in Path(folder).iterdir() if file.is_file()
    }


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    write_model(folder / "a.onnx", 1.0, "first")
    write_model(folder / "b.onnx", 2.0, "second")
    return {
        "a": api.compile(folder / "a.onnx", ["cpu-bf16"], try_engines=False),
        "b": api.compile(folder / "b.onnx", ["gpu-fp16"], try_engines=False),
    }


@pytest.fixture
def results(compiled, tmp_path, monkeypatch):
    """`a` and `b`: two compiled models, in an empty folder that holds their sources."""
    monkeypatch.chdir(tmp_path)
    for result in compiled.values():
        shutil.copy(result.source, tmp_path)
    return {name: replace(result, files={}, source=tmp_path / result.source.name) for name, result in compiled.items()}


def describe(folder):
    """Which of both results a folder gives: `a`, `b`, what is wrong, or a mixture."""
    try:
        compiled = api.load(folder)
    except DovetailError as error:
        return error.message
    backends = {node.backend for node in compiled.plan.nodes}
    names = {node.name for node in compiled.plan.nodes}
    weight = float(compiled.model.graph.initializers["w"].const_value.numpy().reshape(-1)[0])
    remarked = {remark.node for remark in compiled.remarks} & {"first", "second"}
    found = (backends, names, weight, remarked)
    known = {"a": ({"cpu-bf16"}, {"first"}, 1.0, {"first"}), "b": ({"gpu-fp16"}, {"second"}, 2.0, {"second"})}
    return next((name for name, expected in known.items() if found == expected), f"mixed: {found}")


def dies_at(step, action):
    """Run `action` in a process of its own that ends, as by a kill, before its change number `step` of any name.

    Returns whether it came that far.
    """
    child = os.fork()
    if child == 0:
        gc.disable()  # sessions of engines that other tests left would wait for threads, which a fork does not have
        left = step

        def counted(change):
            def changed(*arguments, **options):
                nonlocal left
                if left == 0:
                    os._exit(9)
                left -= 1
                return change(*arguments, **options)

            return changed

        for owner, name in ((Path, "replace"), (Path, "unlink"), (shutil, "rmtree")):
            setattr(owner, name, counted(getattr(owner, name)))
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
