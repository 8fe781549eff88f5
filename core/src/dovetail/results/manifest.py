"""The manifest of a result: which files belong to it, with the digest of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dovetail import __version__
from dovetail.errors import DovetailError

__all__ = ["MANIFEST", "MODEL", "PLAN", "REMARKS", "FileRecord", "Manifest"]

MODEL, PLAN, REMARKS, MANIFEST = "model.onnx", "plan.yaml", "remarks.json", "result.json"
VERSION = 1
_LARGEST = 1 << 24  # bytes


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of a result: its size in bytes and the SHA-256 of its content, in hexadecimal digits."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What belongs to a result. Equal results have equal manifests: it holds no time and no random name.

    Attributes:
        seal: The seal of the model (see `dovetail.ir.seal`).
        files: Every file by name.
        placements: How many nodes of each operator are where: rows of operator, backend, precision, nodes.
        summary: The coverage line.
    """

    seal: str
    files: Mapping[str, FileRecord]
    placements: list[dict[str, Any]] = field(default_factory=list)
    summary: str = ""

    def text(self) -> str:
        """The form in the file `result.json`."""
        files = {name: {"size": file.size, "sha256": file.sha256} for name, file in sorted(self.files.items())}
        document = {"version": VERSION, "dovetail": __version__, "seal": self.seal, "files": files}
        return json.dumps(document | {"placements": self.placements, "summary": self.summary}, indent=1) + "\n"

    @classmethod
    def parse(cls, text: bytes, path: Path) -> Manifest:
        """The inverse of `text`.

        Raises:
            DovetailError: The text is no manifest of this version.
        """
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or data.get("version") != VERSION:
                raise ValueError("another version")
            files = {
                _plain(name): FileRecord(int(file["size"]), str(file["sha256"])) for name, file in data["files"].items()
            }
            if MODEL not in files:
                raise ValueError("no model")
            return cls(str(data["seal"]), files, _rows(data["placements"]), str(data["summary"]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DovetailError(
                f"{path} is not what `dovetail compile` writes ({type(error).__name__}: {error})",
                "compile again into this folder, or name the model file alone",
            ) from None

    @classmethod
    def read(cls, path: Path) -> tuple[bytes, Manifest] | None:
        """The manifest at `path` with its bytes; None if there is none.

        Raises:
            DovetailError: What is there is no manifest of this version.
        """
        try:
            with path.open("rb") as file:
                text = file.read(_LARGEST)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DovetailError(f"{path}: {error.strerror}") from error
        return text, cls.parse(text, path)


def _rows(rows: Any) -> list[dict[str, Any]]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("placements are not a list of rows")
    return rows


def _plain(name: str) -> str:
    """A name is one file of the folder, and never a way out of it."""
    if not name or name.startswith(".") or Path(name).name != name or "\\" in name or "\0" in name:
        raise ValueError(f"{name!r} is not the name of a file in the folder")
    return name
