"""`examples/iree` and `examples/ethos_u`: third parties' distributions, whose tools run where a variable has them."""

import ast
import json
import os
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
VENDORS = {
    "iree": ("iree", "DOVETAIL_IREE_ENV", 12, 100),
    "ethos-u": ("ethos_u", "DOVETAIL_ETHOS_U_ENV", 11, 35),
}
"""Folder, the variable that names the environment, nodes of the digits on the backend, and decibels of the result."""

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("backend", VENDORS)]


@pytest.fixture
def example(backend):
    """The folder of the distribution."""
    return ROOT / "examples" / VENDORS[backend][0]


@pytest.fixture
def compiled(dovetail, pip_installed, example, backend, tmp_path):
    """Compile the digits for the backend, with the given environment of its tools; the JSON document of `compile`."""
    np.savez(tmp_path / "rows.npz", image=np.load(DIGITS / "test.npz")["image"][:40])
    site = str(pip_installed(example))

    def run(environment):
        variables = {"PYTHONPATH": site, VENDORS[backend][1]: environment}
        options = ("--fix-shape", "image:1x1x8x8", "--data", "rows.npz", "-o", "out", "--json")
        done = dovetail("compile", DIGITS / "digits.onnx", "--backend", backend, *options, **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), variables

    return run


@pytest.fixture
def tools(backend):
    """The environment with the tools."""
    found = os.environ.get(VENDORS[backend][1])
    return found or pytest.skip(f"{VENDORS[backend][1]} names no environment")


def nodes_on(document, backend):
    return sum(row["nodes"] for row in document["placements"] if row["backend"] == backend)


def test_without_the_tools_another_engine_computes_the_result(compiled, backend, tmp_path):
    document, _ = compiled(str(tmp_path / "nothing"))
    assert f"{VENDORS[backend][1]} names no folder" in json.dumps(document)
    assert nodes_on(document, backend) >= VENDORS[backend][2]
    assert document["verification"]["outputs"][0]["snr_db"] >= VENDORS[backend][3]


def test_programs_compute_the_result_and_the_tool_reports_facts(compiled, dovetail, backend, tools):
    document, variables = compiled(tools)
    assert nodes_on(document, backend) >= VENDORS[backend][2]
    assert document["verification"]["outputs"][0]["snr_db"] >= VENDORS[backend][3]
    why = dovetail("explain", "out", "conv_1", **variables, COLUMNS="1000").stdout
    assert "the tool reports of its program" in why
    words = ("verify", DIGITS / "digits.onnx", "out", "--data", "rows.npz", "--programs", "--min-program-snr", "30")
    done = dovetail(*words, **variables)
    assert done.returncode == 0, done.stderr
    assert "region" in done.stdout


def test_public_names_are_enough(example, backend):
    trees = [ast.parse(path.read_text()) for path in (example / "src").glob("*/*.py")]
    found = {node.module or "" for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = f"dovetail_{VENDORS[backend][0]}.emitter"
    assert {name for name in found if name.startswith("dovetail")} <= {
        "dovetail.plugin", "dovetail_runtime", "dovetail_transforms", own,
    }  # fmt: skip
