"""The recorded programs and nets of Paddle, as the tests beside this module read them."""

import zipfile
from functools import cache
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
ARCHIVE = HERE / "paddle_nets" / "nets.zip"
PROGRAMS = HERE / "paddle_programs"


@cache
def nets() -> list[str]:
    """The programs in the archive: `net.json` of Paddle 3 and `legacy.pdmodel` of Paddle 2."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        return [name for name in archive.namelist() if name.endswith((".json", ".pdmodel"))]


def arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file."""
    with np.load(path) as found:
        return {name: found[name] for name in found.files}


def recorded(program: Path) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """The inputs of a program or net by name, and what Paddle computed, in order."""
    if (program.parent / "io.npz").exists():
        inputs = arrays(program.parent / "io.npz")
        outputs = inputs if program.suffix == ".json" else arrays(program.parent / "legacy.npz")
    else:
        folder = PROGRAMS / "legacy" if program.parent.name == "mixed" else program.parent
        inputs = outputs = arrays(folder / f"{program.stem}.npz")
    found = {int(name.split(":")[1]): array for name, array in outputs.items() if name.startswith("out:")}
    given = {name.removeprefix("in:"): array for name, array in inputs.items() if name.startswith("in:")}
    return given, [found[at] for at in sorted(found)]
