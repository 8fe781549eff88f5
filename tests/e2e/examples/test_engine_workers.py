"""`--cluster`: an accelerator that only one worker has runs what is compiled for it, for commands on a machine without.

Three processes play three machines: this one and a worker have no accelerator, another worker has one.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed")
ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
HERE = {"ACME_DEVICE": "none", "DOVETAIL_TASK_TIMEOUT": "60"}


@pytest.fixture(scope="module")
def site(pip_installed):
    return pip_installed(ROOT / "tests" / "example_engine")


@pytest.fixture
def acme(dovetail, site):
    """The command line on a machine without the accelerator."""
    return lambda *arguments: dovetail(*arguments, PYTHONPATH=str(site), **HERE)


class Cluster:
    """A scheduler, and workers that have the accelerator or not."""

    def __init__(self, folder, site):
        self.file, self.site, self.processes = folder / "scheduler.json", site, []
        self._start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", self.file)
        until = time.monotonic() + 60
        while not (self.file.exists() and self.file.read_text().strip()) and time.monotonic() < until:
            time.sleep(0.05)
        self.address = json.loads(self.file.read_text())["address"]

    def worker(self, *options, **environment):
        more = ["--nthreads", "1", "--no-nanny", "--scheduler-file", self.file, *options]
        return self._start("dask_worker", *more, **environment)

    def _start(self, module, *arguments, **environment):
        command = [sys.executable, "-m", f"distributed.cli.{module}", "--no-dashboard", *map(str, arguments)]
        variables = {**os.environ, "PYTHONPATH": str(self.site), **environment}
        self.processes.append(
            subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
        return self.processes[-1]

    def wait_for(self, number):
        from distributed import Client

        with Client(self.address) as client:
            client.wait_for_workers(number, timeout=120)

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path_factory, site):
    made = Cluster(tmp_path_factory.mktemp("cluster"), site)
    yield made
    made.close()


@pytest.fixture
def both(cluster):
    cluster.worker(ACME_DEVICE="none")
    cluster.worker()
    cluster.wait_for(2)
    return cluster


@pytest.fixture
def compiled(acme, tmp_path):
    """A result whose programs nothing here runs, and data in files."""
    images = np.load(ROOT / "examples" / "digits" / "test.npz")["image"]
    (tmp_path / "data").mkdir()
    for number in range(4):
        np.savez(tmp_path / "data" / f"{number}.npz", image=images[4 * number : 4 * number + 4])
    np.savez(tmp_path / "one.npz", image=images[:4])
    done = acme("compile", DIGITS, "-o", "out", "--backend", "acme-aot", "--target-only")
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_the_worker_with_the_accelerator_runs_and_verifies(acme, both, compiled, dovetail, site):
    alone = acme("run", "out", "--data", "data")
    assert alone.returncode == 1 and "acme-aot has no engine here" in alone.stderr
    for data in ("data", "one.npz"):
        done = acme("run", "out", "--data", data, "--cluster", both.address, "-o", "there.npz")
        assert done.returncode == 0, done.stderr
        assert dovetail("run", "out", "--data", data, "-o", "same.npz", PYTHONPATH=str(site)).returncode == 0
        there, same = np.load("there.npz"), np.load("same.npz")
        assert there.files == same.files and all(np.array_equal(there[name], same[name]) for name in same.files)
    verified = acme("verify", DIGITS, "out", "--data", "data", "--cluster", both.address, "--json")
    expected = dovetail("verify", DIGITS, "out", "--data", "data", "--json", PYTHONPATH=str(site))
    assert json.loads(verified.stdout) == json.loads(expected.stdout)
    assert json.loads(verified.stdout)["engines"] == ["acme-runtime (acme-aot)"]
    without = acme("verify", DIGITS, "out", "--cluster", both.address)
    assert "acme-runtime is on workers alone" in without.stderr and "give --data" in without.stderr


def test_without_a_worker_that_has_it_one_message_says_what_they_offer(acme, cluster, compiled):
    cluster.worker(ACME_DEVICE="none")
    cluster.wait_for(1)
    done = acme("run", "out", "--data", "data", "--cluster", cluster.address)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error: no worker has an engine of acme-aot (acme-runtime: there is no accelerator)" in done.stderr
    assert re.search(r"tcp://127\.0\.0\.1:\d+ has .*onnxruntime-cpu", done.stderr)


def test_a_program_for_another_revision_is_the_error_of_the_worker(acme, cluster, compiled):
    cluster.worker(ACME_REVISION="3")
    cluster.wait_for(1)
    done = acme("run", "out", "--data", "data", "--cluster", cluster.address)
    assert done.returncode == 1
    assert "acme-runtime (dovetail-example-engine) is of revision 3, the program of 'region_0' is for 2" in done.stderr


def test_a_probe_and_a_check_are_done_where_the_accelerator_is(acme, both, compiled):
    assert "there is no accelerator" in acme("probe", "acme-aot", "-o", "acme.backend.yaml").stderr
    probe = ("probe", "acme-aot", "-o", "acme.backend.yaml", "--operator", "Relu", "--cluster", both.address)
    done = acme(*probe, "--time-limit", "200")
    assert done.returncode == 0, done.stderr
    assert "acme-runtime computes " in done.stdout and acme("check", "acme.backend.yaml").returncode == 0
    done = acme("check", "--installed", "acme-aot", "--cluster", both.address, "--json", "--time-limit", "60")
    found = json.loads(done.stdout)
    assert found["targets"] and any(one["outcome"] == "compared" for one in found["measured"]), done.stdout
    assert acme("check", "acme.backend.yaml", "--cluster", both.address).returncode == 2


def test_a_tuning_is_done_where_the_accelerator_is(acme, cluster, compiled):
    cluster.worker("--resources", "timing=1", ACME_DEVICE="none")
    cluster.wait_for(1)
    command = ("tune", DIGITS, "--backend", "acme-aot", "--data", "data", "--min-snr", "20", "--no-mix", "-o", "best")
    done = acme(*command, "--cluster", cluster.address)
    assert done.returncode == 1 and "no worker has an engine of acme-aot (acme-runtime: there is no" in done.stderr
    cluster.worker("--resources", "timing=1")
    cluster.wait_for(2)
    done = acme(*command, "--cluster", cluster.address, "--budget", "240", "--json")
    assert done.returncode == 0, done.stderr
    tried = {one["name"]: one["engines"] for one in json.loads(done.stdout)["candidates"]}
    assert tried["acme-aot"] == ["acme-runtime", "onnxruntime-cpu"], done.stdout
