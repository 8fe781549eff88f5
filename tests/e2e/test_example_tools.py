"""A distribution outside of the house: a command, an option and a function, used, and broken on purpose."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tests" / "example_tools"
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
PACKAGE = "dovetail_example_tools"


@pytest.fixture(scope="module")
def site(pip_installed):
    return pip_installed(TOOLS)


@pytest.fixture
def broken(site, tmp_path):
    """The folder with one file of the distribution replaced in part."""

    def change(file, old, new):
        folder = shutil.copytree(site, tmp_path / "broken", ignore=shutil.ignore_patterns("__pycache__"))
        path = folder / PACKAGE / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        return str(folder)

    return change


def test_the_command(dovetail, site):
    assert "hello     Greet the backends that are installed." in dovetail("--help", PYTHONPATH=str(site)).stdout
    said = dovetail("hello", PYTHONPATH=str(site)).stdout.splitlines()
    assert {"hello, cpu-bf16", "hello, host"} <= set(said)
    assert '"hello, you"' in dovetail("hello", "you", "--json", PYTHONPATH=str(site)).stdout
    assert dovetail("hello").returncode == 2, "it is not installed"


def test_the_option_of_the_command_and_of_the_function(dovetail, site):
    compile_ = ("compile", DIGITS, "--backend", "host", "-o", "out")
    done = dovetail(*compile_, "--hello", "you", PYTHONPATH=str(site))
    assert done.returncode == 0, done.stderr
    assert Path("out/hello.txt").read_text() == "hello, you: host 13; 0 joins\n"
    assert dovetail(*compile_, "--hello", "", PYTHONPATH=str(site)).returncode == 2
    code = f"""
import dovetail
compiled = dovetail.compile({str(DIGITS)!r}, "host", hello="me")
print(compiled.files["hello.txt"], compiled.plan.summary["options"], dovetail.hello(), "hello" in dir(dovetail))
try:
    dovetail.compile({str(DIGITS)!r}, "host", helo="me")
except dovetail.UsageError as error:
    print(error.message)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(site)}
    )
    assert done.stdout == (
        "hello, me: host 13; 0 joins\n {'hello': {'who': 'me'}} hello, world True\n"
        "dovetail.compile has no keyword 'helo' (did you mean 'hello'?)\n"
    ), done.stderr


IMPORT = ("command.py", "from dovetail.cli.common import", "from dovetail.cli.gone import")
REGISTER = ("__init__.py", "from dovetail.plugin import hookimpl", "import nothing_of_this_name")
RUN = ("command.py", "names = [", "names = 1 / 0, [")
OPTION = ("option.py", "from dovetail.plugin import UsageError", "import nothing_of_this_name")
COMPILE = ("option.py", "compiled = proceed()", "compiled = proceed(); 1 / 0")


@pytest.mark.parametrize(
    ("change", "command", "code", "says"),
    [
        (IMPORT, ["--help"], 0, "warning: command 'hello' of dovetail-example-tools cannot be loaded"),
        (IMPORT, ["hello"], 1, "error: command 'hello' of dovetail-example-tools cannot be loaded"),
        (REGISTER, ["--help"], 0, "warning: plugin example-tools (dovetail-example-tools): does not import"),
        (RUN, ["hello"], 1, "error: command 'hello' of dovetail-example-tools raised ZeroDivisionError"),
        (OPTION, ["compile"], 0, "warning: option 'hello' of dovetail-example-tools cannot be loaded"),
        (COMPILE, ["compile"], 1, "error: option 'hello' of dovetail-example-tools raised ZeroDivisionError"),
    ],
    ids=["import, listed", "import, called", "register", "run", "option", "compile"],
)
def test_broken_on_purpose(dovetail, broken, change, command, code, says):
    folder = broken(*change)
    more = [DIGITS, "--backend", "host"] if command == ["compile"] else []
    done = dovetail(*command, *more, PYTHONPATH=folder)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    rest = dovetail("compile", DIGITS, "--backend", "host", "--no-plugin", "example-tools", PYTHONPATH=folder)
    assert (rest.returncode, rest.stderr) == (0, "")


@pytest.mark.parametrize("file", ["__init__.py", "command.py", "option.py", "greeting.py"])
def test_the_plugin_page_shows_its_files(file):
    text = (TOOLS / "src" / PACKAGE / file).read_text()
    assert f"```python\n{text}```\n" in (ROOT / "docs/plugins.md").read_text()
