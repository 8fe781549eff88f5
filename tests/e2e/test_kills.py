"""Commands that are killed at any moment: the next command of the same user leaves nothing of them behind.

`DOVETAIL_KILLS=100` kills more often than the default.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

DIGITS = Path("examples/digits").resolve()
KILLS = int(os.environ.get("DOVETAIL_KILLS", "8"))
MODEL, DATA = DIGITS / "digits.onnx", DIGITS / "test.npz"
COMMANDS = {
    "compile": ["compile", MODEL, "--backend", "cpu-bf16", "--data", DATA, "-o", "out"],
    "calibrate and refine": [
        "compile", MODEL, "--backend", "ppl-int8", "--data", DATA, "--refine", "equalize,rounding,bias",
        "-o", "out",
    ],
    "emit": ["compile", MODEL, "--backend", "ppl-int8", "--data", DATA, "-o", "out"],
    "run": ["run", "compiled", "--data", DATA, "-o", "outputs.npz"],
    "tune": [
        "tune", MODEL, "--data", DATA, "--min-snr", "20", "--backend", "cpu-bf16", "--budget", "20", "-o", "tuned",
    ],
    "reduce": ["reduce", MODEL, "--backend", "cpu-bf16", "--data", DATA, "--min-snr", "60", "-o", "small"],
}  # fmt: skip


def start(words, folder, temporary):
    command = [sys.executable, "-P", "-m", "dovetail.cli.main", *map(str, words)]
    return subprocess.Popen(
        command, cwd=folder, env={**os.environ, "TMPDIR": str(temporary)}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


def children_of(pid):
    """The processes below a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *children_of(int(child))]
    return found


def is_running(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.fixture
def place(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "temporary").mkdir()
    assert (
        start(
            ["compile", MODEL, "--backend", "cpu-bf16", "-o", "compiled"], tmp_path / "work", tmp_path / "temporary"
        ).wait()
        == 0
    )
    return tmp_path / "work", tmp_path / "temporary"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="children are listed in /proc")
def test_nothing_is_left_after_the_next_command(place):
    folder, temporary = place
    assert not list(temporary.iterdir())
    numbers = random.Random(0)
    seconds = {}
    left = 0
    for number in range(KILLS):
        name = list(COMMANDS)[number % len(COMMANDS)]
        if name not in seconds:
            begun = time.monotonic()
            assert start(COMMANDS[name], folder, temporary).wait() == 0, name
            seconds[name] = time.monotonic() - begun
            assert not list(temporary.iterdir()), f"{name} leaves something by itself"
        for result in ("out", "tuned", "tuned.tune", "small"):
            shutil.rmtree(folder / result, ignore_errors=True)
        process = start(COMMANDS[name], folder, temporary)
        time.sleep(numbers.uniform(0, seconds[name]))
        workers = children_of(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        left += any(temporary.iterdir())
        until = time.monotonic() + 20
        while any(map(is_running, workers)) and time.monotonic() < until:
            time.sleep(0.01)
        assert not any(map(is_running, workers)), f"{name}: a worker outlives its parent"
        assert start(["plugins"], folder, temporary).wait() == 0
        assert [str(path) for path in temporary.rglob("*")] == [], name
    assert left, "no kill left anything, so nothing was tried"


def test_what_a_living_process_has_stays(place):
    folder, temporary = place
    code = "from dovetail.plugin import TemporaryFolder as T; t = T('mine'); print(t.path, flush=True); input()"
    command, env = [sys.executable, "-c", code], {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as living:
        path = Path(living.stdout.readline().strip())
        assert start(["plugins"], folder, temporary).wait() == 0
        assert path.is_dir()
        living.stdin.write("\n")
        living.stdin.flush()
        living.wait()
    assert not list(temporary.iterdir())


@pytest.mark.slow
def test_a_folder_that_is_not_of_this_user_alone_is_left_alone(place):
    folder, temporary = place
    shared = temporary / f"dovetail-{os.getuid()}"
    (shared / "somebody's").mkdir(parents=True)
    shared.chmod(0o777)
    assert start(["compile", MODEL, "--backend", "cpu-bf16", "-o", "out"], folder, temporary).wait() == 0
    assert [path.name for path in shared.iterdir()] == ["somebody's"]
    assert [path for path in temporary.iterdir() if path != shared] == []


def test_links_in_what_was_left_are_not_followed(place):
    folder, temporary = place
    (folder / "precious").mkdir()
    np.save(folder / "precious" / "x.npy", np.zeros(3))
    root = temporary / f"dovetail-{os.getuid()}"
    root.mkdir(mode=0o700)
    (root / "99-abandoned").mkdir()
    (root / "99-abandoned" / "link").symlink_to(folder / "precious")
    (root / "link").symlink_to(folder / "precious")
    assert start(["plugins"], folder, temporary).wait() == 0
    assert (folder / "precious" / "x.npy").exists() and not (root / "99-abandoned").exists()
