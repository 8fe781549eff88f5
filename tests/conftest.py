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
        help="run what the last run without it left out or skipped, such as for a tool; of large tables a part",
    )


MANY = 12  # rows of a table, of which `--other-rows` runs every second one
POOLS = ("averagepool", "lppool", "maxpool")


def all_rows(config):
    return config.getoption("--all-rows") or bool(os.environ.get("DOVETAIL_SLOW"))


def is_of_pools(name):
    """Whether a test is an operator test of pooling."""
    return any(f"test_{pool}" in name for pool in POOLS)


def pytest_configure(config):
    """Leave out the operator tests of pooling unless all rows run: onnx takes 14 seconds in every process for them."""
    for name in () if all_rows(config) or config.getoption("--other-rows") else POOLS:
        name = f"onnx.backend.test.case.node.{name}"
        sys.modules.setdefault(name, types.ModuleType(name))
    if config.getoption("--other-rows"):
        config.stash[SKIPPED_BEFORE] = frozenset(config.cache.get(SKIPPED, []))


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc):
    """Choose among rows that are marked as generated, before pytest makes a test of each: one of six runs.

    `generated(one_of=40, others=8)` says how many rows one stands for, if not six, and for how many with
    `--other-rows`, if not one, or two where there are many. See `spread` for which.
    """
    yield
    test, config = metafunc.definition, metafunc.config
    mark = test.get_closest_marker("generated")
    if mark is None or all_rows(config) or test.get_closest_marker("slow"):
        return
    rows = {f"{test.nodeid}[{row.id}]": row for row in metafunc._calls}  # nothing public has them
    quick = {
        name: row.params
        for name, row in rows.items()
        if not is_of_pools(name) and all(each.name != "slow" for each in row.marks)
    }
    kept = spread(quick, mark.kwargs.get("one_of", 6))
    if config.getoption("--other-rows"):
        others = {name: row.params for name, row in rows.items() if name not in kept}
        usual = 2 if len(others) > MANY else 1
        kept = spread(others, mark.kwargs.get("others", usual)) | {name for name in rows if was_skipped(name, config)}
    if kept or config.getoption("--other-rows"):  # all rows may be slow; they are left out below
        metafunc._calls[:] = [row for name, row in rows.items() if name in kept]


def pytest_collection_modifyitems(config, items):
    """Leave out what is marked as slow; with `--other-rows`, what ran without it."""
    if all_rows(config):
        return
    left_out = {item for item in items if item.get_closest_marker("slow") or is_of_pools(item.name)}
    if config.getoption("--other-rows"):
        chosen = {item for item in items if item.get_closest_marker("generated") and hasattr(item, "callspec")}
        left_out = {item for item in set(items) - left_out - chosen if not was_skipped(item.nodeid, config)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


SKIPPED = "dovetail/skipped"
SKIPPED_BEFORE = pytest.StashKey()
_skipped, _files = set(), set()
"""Tests, and files of tests, that this run skipped, and the files of which it ran anything."""


def was_skipped(name, config):
    """Whether the last run of it without `--other-rows` skipped a test, or the file that it is in."""
    return bool({name, file_of(name)} & config.stash[SKIPPED_BEFORE])


def file_of(name):
    return name.partition("::")[0]


def pytest_collectreport(report):
    if report.skipped:
        _skipped.add(report.nodeid)


def pytest_runtest_logreport(report):
    _files.add(file_of(report.nodeid))
    if report.skipped:
        _skipped.add(report.nodeid)


def pytest_sessionfinish(session):
    """Keep what was skipped, for a run with `--other-rows` after more is installed; of other files, what was before."""
    config = session.config
    keeps = config.pluginmanager.hasplugin("cacheprovider") and "PYTEST_XDIST_WORKER" not in os.environ
    if keeps and not config.getoption("--other-rows"):
        before = {name for name in config.cache.get(SKIPPED, []) if file_of(name) not in _files}
        config.cache.set(SKIPPED, sorted(before | _skipped))


def spread(rows, one_of):
    """The names of one of so many rows, with as many values of their arguments as possible; then a hash chooses.

    Of a product of cases, backends and formats, each case, backend and format is there before one is there twice. Tests
    with the same rows get the same ones, so that they share what fixtures compile.

    Args:
        rows: The arguments of each row, by its name.
        one_of: How many rows there are for one of these.
    """
    values = {name: {(argument, id(value)) for argument, value in row.items()} for name, row in rows.items()}
    waiting = [(-len(held), zlib.crc32(name.partition("[")[2].encode()), name) for name, held in values.items()]
    heapq.heapify(waiting)
    seen, chosen = set(), set()
    while len(chosen) * one_of < len(rows):
        gain, order, name = heapq.heappop(waiting)
        left = -len(values[name] - seen)
        if left != gain:  # others had its values meanwhile
            heapq.heappush(waiting, (left, order, name))
            continue
        seen |= values[name]
        chosen.add(name)
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
