"""Ctrl-C before the command begins, and what the operating system refuses: one line each, and nobody's defect."""

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from dovetail.errors import system_error

DIGITS = Path("examples/digits").resolve()

INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.{handler})
from dovetail.cli.main import program

class Interrupting:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["dovetail", "backends"]
program()
"""


@pytest.mark.parametrize(
    "module",
    ["dovetail.cli.deferred", "dovetail.cli.invocation", "argparse", "dovetail.plugin.loading.loader", "dovetail_host"],
)
def test_an_interrupt_while_modules_are_imported_has_no_traceback(module, tmp_path):
    code = INTERRUPTED.format(module=module, handler="default_int_handler")  # as a program in the foreground has it
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_an_ignored_interrupt_stays_ignored(tmp_path):
    """A shell has it ignored for what runs in the background."""
    code = INTERRUPTED.format(module="dovetail.cli.invocation", handler="SIG_IGN")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize(
    ("code", "place", "says", "advice"),
    [
        (errno.ENOSPC, "/full/x", "doing: /full/x: no space is left", "free some space"),
        (errno.EDQUOT, None, "no space is left", "TMPDIR"),
        (errno.EFBIG, None, "File too large", "ulimit -f"),
        (errno.EMFILE, None, "doing: Too many open files", "ulimit -n"),
        (errno.EACCES, "x", "doing: x: Permission denied", "permissions"),
        (errno.EIO, None, "doing: Input/output error", "--debug"),
    ],
)
def test_the_reason_of_the_operating_system_is_the_message(code, place, says, advice):
    error = system_error(OSError(code, os.strerror(code), place), "doing")
    assert says in error.message and advice in error.hint and "defect" not in str(error)


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("words", [["-o", "out"], ["--refine", "equalize,rounding,bias", "-o", "out"]])
def test_a_limit_on_the_size_of_files_is_no_defect_of_a_pass(words, tmp_path):
    command = [sys.executable, "-P", "-m", "dovetail.cli.main", "compile", str(DIGITS / "digits.onnx")]
    command += ["--backend", "ppl-int8", "--data", str(DIGITS / "test.npz"), *words]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)),
    )  # fmt: skip
    assert done.returncode == 1 and "File too large" in done.stderr
    assert "defect" not in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
