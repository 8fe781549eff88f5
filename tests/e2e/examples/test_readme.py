"""The examples of the README, the tour, tutorials, plugin pages and pages on transforms run, and print what they say.

A fenced block directly after `<!-- test -->` is executed: shell blocks by `bash -e`, Python blocks by Python, one after
the other in one copy of the examples, without lines that install; a distribution below `tests` that one of these names
is installed for its block. A block after `<!-- output -->` must appear line by line in what the one before it printed;
numbers may differ. A block after `<!-- file: NAME -->` is a file that is there when the others run. For the pages on
kinds of plugins, `tests/example_tools` is installed.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from dovetail_runtime.processor import has_bfloat16, saturates_dot_products

from .. import program_server

ROOT = Path(__file__).parents[3]
README, TOUR = ROOT / "README.md", ROOT / "docs/tour.md"
PLUGINS, LOWERING = ROOT / "docs/plugins.md", ROOT / "docs/lowering.md"
DECOMPOSITIONS = ROOT / "docs/decompositions.md"
REPORT, ADAPTERS = ROOT / "plugins/report/README.md", ROOT / "plugins/adapters/README.md"
KINDS = sorted((ROOT / "docs/kinds").glob("*.md"))
WALKS = [
    *sorted((ROOT / "docs/tutorials").glob("*.md")),
    ROOT / "docs/placement.md",
    ROOT / "docs/reference/python.md",
]
PAGES = [README, TOUR, PLUGINS, LOWERING, DECOMPOSITIONS, REPORT, ADAPTERS, *KINDS, *WALKS]
BLOCK = re.compile(r"^<!-- (test|output) -->\n+```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^<!-- file: (\S+) -->\n+```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
# Without instructions for bfloat16, an engine executes float32.
FLOAT = re.compile(r"\bb?float#")
# What depends on the processor: rows say how nodes were executed, and only some CPUs have instructions for bfloat16 and
# for sums of 8-bit products.
IN_BFLOAT16 = re.compile(r"^cpu-bf16 +bfloat16 +bfloat16 ")
IN_INTEGERS = re.compile(r"^cpu-int8 +\S+ +\S+ +\S+ ")
CAVEAT = re.compile(r"^note: ")


def blocks(page=README):
    """Each tested block as language, text and expected output."""
    found = []
    for kind, language, text in BLOCK.findall(page.read_text(encoding="utf-8")) if page.exists() else ():
        if kind == "test":
            found.append([language, text, ""])
        else:
            assert found, "an output without an example before it"
            found[-1][2] += text
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory, server):
    """A copy of the examples that all blocks share, with programs: later ones use what earlier ones wrote."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "bin").mkdir()
    if server:
        program_server.write_clients(server, folder / "bin")
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder


def test_there_are_examples():
    assert README.exists()
    assert blocks()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_marked_block_is_found(page):
    """A mark that does not stand directly before a fence would test nothing."""
    text = page.read_text(encoding="utf-8")
    marks = re.findall(r"^<!-- (?:test|output|file: .*) -->", text, re.MULTILINE)
    assert len(marks) == len(BLOCK.findall(text)) + len(FILE.findall(text)) > 0


@pytest.mark.parametrize("number", range(len(blocks(PLUGINS))))
def test_example_of_the_plugin_page(folder, number):
    assert_runs_in_order(folder, PLUGINS, number)


@pytest.mark.parametrize("number", range(len(blocks(LOWERING))))
def test_example_of_the_page_on_lowering(folder, number):
    assert_runs_in_order(folder, LOWERING, number)


@pytest.mark.parametrize("number", range(len(blocks(DECOMPOSITIONS))))
def test_example_of_the_page_on_decompositions(folder, number):
    assert_runs_in_order(folder, DECOMPOSITIONS, number)


@pytest.mark.parametrize("number", range(len(blocks(REPORT))))
def test_example_of_the_page_on_reports(folder, number):
    assert_runs_in_order(folder, REPORT, number)


@pytest.mark.parametrize("number", range(len(blocks(ADAPTERS))))
def test_example_of_the_page_on_adapters(folder, number):
    assert_runs_in_order(folder, ADAPTERS, number)


@pytest.fixture(scope="module")
def tools(pip_installed):
    """`tests/example_tools`, installed."""
    return pip_installed(ROOT / "tests" / "example_tools")


@pytest.mark.parametrize(
    ("page", "number"),
    [(page, number) for page in KINDS for number in range(len(blocks(page)))],
    ids=lambda given: getattr(given, "stem", None),
)
def test_example_of_the_pages_on_kinds(folder, tools, page, number):
    for name, text in FILE.findall(page.read_text(encoding="utf-8")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    assert_runs_in_order(folder, page, number, lambda _: {"PYTHONPATH": str(tools)})


@pytest.mark.parametrize("page", WALKS, ids=lambda page: page.stem)
def test_examples_of_a_tutorial(folder, page):
    """One after the other: later ones use what earlier ones wrote."""
    for name, text in FILE.findall(page.read_text(encoding="utf-8")):
        (folder / name).write_text(text, encoding="utf-8")
    for block in blocks(page):
        assert_example_runs(folder, *block, PYTHONPATH=os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))


@pytest.mark.parametrize(
    ("page", "number"),
    [(page, number) for page in (README, TOUR) for number in range(len(blocks(page)))],
    ids=lambda given: getattr(given, "stem", None),
)
def test_example(folder, pip_installed, page, number):
    def environment(text):
        installed = re.findall(r"^pip install \./(tests/\w+)$", text, re.MULTILINE)
        paths = os.pathsep.join(str(pip_installed(ROOT / path)) for path in installed)
        return {"PYTHONPATH": paths} if paths else {}

    assert_runs_in_order(folder, page, number, environment)


RUN = {}
"""How many blocks of a page ran in a folder."""


def assert_runs_in_order(folder, page, number, environment=lambda text: {}):
    """Run a block, after those before it that another process ran, in another folder."""
    found = blocks(page)
    for at in (*range(RUN.get((folder, page), 0), number), number):
        assert_example_runs(folder, *found[at], **environment(found[at][1]))
        RUN[folder, page] = max(RUN.get((folder, page), 0), at + 1)


def assert_example_runs(folder, language, text, expected, **environment):
    if language == "python":
        command = ["bash", "-c", 'exec "$@"', "bash", "python", "-c", text]  # the one of PATH, as in shell blocks
    else:
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("pip install")]
        command = ["bash", "-e", "-c", "\n".join(lines)]
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, **environment}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = [loosely(line) for line in done.stdout.splitlines()]
    position = 0
    for line in expected.splitlines():
        if not line.strip() or CAVEAT.match(line) or has_bfloat16() is False and IN_BFLOAT16.match(line):
            continue
        assert loosely(line) in printed[position:], f"not printed: {line}\n{done.stdout}"
        position = printed.index(loosely(line), position) + 1


def loosely(line):
    """A line with its numbers blurred, float types among them, and its spaces narrowed."""
    return " ".join(FLOAT.sub("float#", NUMBER.sub("#", line)).split())


@pytest.mark.processor
def test_the_recording_shows_what_the_commands_say(dovetail, tmp_path):
    """Numbers may differ; `python docs/_site/recording.py` records them again."""
    picture = ElementTree.parse(ROOT / "docs/images/recording.svg").getroot()
    svg = "{http://www.w3.org/2000/svg}"
    lines = {loosely("".join(line.itertext())) for line in picture.iter(f"{svg}text")}
    for name in ("digits.onnx", "test.npz"):
        shutil.copy(ROOT / "examples/digits" / name, tmp_path / name)
    commands = picture.find(f"{svg}desc").text.splitlines()
    assert len(commands) == 3
    for command in commands:
        done = dovetail(*shlex.split(command)[1:])
        assert done.returncode == 0, done.stderr
        last = [line for line in done.stdout.splitlines() if len(line) < 90][-4:]
        if saturates_dot_products():
            last = [line for line in last if not IN_INTEGERS.match(line)]
        last = [loosely(line) for line in last]
        assert not [line for line in last if line not in lines and not line.startswith("note:")], command
