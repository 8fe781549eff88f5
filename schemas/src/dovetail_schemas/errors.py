"""What is wrong with a YAML file: file, line, and the word that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.text import near_misses

if TYPE_CHECKING:
    pass


class FileName(str):
    """The name of a file as messages and remarks show it, the same on every machine, with the path beside it.

    Args:
        name: Its name.
        path: Where it is: several files may have the name.
    """

    __slots__ = ("path",)

    path: str

    def __new__(cls, name: str, path: str) -> FileName:
        """The name with its path."""
        made = super().__new__(cls, name)
        made.path = path
        return made


class SchemaError(DovetailError):
    """A backend, policy or operator file is at fault.

    Args:
        problem: What is wrong, without file and line.
        file: Name of the file; the hint says where it is, if that is known and not the current folder.
        line: Line in it, from 1; 0 when the file as a whole is at fault.
    """

    def __init__(self, problem: str, file: str, line: int = 0):
        self.problem, self.file, self.line = problem, file, line
        path = file.path if isinstance(file, FileName) else file
        where = f"the file is {path}" if path != file else ""
        super().__init__(f"{file}:{line}: {problem}" if line else f"{file}: {problem}", where)


def near_miss(word: str, candidates: Iterable[str]) -> str:
    """The candidate that looks most like `word` as ` (did you mean 'Conv'?)`, or an empty text."""
    found = near_misses(word, candidates, 1, 0.6 if len(word) > 3 else 0.5)
    return f" (did you mean '{found[0]}'?)" if found else ""


def one_of(candidates: Iterable[str]) -> str:
    """The candidates as `"active", "passive" or "manual"`."""
    words = [f'"{word}"' for word in candidates]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
