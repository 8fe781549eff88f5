"""Child processes: started in one place, without the current folder on any path, and never longer than their parent."""

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dovetail.plugin import child_environment, run_command
from dovetail.plugin.processes import import_path

ROOT = Path(__file__).parents[3]
ONE_PLACE = ROOT / "core/src/dovetail/plugin/processes.py"
SOURCES = sorted(
    path
    for folder in ("core", "schemas", "plugins", "backends")
    for path in (ROOT / folder).rglob("*.py")
    if path != ONE_PLACE
)
STARTING_MODULES = {"subprocess", "multiprocessing", "pty", "_posixsubprocess"}
STARTING_NAMES = {
    "fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "popen", "startfile", "Popen", "ProcessPoolExecutor",
    "create_subprocess_exec", "create_subprocess_shell", "LocalCluster",
    *(f"{kind}{form}" for kind in ("exec", "spawn") for form in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
}  # fmt: skip
HARMLESS = {"PIPE", "TimeoutExpired", "DEVNULL", "STDOUT"}


def starts(source):
    """The lines of a source text that start processes, or import what does."""
    found = []
    if not any(name in source for name in STARTING_MODULES | STARTING_NAMES):
        return found  # without a tree, which takes milliseconds
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names} & STARTING_MODULES
        elif isinstance(node, ast.ImportFrom):
            of_module = {alias.name for alias in node.names}
            starting = (node.module or "").partition(".")[0] in STARTING_MODULES
            names = of_module - HARMLESS if starting else of_module & STARTING_NAMES
        elif isinstance(node, ast.Attribute):
            names = {node.attr} & STARTING_NAMES
        else:
            continue
        if names:
            found.append(f"{node.lineno}: {', '.join(sorted(names))}")
    return found


def test_no_other_module_starts_a_process():
    found = {str(path.relative_to(ROOT)): starts(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {name: lines for name, lines in found.items() if lines} == {}, f"start it with {ONE_PLACE.name}"


def test_what_runs_in_another_process_is_a_worker_of_a_tool():
    """`demo` runs the command itself, as its reader would."""
    using = {path.name for path in SOURCES if "PythonProcess" in path.read_text(encoding="utf-8")}
    assert using == {"tool.py", "demo.py"}


@pytest.mark.parametrize(
    "text",
    ["import subprocess", "from multiprocessing import Pool", "import os\nos.system('x')", "os.execvp('a', [])",
     "from concurrent.futures import ProcessPoolExecutor", "import asyncio\nasyncio.create_subprocess_exec('x')"],
)  # fmt: skip
def test_the_rule_finds_what_starts_processes(text):
    assert starts(text)


def test_the_one_place_starts_processes():
    assert starts(ONE_PLACE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "given, expected",
    [
        (None, None),
        ("", None),
        (os.pathsep, None),
        (f"{os.pathsep}/a", "/a"),
        (f"/a{os.pathsep}{os.pathsep}b{os.pathsep}", f"/a{os.pathsep}b"),
        (".", "."),
    ],
)
@pytest.mark.parametrize("name", ["PYTHONPATH", "PATH", "LD_LIBRARY_PATH"])
def test_empty_entries_leave_the_search_paths_of_a_child(name, given, expected, monkeypatch):
    monkeypatch.delenv(name, raising=False)
    if given is not None:
        monkeypatch.setenv(name, given)
    assert child_environment().get(name) == expected


def test_a_child_has_a_safe_path_unless_the_user_decided_otherwise(monkeypatch):
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert child_environment()["PYTHONSAFEPATH"] == "1"
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    assert child_environment()["PYTHONSAFEPATH"] == ""


@pytest.mark.parametrize("entry", ["", "HERE", "LINK"])
def test_the_current_folder_is_not_handed_on_unless_it_is_the_users_path(entry, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "link").symlink_to(here)
    monkeypatch.chdir(here)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    entry = {"HERE": str(here), "LINK": str(tmp_path / "link")}.get(entry, entry)
    monkeypatch.setattr(sys, "path", [entry, "/elsewhere"])
    assert import_path() == ["/elsewhere"]
    monkeypatch.setenv("PYTHONPATH", str(here))
    assert import_path() == [part for part in (entry, "/elsewhere") if part]


@pytest.mark.parametrize("command", ["-c 'import planted'", "-m planted"])
def test_a_command_of_the_user_imports_nothing_of_the_current_folder(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("planted.py").write_text("print('planted')")
    code, text = run_command(f"{sys.executable} {command}")
    assert code == 1 and "No module named" in text and not text.startswith("planted")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run_command(f"{sys.executable} {command}") == (0, "planted\n")


def test_a_time_limit_ends_the_children_of_a_command_too(tmp_path):
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="no answer within 0.5 s"):
        run_command("sleep 100 & sleep 100", 0.5)
    assert time.monotonic() - begun < 50


CHILD = """
import ctypes
from dovetail.plugin import end_with_parent
end_with_parent()
print("ready", flush=True)
ctypes.PyDLL(None).sleep(100)  # holds Python's lock, as a compiler of an engine may
"""
PARENT = """
from subprocess import PIPE
from dovetail.plugin import PythonProcess
child = PythonProcess("child", stdout=PIPE)
print(child.pid, flush=True)
{wait}
print(flush=True)
input()
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="whether a process is there is read from /proc")
@pytest.mark.parametrize("wait", ["child.stdout.readline()", ""], ids=["while it computes", "while it starts"])
def test_a_child_ends_with_its_parent_however_that_ends(wait, tmp_path):
    (tmp_path / "child.py").write_text(CHILD)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(wait=wait)], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, text=True,
    )  # fmt: skip
    with parent:
        child = int(parent.stdout.readline())
        parent.stdout.readline()
        parent.kill()
    until = time.monotonic() + 20
    while is_running(child) and time.monotonic() < until:
        time.sleep(0.02)
    assert not is_running(child)


def is_running(pid):
    """Whether a process computes; where nobody waits for orphans, one that has ended stays as a zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="whether a process is there is read from /proc")
def test_a_command_ends_with_the_process_that_runs_it(tmp_path):
    """A worker that is killed leaves no call of a board behind."""
    program = "import dovetail.plugin as p; p.run_command(['sh', '-c', 'echo $$ > pid.new; mv pid.new pid; sleep 100'])"
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path)
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    command = (tmp_path / "pid").read_text().strip()
    parent.kill()
    parent.wait()
    until = time.monotonic() + 20
    while is_running(command) and time.monotonic() < until:
        time.sleep(0.02)
    assert not is_running(command)
