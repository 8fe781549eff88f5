"""Modules import on systems without the modules of Python that POSIX alone has."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
POSIX = ("fcntl", "grp", "pwd", "resource", "termios")

IMPORTED = """
import contextlib, importlib, json, sys

absent, names = json.loads(sys.argv[1])


def importable():
    found = set()
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
            found.add(name)
    return found


here = importable()  # with what they import of others, which is theirs to guard
for name in [name for name in sys.modules if name.partition(".")[0].startswith("dovetail")]:
    del sys.modules[name]
sys.modules.update(dict.fromkeys(absent))
print(json.dumps([len(here), sorted(here - importable())]))
"""


def modules():
    """The names of all modules of all distributions."""
    for source in (*ROOT.glob("*/src"), *ROOT.glob("plugins/*/src"), *ROOT.glob("backends/*/src")):
        for path in source.rglob("*.py"):
            parts = path.relative_to(source).with_suffix("").parts
            if parts[-1] != "__main__":
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_module_imports_without_what_posix_alone_has(tmp_path):
    names = sorted(modules())
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, json.dumps([POSIX, names])],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    count, lost = json.loads(done.stdout.splitlines()[-1])
    assert lost == []
    assert count > len(names) * 0.8
