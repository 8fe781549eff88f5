"""Functions that distributions add to the package: found when they are used, and named with who brings them."""

import subprocess
import sys

import dovetail
import pytest


@pytest.fixture
def bring(tmp_path, monkeypatch):
    """Install a distribution with entry points in the group `dovetail.api`."""

    def put(distribution, entry_points, text):
        root = tmp_path / distribution
        info = root / f"{distribution}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"{name} = {target}" for name, target in entry_points.items()]
        (info / "entry_points.txt").write_text("[dovetail.api]\n" + "\n".join(lines) + "\n")
        (root / f"{distribution}_functions.py").write_text(text)
        monkeypatch.syspath_prepend(root)

    yield put
    vars(dovetail).pop("hello", None)
    for name in [name for name in sys.modules if name.endswith("_functions") and name.startswith(("acme", "brick"))]:
        del sys.modules[name]


HELLO = "def hello(who='world'):\n    return f'hello, {who}'\n"


def test_a_function_is_where_users_look_for_it(bring):
    bring("acme", {"hello": "acme_functions:hello"}, HELLO)
    assert "hello" in dir(dovetail)
    assert dovetail.hello("you") == "hello, you"
    from dovetail import hello

    assert hello() == "hello, world"


def test_those_of_the_house_are_there():
    assert {"Builder", "autocast", "bisect", "verify"} <= set(dir(dovetail))


def test_what_nobody_brings_says_who_brings_functions():
    with pytest.raises(AttributeError, match=r"no attribute 'verfy' \(did you mean 'verify'\?\); .* 'dovetail.api'"):
        _ = dovetail.verfy
    assert not hasattr(dovetail, "__wrapped__")
    assert not hasattr(dovetail, "no.name")


@pytest.mark.parametrize("text", ["import nothing_of_this_name", "hullo = 1", "raise SystemExit"])
def test_one_that_does_not_load_is_named_with_its_distribution(bring, text):
    bring("acme", {"hello": "acme_functions:hello"}, text)
    with pytest.raises(dovetail.DovetailError, match="dovetail.hello of acme cannot be loaded from acme_"):
        _ = dovetail.hello
    assert callable(dovetail.verify), "the rest works"


def test_a_name_that_two_bring_is_an_error_that_names_both(bring):
    bring("acme", {"hello": "acme_functions:hello"}, HELLO)
    bring("brick", {"hello": "brick_functions:hello"}, HELLO)
    with pytest.raises(dovetail.DovetailError, match=r"brought by (acme .* brick|brick .* acme) "):
        _ = dovetail.hello


def test_core_itself_never_looks_at_what_is_installed():
    code = """
import dovetail
from dovetail import api, compile
import dovetail.errors
from importlib import metadata
metadata.entry_points = metadata.distributions = None
from dovetail import ir, open
assert not hasattr(dovetail, "__wrapped__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
