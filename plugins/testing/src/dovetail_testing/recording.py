"""Results in a JSON lines file, appended as they arrive; recorded cases are not run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail_onnx.files.reading import UnreadableInput, read_input

from dovetail_testing.case import CaseMeasurement

if TYPE_CHECKING:
    from dovetail.passes import BackendChoice
    from dovetail.plugin import PluginSet


_BEGINNINGS = ('{"made_with": "', '{"begun": "')
_MOST_STARTS = 2  # a case that crashed the process is retried once


class Recording:
    """The results of earlier runs, and those of this one.

    A line is a measurement, or the start of a case: a case that was started twice without a result crashed the process.

    Args:
        path: The file, created if missing. None keeps results only in memory.
        made_with: Fingerprint of further inputs of results, by backend; other results are ignored.

    Raises:
        DovetailError: The file cannot be read or written, or is not such a file.
    """

    def __init__(self, path: Path | None, made_with: Mapping[str, str]):
        self.path = path
        self.outdated = 0
        self._made_with = made_with
        self._results: dict[tuple[str, str], CaseMeasurement] = {}
        self._starts: dict[tuple[str, str], int] = {}
        if path is not None:
            self._read(path)

    def get(self, backend: str, key: str) -> CaseMeasurement | None:
        """Return the result of a case on a backend; None if it must be run."""
        return self._results.get((backend, key))

    def ended_the_process(self, backend: str, key: str) -> bool:
        """Check whether the process crashed more than once in a case."""
        return (backend, key) not in self._results and self._starts.get((backend, key), 0) >= _MOST_STARTS

    def results(self) -> Iterator[CaseMeasurement]:
        """Yield all results."""
        yield from self._results.values()

    def begin(self, backend: str, key: str) -> None:
        """Record the start of a case."""
        self._append({"begun": key, "backend": backend, "made_with": self._made_with.get(backend, "")})

    def add(self, measured: CaseMeasurement) -> None:
        """Record a result."""
        self._results[measured.backend, measured.key] = measured
        self._append({"made_with": self._made_with.get(measured.backend, ""), **measured.as_dict()})

    def _append(self, data: Mapping[str, Any]) -> None:
        if self.path is None:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(data, ensure_ascii=False) + "\n")
        except OSError as error:
            raise DovetailError(f"{self.path} could not be written: {error.strerror or error}") from error

    def _read(self, path: Path) -> None:
        if path.exists():
            try:
                text = read_input(path).decode("utf-8")
            except UnreadableInput as error:
                raise DovetailError(f"{path}: {error.problem}", "name another file") from error
            except UnicodeDecodeError as error:
                raise _not_ours(path, 1, "it is no text") from error
            lines = text.split("\n")
            for number, line in enumerate(lines, start=1):
                if line:
                    self._take(path, number, line)
            if lines[-1]:
                # The process was killed while writing; continue on a new line.
                self._break_line(path)
        else:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            except OSError as error:
                raise DovetailError(f"{path} could not be made: {error.strerror or error}") from error

    def _break_line(self, path: Path) -> None:
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write("\n")
        except OSError as error:
            raise DovetailError(f"{path} could not be written: {error.strerror or error}") from error

    def _take(self, path: Path, number: int, line: str) -> None:
        try:
            data = json.loads(line)
            if not isinstance(data, dict) or not isinstance(data.get("made_with"), str):
                raise ValueError("'made_with' is missing")
            made_with = data.pop("made_with")
            if "begun" in data:
                key = str(data["backend"]), str(data["begun"])
                if made_with == self._made_with.get(key[0], made_with):
                    self._starts[key] = self._starts.get(key, 0) + 1
                return
            measured = CaseMeasurement.from_dict(data)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if _is_cut(line):
                return
            raise _not_ours(path, number, str(error)) from error
        if made_with != self._made_with.get(measured.backend, made_with):
            self.outdated += 1
            return
        self._results[measured.backend, measured.key] = measured


def _is_cut(line: str) -> bool:
    """Check whether a line is truncated, because the process was killed while writing."""
    return line.startswith(_BEGINNINGS) and not line.endswith("}")


def fingerprint(choice: BackendChoice, plugins: PluginSet, options: Mapping[str, Any]) -> str:
    """Return a hash of the further inputs of a result: versions, backend files, and options."""
    from importlib.metadata import PackageNotFoundError, version

    from dovetail.plugin.loading import load_chosen

    backend = load_chosen(plugins.registry, choice)
    files = [source.read_bytes() for source in backend.files or ()]
    versions = {record.distribution: record.version for record in plugins.plugins if record.status == "ok"}
    for name in ("onnx", "onnxruntime", "onnxruntime-gpu", "openvino", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    digest = hashlib.sha256(json.dumps([sorted(versions.items()), sorted(map(str, options.items()))]).encode())
    for content in files:
        digest.update(content)
    return digest.hexdigest()[:16]


def _not_ours(path: Path, number: int, problem: str) -> DovetailError:
    return DovetailError(
        f"{path}:{number}: no line of conformance results: {problem}",
        "name a file that --dovetail-resume or --resume made",
    )
