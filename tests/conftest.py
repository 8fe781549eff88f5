"""Backends in float16 that ONNX Runtime executes, so that their results can be compared with the original's."""

import gc
import heapq
import itertools
import os
import sys
import types
import zlib

import pytest
from dovetail.plugin import load_plugins
from hypothesis import settings

pytest_plugins = ["tests.changed"]
settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")


def pytest_addoption(parser):
    parser.addoption("--all-rows", action="store_true", help="run slow tests, and all generated rows")
    parser.addoption(
        "--other-rows",
        action="store_true",
        help="run what the last run without it left out or skipped, such as for a tool",
    )


POOLS = ("averagepool", "lppool", "maxpool")


def all_rows(config):
    return config.getoption("--all-rows") or bool(os.environ.get("DOVETAIL_SLOW"))


def is_of_pools(item):
    """Whether an item is an operator test of pooling."""
    return any(f"test_{name}" in item.name for name in POOLS)


def pytest_configure(config):
    """Leave out the operator tests of pooling unless all rows run: onnx takes 14 seconds in every process for them."""
    for name in () if all_rows(config) or config.getoption("--other-rows") else POOLS:
        name = f"onnx.backend.test.case.node.{name}"
        sys.modules.setdefault(name, types.ModuleType(name))


def pytest_collection_modifyitems(config, items):
    """Leave out what is marked as slow, and of rows that are marked as generated two of three, the same each time.

    `generated(one_of=6)` says that rows are alike, and how many of them stand for one. See `spread` for which.
    """
    if all_rows(config):
        return
    left_out = {item for item in items if item.get_closest_marker("slow") or is_of_pools(item)}
    generated = {}
    for item in items:
        if (mark := item.get_closest_marker("generated")) and item not in left_out:
            rows = generated.setdefault((item.path, item.originalname), (mark.kwargs.get("one_of", 3), []))[1]
            rows.append(item)
    for one_of, rows in generated.values():
        left_out.update(set(rows) - set(spread(rows, -(-len(rows) // one_of))))
    if config.getoption("--other-rows"):
        skipped = set(config.cache.get(SKIPPED, []))
        left_out = {
            item for item in set(items) - left_out if not {item.nodeid, item.nodeid.partition("::")[0]} & skipped
        }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


SKIPPED = "dovetail/skipped"
_skipped = set()
"""Tests, and files of tests, that this run skipped."""


def pytest_collectreport(report):
    if report.skipped:
        _skipped.add(report.nodeid)


def pytest_runtest_logreport(report):
    if report.skipped:
        _skipped.add(report.nodeid)


def pytest_sessionfinish(session):
    """Keep what was skipped, for a run with `--other-rows` after more is installed."""
    config = session.config
    keeps = config.pluginmanager.hasplugin("cacheprovider") and "PYTEST_XDIST_WORKER" not in os.environ
    if keeps and not config.getoption("--other-rows"):
        config.cache.set(SKIPPED, sorted(_skipped))


def spread(rows, number):
    """So many rows with as many values of their arguments as possible; among equal ones, a hash of their names chooses.

    Of a product of cases, backends and formats, each case, backend and format is there before one is there twice.
    """
    values = {row.nodeid: {(name, id(value)) for name, value in row.callspec.params.items()} for row in rows}
    waiting = [(-len(values[row.nodeid]), zlib.crc32(row.name.encode()), row.nodeid, row) for row in rows]
    heapq.heapify(waiting)
    seen, chosen = set(), []
    while len(chosen) < number:
        gain, *order, row = heapq.heappop(waiting)
        left = -len(values[row.nodeid] - seen)
        if left != gain:  # others had its values meanwhile
            heapq.heappush(waiting, (left, *order, row))
            continue
        seen |= values[row.nodeid]
        chosen.append(row)
    return chosen


def pytest_collection_finish():
    """The collector of garbage looks no more at what the collection made: modules and thousands of tests."""
    gc.collect()
    gc.freeze()


FILE = """
backend: test-fp16
summary: float16 by the autocast lists, on ONNX Runtime
device: cpu
precision: {low: float16, high: float32}
opset: 13..26
dynamic: accept
policies: fp16
types: {f: [float16, float32]}
unlisted: {types: f}
ops:
  LayerNormalization: {policy: pass, set: {stash_type: 1}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""


SOME = FILE.replace("test-fp16", "test-some").replace(
    "unlisted: {types: f}\nops:",
    "unlisted: refuse\nops:\n  MatMul, Relu, Tanh, Add, Max, Where: {types: f}\n  Sinh: {types: float16}",
)


@pytest.fixture(scope="session", autouse=True)
def engine_cache(tmp_path_factory):
    """Engines that tests build are kept for the other tests, and never in the user's folder."""
    for cache in ("RESULT", "ARTIFACT"):
        os.environ[f"DOVETAIL_{cache}_CACHE"] = "off"  # tests of the cache name a folder
    os.environ["DOVETAIL_ENGINE_CACHE"] = str(tmp_path_factory.mktemp("engines"))


@pytest.fixture(scope="session")
def fp16(tmp_path_factory):
    """The installed plugins with `test-fp16`, which takes everything, and `test-some`, which takes a few operators."""
    root = tmp_path_factory.mktemp("backends")
    package = root / "dovetail_backend_of_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "fp16.yaml").write_text(FILE)
    (package / "some.yaml").write_text(SOME)
    sys.path.insert(0, str(root))
    plugins = load_plugins()
    plugins.registry.backend("test-fp16", "dovetail_backend_of_tests:fp16.yaml")
    plugins.registry.backend("test-some", "dovetail_backend_of_tests:some.yaml")
    yield plugins
    sys.path.remove(str(root))


_NUMBERS = itertools.count()  # a package name that was imported once would be found again


def _with_backend(folder, patch):
    def make(*texts):
        plugins = load_plugins()
        patch.syspath_prepend(folder)
        for text in texts:
            package = f"dovetail_inline_backend_{next(_NUMBERS)}"
            (folder / package).mkdir()
            (folder / package / "__init__.py").write_text("")
            (folder / package / "inline.yaml").write_text(text)
            name = next(line.split(":")[1].strip() for line in text.splitlines() if line.startswith("backend:"))
            plugins.registry.backend(name, f"{package}:inline.yaml")
        return plugins

    return make


@pytest.fixture
def with_backend(tmp_path, monkeypatch):
    """`with_backend(text, ...)`: the installed plugins together with the backends that the texts of files describe."""
    return _with_backend(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def with_backend_of_module(tmp_path_factory):
    """`with_backend` for the fixtures of a module, whose tests only read."""
    with pytest.MonkeyPatch.context() as patch:
        yield _with_backend(tmp_path_factory.mktemp("module_backends"), patch)
