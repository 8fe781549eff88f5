"""What people see on a terminal: the table, what stages decided, notes once a day, colors, and what to type next."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DIGITS, DATA = ROOT / "examples/digits/digits.onnx", ROOT / "examples/digits/test.npz"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def terminal(tmp_path, monkeypatch):
    """Run `dovetail` in a pseudo-terminal, with a cache folder of its own; return its code and all that it shows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def run(*arguments, **environment):
        ours, theirs = pty.openpty()
        command = [Path(sys.executable).with_name("dovetail"), *map(str, arguments)]
        with subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env={**os.environ, **environment}
        ) as process:
            os.close(theirs)
            shown, end = b"", time.monotonic() + 240
            while time.monotonic() < end and select.select([ours], [], [], 240)[0]:
                try:
                    part = os.read(ours, 65536)
                except OSError:  # the other side is closed
                    break
                if not part:
                    break
                shown += part
        os.close(ours)
        return process.returncode, shown.decode()

    return run


def lines_of(shown):
    """The lines that are left once the progress bar is gone, without colors."""
    lines = [ESCAPE.sub("", line.rpartition("\x1b[2K")[2]) for line in shown.splitlines()]
    return [line for line in lines if line.strip() and "\u2501" not in line]


def test_the_last_screen_says_what_was_decided_and_what_to_type_next(terminal):
    code, shown = terminal("compile", DIGITS, "--backend", "cpu-bf16", "--pin", "conv_2=host", "-o", "out")
    assert code == 0, shown
    lines = lines_of(shown)
    start = next(i for i, line in enumerate(lines) if line.startswith("prepare"))
    assert lines[start] == "prepare   13 nodes; 3 folded or removed (BatchNormalization 3)"
    assert lines[start + 1].startswith("decide    cpu-bf16 12/13 nodes in 2 regions (bfloat16 9, float32 3), host 1")
    assert lines[start + 2] == "carry out 3 regions"
    assert lines[-2] == "cpu-bf16 12/13 nodes in 2 regions, host 1; 4 conversions"
    assert lines[-1].startswith("next: dovetail explain out --all  (says why 1 of 13 nodes are not on cpu-bf16")
    assert "\x1b[1mcpu-bf16 12/13 nodes" in shown and "\x1b[33mnote:" in shown


@pytest.mark.slow
def test_a_note_is_said_once_a_day_or_with_v(terminal):
    request = ("compile", DIGITS, "--backend", "cpu-bf16", "-o", "out")
    note = "leaves extents of 'image'"
    assert note in terminal(*request)[1]
    again = terminal(*request)[1]
    assert note not in again and "as earlier today: -v shows all" in again
    assert note in terminal(*request, "-v")[1]


def test_no_color_asks_for_none(terminal):
    code, shown = terminal("compile", DIGITS, "--backend", "host", "-o", "out", NO_COLOR="1")
    assert code == 0
    last = shown.rpartition("prepare")[2]
    assert not re.search(r"\x1b\[[0-9;]*m", last.replace("\x1b[0m", "").replace("\x1b[1m", ""))


@pytest.mark.slow
def test_the_rounds_of_a_goal_are_shown_as_they_come(terminal):
    request = "--backend", "cpu-int8", "--data", DATA, "--min-snr", "50"
    code, shown = terminal("compile", DIGITS, *request, "-o", "out")
    assert code == 0, shown
    lines = lines_of(shown)
    first, *rounds = [line for line in lines if line.startswith(("decide", "round"))]
    assert first.startswith("decide    cpu-int8 13/13 nodes in 1 region (uint8[asymmetric] 11")
    assert rounds[0].startswith("round 2   cpu-int8 13/13 nodes") and any("float32 1" in one for one in rounds)
    assert lines.index(rounds[-1]) < next(i for i, line in enumerate(lines) if line.startswith("verified on"))


def test_v_says_how_long_the_stages_took_without_a_terminal_too(dovetail):
    done = dovetail("compile", DIGITS, "--backend", "cpu-bf16", "-v")
    assert re.search(r"^prepare +\d+\.\d\d s  13 nodes; 3 folded", done.stderr, re.MULTILINE)
    assert "\x1b" not in done.stdout + done.stderr and "next:" not in done.stderr


def test_explain_draws_the_neighborhood(dovetail):
    dovetail("compile", DIGITS, "--backend", "cpu-bf16", "--pin", "conv_2=host", "-o", "out")
    done = dovetail("explain", "out", "relu_1")
    assert done.stdout.splitlines()[2:6] == [
        "  conv_1 (Conv) on cpu-bf16, bfloat16, bfloat16[N,16,8,8]",
        "  │",
        "  ▶ relu_1 (Relu) on cpu-bf16, bfloat16",
        "  └─ ◇ cast bfloat16 to float32 ─ conv_2 (Conv) on host, float32",
    ]
