"""A metadata hook of dovetail-all: `pip install .` takes its members from wheels that are built here in one process.

pip would make an environment with hatchling for each of them, one after the other, which takes half of an installation.
A wheel's version ends in a digest of its content, `0.1.0+tree5f0c...`, because pip does not install again what it has
installed in the same version. Other front ends (uv, `python -m build`), and pip without the folders, get the members
by their version; uv finds them in the workspace.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.plugin.interface import MetadataHookInterface

_IN_ROOT = "{root:uri}/"
_PIP = "PIP_BUILD_TRACKER"  # pip sets it for every build


class MemberWheels(MetadataHookInterface):
    """Requires what `dependencies` of the hook's table lists: wheels of its folders for pip, else their versions."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict) -> None:
        """Write the requirements; build the wheels that are missing."""
        root = Path(self.root)
        members = dict(requirement.split(f" @ {_IN_ROOT}") for requirement in self.config["dependencies"])
        if _PIP in os.environ and all((root / folder).is_dir() for folder in members.values()):
            metadata["dependencies"] = list(_by_wheel(root, members))
        else:
            metadata["dependencies"] = [f"{name}=={metadata['version']}" for name in members]


def _by_wheel(root: Path, members: dict[str, str]) -> Iterator[str]:
    wheels = root / "build/wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for name, folder in members.items():
        yield f"{name} @ {wheel_of(root / folder, wheels).as_uri()}"


def wheel_of(folder: Path, wheels: Path) -> Path:
    """Return the wheel of a distribution as its folder is now, built if it is not there; earlier ones are removed."""
    config = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    config["project"]["version"] += f"+tree{_digest(folder)}"
    stem = f"{config['project']['name'].replace('-', '_')}-"
    wanted = f"{stem}{config['project']['version']}-py3-none-any.whl"
    if not (wheels / wanted).exists():
        with tempfile.TemporaryDirectory(dir=wheels) as made:
            (built,) = WheelBuilder(str(folder), config=config).build(directory=made, versions=["standard"])
            os.replace(built, wheels / wanted)  # in one step: several installations may run at once
    for other in wheels.glob(f"{stem}*.whl"):
        if other.name != wanted:
            other.unlink(missing_ok=True)
    return wheels / wanted


def _digest(folder: Path) -> str:
    """Return a digest of all that a wheel may hold."""
    found = hashlib.sha256()
    for path in [*sorted(folder.glob("[!.]*")), *sorted((folder / "src").rglob("*"))]:
        if path.is_file() and "__pycache__" not in path.parts:
            content = path.read_bytes()
            found.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode() + content)
    return found.hexdigest()[:12]
