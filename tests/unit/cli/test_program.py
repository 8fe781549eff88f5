"""The program as a process of its own: it tunes the collector of cyclic garbage, which functions never do."""

import gc
import subprocess
import sys

from dovetail.cli.main import main

REPORT = """
import atexit, gc
from dovetail.cli.main import program
atexit.register(lambda: print(gc.get_threshold()[0], gc.get_freeze_count() > 0))
program()
"""


def test_the_program_collects_rarely_and_freezes_before_the_end():
    done = subprocess.run([sys.executable, "-c", REPORT, "backends"], capture_output=True, text=True)
    assert done.returncode == 0
    threshold, frozen = done.stdout.splitlines()[-1].split()
    assert int(threshold) > gc.get_threshold()[0]
    assert frozen == "True"


def test_the_program_ends_with_the_exit_code_of_the_command():
    done = subprocess.run([sys.executable, "-c", REPORT, "compile", "--backend"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_a_command_called_as_a_function_leaves_the_collector_alone(capsys):
    before, frozen = (gc.get_threshold(), gc.isenabled()), gc.get_freeze_count()
    assert main(["backends"]) == 0
    assert (gc.get_threshold(), gc.isenabled()) == before
    assert gc.get_freeze_count() <= frozen  # what is frozen may be let go of


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-P", "-m", "dovetail", "backends"], capture_output=True, text=True)
    assert done.returncode == 0 and "host" in done.stdout
