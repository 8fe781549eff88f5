"""The journal of a reduction: the answer to every test, so that an interrupted reduction can resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from dovetail.errors import DovetailError
from dovetail_onnx.files.parsing import Malformed, parse_json
from dovetail_onnx.files.reading import read_input
from dovetail_onnx.files.writing import created_folders, named

NAME = "journal.jsonl"

_LARGEST = 1 << 28  # bytes
_CRASHES = 2  # tests that ended the process this often are not run again


class ReductionJournal:
    """Answers by key, each also as a line of a file.

    Args:
        folder: The folder of the file; None keeps the answers in memory.
        identity: What is reduced and how, as plain data; a journal of something else is refused.

    Attributes:
        crashed: Number of candidates left out because they ended the process twice.

    Raises:
        DovetailError: The folder holds other files, or the journal of another reduction.
    """

    def __init__(self, folder: Path | None, identity: Mapping[str, Any]):
        self._answers: dict[str, bool] = {}
        self._begun: dict[str, int] = {}
        self._file: IO[str] | None = None
        self._folder, self._identity = folder, dict(identity)
        self.crashed = 0
        if folder is None:
            return
        path = folder / NAME
        if folder.exists() and not folder.is_dir():
            raise DovetailError(f"{folder} is a file", "name another folder with -o")
        if path.is_file():
            self._read(path)
        elif folder.exists() and any(folder.iterdir()):
            raise DovetailError(f"{folder} holds files, and no journal of a reduction", "name another folder with -o")

    @property
    def resumed(self) -> int:
        """Number of answers that an earlier run left."""
        return len(self._answers)

    def known(self, key: str) -> bool | None:
        """Return the answer to a test, or None. A test that ended the process twice counts as passed."""
        if key in self._answers:
            return self._answers[key]
        if self._begun.get(key, 0) >= _CRASHES:
            self.crashed += 1
            return False
        return None

    def begin(self, key: str) -> None:
        """Note that a test begins."""
        self._write({"begin": key})

    def abandon(self, key: str) -> None:
        """Note that a test was interrupted by the user, which says nothing about it."""
        self._write({"abandon": key})

    def answer(self, key: str, fails: bool) -> None:
        """Note the answer to a test."""
        self._answers[key] = fails
        self._write({"key": key, "fails": fails})

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, entry: Mapping[str, Any]) -> None:
        if self._folder is None:
            return
        path = self._folder / NAME
        with named(path):
            if self._file is None:
                with created_folders(self._folder):
                    fresh = not path.exists()
                    self._file = path.open("a", encoding="utf-8")
                self._file.write(json.dumps(self._identity) + "\n" if fresh else "\n")  # a cut line ends here
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()

    def _read(self, path: Path) -> None:
        identity = self._identity
        # Not by any other end of a line: names in keys may hold those.
        lines = read_input(path, _LARGEST).decode("utf-8", "replace").split("\n")
        numbered = [(number, entry) for number, line in enumerate(lines, 1) if isinstance(entry := _entry(line), dict)]
        plain = json.loads(json.dumps(identity))
        found = numbered[0][1] if numbered else {}
        if found != plain:
            differs = [key for key in plain if found.get(key) != plain[key]]
            raise DovetailError(
                f"{path} is the journal of another reduction: {', '.join(differs) or 'its identity'} differs",
                "name another folder with -o, or remove this one",
            )
        for number, entry in numbered[1:]:
            match entry:
                case {"key": str(key), "fails": bool(fails)}:
                    self._answers[key] = fails
                case {"begin": str(key)}:
                    self._begun[key] = self._begun.get(key, 0) + 1
                case {"abandon": str(key)}:
                    self._begun[key] = 0
                case _:
                    raise DovetailError(
                        f"{path}:{number}: expected a key with 'fails': true or false, 'begin' or 'abandon'",
                        "remove the line, so that it is tested again, or name another folder with -o",
                    )


def _entry(line: str) -> Any:
    """Parse a line; None for one that was cut off when the process ended."""
    try:
        return parse_json(line)
    except Malformed:
        return None
