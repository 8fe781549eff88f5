"""Which rows of a table run by default."""

import itertools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import spread

CASES, BACKENDS, FORMATS = ("one", "two", "three", "four", "five"), ("cpu", "gpu", "npu"), ("int8", "float16")
TABLE = """
import pytest

@pytest.mark.generated(one_of=4, others=3)
@pytest.mark.parametrize("b", range(6))
@pytest.mark.parametrize("a", [*range(3), pytest.param(3, marks=pytest.mark.slow)])
def test_table(a, b): pass

@pytest.mark.generated
@pytest.mark.parametrize("a", [pytest.param(0, marks=pytest.mark.slow)])
def test_slow_rows(a): pass

@pytest.mark.slow
def test_slow(): pass

def test_plain(): pass
"""


def rows(test):
    return {
        f"test_x.py::{test}[{'-'.join(row)}]": dict(zip(("case", "backend", "format"), row, strict=True))
        for row in itertools.product(CASES, BACKENDS, FORMATS)
    }


@pytest.mark.parametrize(("one_of", "count"), [(1, 30), (4, 8), (6, 5), (29, 2), (30, 1), (100, 1)])
def test_every_value_is_there_before_one_is_there_twice(one_of, count):
    table = rows("test_it")
    chosen = [table[name] for name in spread(table, one_of)]
    assert len(chosen) == count
    for argument, values in (("case", CASES), ("backend", BACKENDS), ("format", FORMATS)):
        assert len({row[argument] for row in chosen}) == min(count, len(values))


def test_tests_with_the_same_rows_get_the_same_ones():
    first, second = (spread(rows(test), 6) for test in ("test_it", "test_something_else"))
    assert {name.partition("[")[2] for name in first} == {name.partition("[")[2] for name in second}


@pytest.fixture
def collected(tmp_path):
    """The tests of a table that a run has, by its options."""
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "changed.py"):
        shutil.copy(Path(__file__).parents[1] / name, tmp_path / "tests")
    (tmp_path / "tests/test_table.py").write_text(TABLE)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n")

    def run(*options):
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        return {line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line}

    return run


def test_a_default_run_and_the_other_rows_have_nothing_in_common(collected):
    all_, default, others = collected("--all-rows"), collected(), collected("--other-rows")
    assert len(all_) == 24 + 1 + 1 + 1
    assert len(default) == 5 + 1 and {"test_plain"} < default < all_, "of 18 rows that are not slow"
    assert len(others) == 7 + 1 + 1 and others < all_ - default, "of the 19 that are left"
    assert {"test_slow", "test_slow_rows[0]"} < others
