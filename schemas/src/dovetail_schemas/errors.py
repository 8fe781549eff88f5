"""Errors in YAML files, with file, line and the nearest valid word."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.errors import DovetailError
from dovetail.text import near_misses


class FileName(str):
    """A file name as shown in messages, independent of the machine, together with the file's path.

    Args:
        name: Its name.
        path: Its path, because several files may have the same name.
    """

    __slots__ = ("path",)

    path: str

    def __new__(cls, name: str, path: str) -> FileName:
        """Create the name with its path."""
        made = super().__new__(cls, name)
        made.path = path
        return made


class SchemaError(DovetailError):
    """A backend, policy or operator file is invalid.

    Args:
        problem: The error, without file and line.
        file: Name of the file; the hint has its folder, if known and not the current one.
        line: Line in it, from 1; 0 if the error concerns the file as a whole.
    """

    def __init__(self, problem: str, file: str, line: int = 0):
        self.problem, self.file, self.line = problem, file, line
        path = file.path if isinstance(file, FileName) else file
        where = f"the file is {path}" if path != file else ""
        super().__init__(f"{file}:{line}: {problem}" if line else f"{file}: {problem}", where)


def near_miss(word: str, candidates: Iterable[str]) -> str:
    """Return the candidate most similar to `word` as ` (did you mean 'Conv'?)`, or an empty text."""
    found = near_misses(word, candidates, 1, 0.6 if len(word) > 3 else 0.5)
    return f" (did you mean '{found[0]}'?)" if found else ""


def one_of(candidates: Iterable[str]) -> str:
    """Format candidates as `"active", "passive" or "manual"`."""
    words = [f'"{word}"' for word in candidates]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
