"""`new-backend`: what it writes installs, checks, passes its own tests and compiles a model, as it is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DIGITS = Path(__file__).parents[2] / "examples" / "digits"

KINDS = {
    "acme-float": ["--engine"],
    "acme-int8": ["--int8", "--engine"],
    "acme-plain": [],
    "acme-q": ["--int8"],
    "acme-gpu": ["--from", "gpu-fp16", "--engine"],
    "acme-npu": ["--emitter"],
    "acme-npu-int8": ["--emitter", "--int8"],
    "acme-npu-quantizes": ["--quantizes"],
}
SLOW = pytest.mark.skipif(not os.environ.get("DOVETAIL_SLOW"), reason="minutes: DOVETAIL_SLOW=1 runs it")
PARTS = [
    ("acme-npu", "net or relu"),
    pytest.param("acme-int8", "net or relu", marks=pytest.mark.slow),
    pytest.param("acme-npu-quantizes", "net or relu", marks=pytest.mark.slow),
    pytest.param("acme-float", "not nodes or relu or conv", marks=pytest.mark.slow),
]
WHOLE = [(name, "") for name in KINDS] if os.environ.get("DOVETAIL_SLOW") else []


@pytest.fixture(scope="module")
def made(tmp_path_factory, pip_installed):
    """`made(name)`: the folder that `new-backend` wrote, and where pip installed it."""
    known = {}

    def make(name):
        if name not in known:
            folder = tmp_path_factory.mktemp("made") / f"dovetail-{name}"
            command = [sys.executable, "-m", "dovetail.cli.main", "new-backend", name, *KINDS[name], "-o", folder]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            known[name] = folder, str(pip_installed(folder))
        return known[name]

    return make


@pytest.mark.generated
@pytest.mark.parametrize("name", KINDS)
def test_it_is_installed_and_compiles_a_model(dovetail, made, name):
    _, site = made(name)
    arguments = (
        "compile",
        DIGITS / "digits.onnx",
        "--backend",
        name,
        "--data",
        DIGITS / "test.npz",
        "-o",
        "out",
        "--json",
    )
    done = dovetail(*arguments, PYTHONPATH=site)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert sum(row["backend"] == name for row in document["placements"]) >= 2
    (output,) = document["verification"]["outputs"]
    assert output["snr_db"] > 20
    engine = f"{name}-engine" if {"--engine", "--emitter", "--quantizes"} & {*KINDS[name]} else ""
    listed = json.loads(dovetail("backends", "--json", PYTHONPATH=site).stdout)["backends"]
    (found,) = [item for item in listed if item["name"] == name]
    assert not engine or found["engines"][0] == {**found["engines"][0], "name": engine, "available": True}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["acme-float", *(pytest.param(name, marks=SLOW) for name in ("acme-int8", "acme-gpu", "acme-npu"))]
)
def test_it_is_checked(dovetail, made, name):
    """All targets load; nodes on both sides of every limit are made, and run as a reference computes."""
    _, site = made(name)
    done = dovetail("check", "--installed", name, "--json", PYTHONPATH=site)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["problems"] == []
    kinds = {"backend", "conformance", "engine", *({"emitter"} if "--emitter" in KINDS[name] else ())}
    assert {target["kind"] for target in document["targets"]} == kinds
    assert all(limit["accepted"] and limit["refused"] for limit in document["limits"])
    assert name == "acme-gpu" or len(document["limits"]) >= 5
    assert len([one for one in document["measured"] if one["outcome"] == "compared"]) > 9


@pytest.mark.parametrize(("name", "which"), [*PARTS, *WHOLE])
def test_its_own_tests_pass(made, name, which):
    folder, site = made(name)
    chosen = ["-k", which] if which else []
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *chosen,
        folder / "tests",
    ]
    environment = {**os.environ, "PYTHONPATH": site, "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def test_its_file_works_without_an_installation(dovetail, made):
    folder, _ = made("acme-plain")
    file = next(folder.glob("src/*/*.backend.yaml"))
    data = ("--data", DIGITS / "test.npz")
    done = dovetail("compile", DIGITS / "digits.onnx", "--backend", file, *data, "-o", "out")
    assert "acme-plain 12/13 nodes" in done.stdout, done.stderr
    assert "acme-plain" in dovetail("run", "out", *data).stdout
    assert "acme-plain, float16" in dovetail("explain", "out", "conv_1").stdout
    assert "acme-plain" in dovetail("plan", DIGITS / "digits.onnx", "--backend", f"{file}:strategy=autocast").stdout
    bisected = dovetail("bisect", DIGITS / "digits.onnx", "--backend", file, *data).stdout
    assert f"--backend {file}" in bisected, "what it suggests works as it stands"
    assert dovetail("check", file, DIGITS / "digits.onnx").returncode == 0
    assert "acme-plain takes 12 of 13 nodes" in dovetail("coverage", file, DIGITS / "digits.onnx").stdout
    assert dovetail("verify", DIGITS / "digits.onnx", "out", *data).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["../up"], 2, "is no name for a backend"),
        (["Acme"], 2, "is no name for a backend"),
        (["n" * 5_000], 2, "is no name for a backend"),
        (["cpu-bf16"], 1, "is installed already by dovetail-cpu-bf16"),
        (["host"], 1, "is installed already by dovetail-host"),
        (["acme", "--from", "gpu-fp61"], 1, "did you mean 'gpu-fp16'"),
        (["acme", "--from", "gpu-fp16", "--int8"], 2, "leave one of them out"),
        (["acme", "-o", "taken"], 1, "exists already"),
        (["acme", "-o", "file"], 1, "exists already"),
    ],
)
def test_bad_requests_write_nothing(dovetail, tmp_path, arguments, code, says):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("keep")
    (tmp_path / "file").write_text("keep")
    done = dovetail("new-backend", *arguments)
    assert done.returncode == code
    assert says in done.stderr
    assert len(done.stderr) < 1000
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "mine", "taken"]
