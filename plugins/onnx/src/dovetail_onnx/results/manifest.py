"""Manifest of a result: its files with their digests."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dovetail import __version__
from dovetail.errors import DovetailError

from dovetail_onnx.files.parsing import parse_json
from dovetail_onnx.files.reading import LinkError, open_inside

MODEL, PLAN, REMARKS, MANIFEST = "model.onnx", "plan.yaml", "remarks.json", "result.json"
COMPARISON = "verification.json"
ARTIFACTS = "artifacts"
"""Folder in a result for artifacts of backends: `artifacts/<backend>/<region>/`."""
ATTACHED = ".npz"
"""Suffix of arrays that belong to the plan; such files may be large, and are not read with the others."""

VERSION = 1
LARGEST = 1 << 24
"""Maximum bytes of a manifest."""


class FileRecord(NamedTuple):
    """One file of a result: its size in bytes and the SHA-256 of its content, in hexadecimal digits."""

    size: int
    sha256: str

    def describes(self, folder: Path, name: str) -> bool:
        """Check whether the file of that name in a folder has this content; false if a link leads to it."""
        try:
            with open_inside(folder, name) as file:
                same = os.fstat(file.fileno()).st_size == self.size
                return same and hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of a result. Equal results have equal manifests: there are no times and no random names.

    Attributes:
        content_digest: The content digest of the model (see `dovetail_onnx.saving`).
        files: Every file by name.
        placements: Node counts as rows of operator, backend, precision, nodes.
        summary: The coverage line.
        origins: Distribution, version and contract of backends and emitters; see `provenance.origins_of`.
    """

    content_digest: str
    files: Mapping[str, FileRecord]
    placements: list[dict[str, Any]] = field(default_factory=list)
    summary: str = ""
    origins: Mapping[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """Return the content of the file `result.json`."""
        files = {name: {"size": file.size, "sha256": file.sha256} for name, file in sorted(self.files.items())}
        document = {"version": VERSION, "dovetail": __version__, "seal": self.content_digest, "files": files}
        document |= {"placements": self.placements, "summary": self.summary}
        return json.dumps(document | ({"origins": self.origins} if self.origins else {}), indent=1) + "\n"

    @classmethod
    def parse(cls, text: bytes, path: Path) -> Manifest:
        """Parse the output of `text`.

        Raises:
            DovetailError: The text is not a manifest of this version.
        """
        try:
            data = parse_json(text, finite=True)
            if not isinstance(data, dict) or data.get("version") != VERSION:
                raise ValueError("another version")
            records = data["files"].items()
            files = {plain_name(name): FileRecord(int(r["size"]), str(r["sha256"])) for name, r in records}
            if MODEL not in files:
                raise ValueError("no model")
            origins = data.get("origins", {})
            if not isinstance(origins, dict):
                raise ValueError("'origins' is no mapping")
            return cls(str(data["seal"]), files, _rows(data["placements"]), str(data["summary"]), origins)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DovetailError(
                f"{path} is not what `dovetail compile` writes ({type(error).__name__}: {error})",
                "compile again into this folder, or name the model file alone",
            ) from None

    @classmethod
    def read(cls, path: Path) -> tuple[bytes, Manifest] | None:
        """Read the manifest at `path`, with its bytes; None if it is missing, or a link or a pipe.

        Raises:
            DovetailError: The file is not a manifest of this version.
        """
        try:
            with open_inside(path.parent, path.name) as file:
                text = file.read(LARGEST)
        except (FileNotFoundError, LinkError):
            return None
        except OSError as error:
            raise DovetailError(f"{path}: {error.strerror}") from error
        return text, cls.parse(text, path)


def _rows(rows: Any) -> list[dict[str, Any]]:
    for row in rows:
        texts = (row["operator"], row["backend"], row["precision"])
        if not all(type(text) is str for text in texts) or type(row["nodes"]) is not int:
            raise ValueError("a row of placements holds something else than three texts and a number")
    return rows


def plain_name(name: str) -> str:
    """Return `name` after checking that it names a file inside a result's folder.

    Files are in the folder itself, or below `artifacts`.

    Raises:
        ValueError: It does not.
    """
    parts = name.split("/")
    plain = all(part and not part.startswith(".") and Path(part).name == part for part in parts)
    if not plain or {"\\", "\0"} & set(name) or len(parts) > 1 and parts[0] != ARTIFACTS:
        raise ValueError(f"{name!r} is not the name of a file in the folder")
    return name
