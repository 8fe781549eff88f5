"""The examples of the guides are whole: installed as they stand on the page, they run and print what it says."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FENCE = r"\n```\w+\n(.*?)```"


def installed(page, folder):
    """Lay the files of a page into a folder that is on the path, with the entry points of its pyproject."""
    for name, text in re.findall(r"<!-- file: (.*?) -->" + FENCE, page, re.DOTALL):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    facts = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = "".join(f"{name} = {value}\n" for name, value in project["entry-points"]["dovetail"].items())
    (facts / "entry_points.txt").write_text(f"[dovetail]\n{points}")


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted((ROOT / "docs/guides").glob("*.md")), ids=lambda page: page.stem)
def test_the_example(page, tmp_path):
    text = page.read_text(encoding="utf-8")
    installed(text, tmp_path)
    shutil.copytree(ROOT / "examples/digits", tmp_path / "examples/digits")
    scripts = re.findall(r"<!-- test -->" + FENCE, text, re.DOTALL)
    expected = re.findall(r"<!-- output -->" + FENCE, text, re.DOTALL)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for script, printed in zip(scripts, expected, strict=True):
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout == printed


@pytest.mark.parametrize("page", sorted((ROOT / "docs/guides").glob("*.md")), ids=lambda page: page.stem)
def test_every_block_of_code_is_run(page):
    """A block is a file that is installed, or a script that is run; none is left to be believed."""
    lines = page.read_text(encoding="utf-8").splitlines()
    blocks = [number for number, line in enumerate(lines) if line == "```python"]
    assert blocks and [lines[number] for number in blocks if not lines[number - 1].startswith("<!-- ")] == []
