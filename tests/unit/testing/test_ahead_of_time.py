"""Backends that compile ahead of time, under `dovetail probe` and `dovetail check --installed`."""

import itertools
import os
import signal
import time

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail_testing.kit.installed import check_installed
from dovetail_testing.kit.new_backend import new_backend
from dovetail_testing.probe.probing import probe
from onnx import parser

_NUMBERS = itertools.count()


@pytest.fixture
def compiled_backend(tmp_path, monkeypatch):
    """Install the unedited template of `dovetail new-backend NAME --emitter`; return a function with lines to add.

    The lines are put in front of the worker that stands in for the vendor's compiler.
    """

    def install(worker=""):
        name = f"acme-aot-{next(_NUMBERS)}"
        package = f"dovetail_{name.replace('-', '_')}"
        new_backend(name, tmp_path / name, dovetail.load_plugins(), emitter=True)
        site = tmp_path / name / "src"
        info = site / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dovetail-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[dovetail]\n{name} = {package}\n")
        file = site / package / "worker.py"
        file.write_text(worker + file.read_text())
        monkeypatch.syspath_prepend(site)
        return name

    return install


@pytest.mark.slow
def test_a_probe_emits_programs_and_runs_them_within_its_time(compiled_backend):
    name = compiled_backend()
    began = time.monotonic()
    found = probe(name, operators=["Relu"], time_limit=15)
    assert time.monotonic() - began < 15 * 1.1
    assert found.rules["Relu"].types["T"].count("float32") == 1
    assert found.rules["Relu"].is_taken


MISSING = "import acme_sdk_that_is_missing\n"


@pytest.mark.slow
def test_a_missing_tool_is_one_reason_at_once(compiled_backend):
    name = compiled_backend(MISSING)
    found = check_installed(name)
    assert len(found.measured) < 8
    (problem,) = found.problems
    assert "No module named 'acme_sdk_that_is_missing' (pip install onnxruntime)" in problem
    assert any("were not tried: the reason is common to all" in note for note in found.notes)
    with pytest.raises(DovetailError, match=r"for one reason: .*acme_sdk_that_is_missing.*pip install onnxruntime"):
        probe(name, plugins=dovetail.load_plugins())


SLOW = "import time\ntime.sleep(60)\n"


@pytest.mark.slow
@pytest.mark.parametrize("command", [check_installed, probe])
def test_a_tool_that_works_is_ended_at_the_time_limit(compiled_backend, command):
    name = compiled_backend(SLOW)
    began = time.monotonic()
    found = command(name, time_limit=12)
    assert time.monotonic() - began < 12 * 1.1
    assert found.unfinished


def test_an_engine_that_runs_programs_alone_is_an_error(compiled_backend, tmp_path, capsys):
    name = compiled_backend()
    file = tmp_path / "found.backend.yaml"
    assert main(["probe", f"{name}-engine", "--operator", "Relu", "-o", str(file)]) == 1
    assert "name the backend that has both" in capsys.readouterr().err
    assert not file.exists()


NET = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 4] x) => (float[2, 4] y) {{ {nodes} y = Relu(h{last}) }}"""


@pytest.mark.slow
def test_one_process_of_the_tool_serves_all_regions(compiled_backend, tmp_path):
    """Its version is asked, each region is compiled, and each program is loaded and run; a crash starts another one."""
    log = tmp_path / "started"
    name = compiled_backend(f"import os\nopen({str(log)!r}, 'a').write(f'{{os.getpid()}}\\n')\n")
    nodes = [f"a{i} = Relu({f'h{i - 1}' if i else 'x'})  h{i} = Softsign(a{i})" for i in range(12)]
    text = NET.format(nodes="  ".join(nodes), last=len(nodes) - 1)
    compiled = dovetail.compile(parser.parse_model(text), name, plugins=dovetail.load_plugins())
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    first = compiled.run({"x": x})["y"]
    assert compiled.coverage().startswith(f"{name} 13/25 nodes in 13 regions")
    (pid,) = log.read_text().split()
    os.kill(int(pid), signal.SIGKILL)
    os.waitid(os.P_PID, int(pid), os.WEXITED | os.WNOWAIT)  # until then the next call may still reach it
    np.testing.assert_array_equal(compiled.run({"x": x})["y"], first)
    assert len(log.read_text().split()) == 2


def test_a_probe_without_a_name_says_what_is_here(compiled_backend, capsys):
    name = compiled_backend()
    assert main(["probe"]) == 2
    said = capsys.readouterr().err
    assert f"{name} ({name}-engine)" in said and "cpu-bf16 (openvino-cpu)" in said and "other engines: " in said
