"""The contents of a language model's folder: its parts, in execution order, and the limits of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dovetail.errors import DovetailError
from dovetail.text import near_misses, printable
from dovetail_onnx.files.parsing import parse_json
from dovetail_onnx.files.reading import read_input

from dovetail_decoder.foreign_files import inside, is_inner

if TYPE_CHECKING:
    from dovetail.plugin import TemporaryFolder

Phase = Literal["once", "always", "prompt", "step", "never"]
"""When a part runs: once per prompt (an encoder), for every call, for the prompt or for further tokens alone, or not as
part of the generation of tokens."""

LOGITS = "logits"
"""The role of the output with the scores of the next token."""


MODEL_SUFFIX = ".onnx"


@dataclass(frozen=True)
class Part:
    """One model of the folder.

    Attributes:
        name: Its name in messages and results: `decoder`.
        file: Its file, relative to the folder.
        phase: When it runs.
        inputs: Names of its inputs by role; a name with `%d` stands for one input per layer.
        outputs: Names of its outputs by role, likewise. A value goes from an output to the inputs of the same role.
        place: The keys that lead to its entry in the document of the configuration; empty if there is none.
        made: The file to compile where the folder has none of this name, because the part is a branch of another model.
    """

    name: str
    file: Path
    phase: Phase = "always"
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    place: tuple[str | int, ...] = ()
    made: Path | None = None


@dataclass(frozen=True)
class GeneratorFolder:
    """A folder of a language model.

    Attributes:
        path: The folder.
        config: The file that describes it, for messages.
        parts: Its models, in the order in which they run.
        context: Number of tokens that the model can take, prompt and answer together; None if unknown.
        vocabulary: Number of tokens that it knows; None if unknown.
        stops: The tokens that end an answer.
        start: The token that a decoder begins with whose encoder reads the prompt.
        kv_heads: Number of heads of keys and values in the caches; None if unknown.
        head_size: Extent of one of these heads; None if unknown.
        document: The configuration as a generator reads it, if it names files and providers.
        merged: The file of a decoder that is built from the parts `decoder` and `decoder_with_past`, if there is one.
        notes: Notes on what of the folder is not used, and why.
        apart: Holds the files of these two parts where they are branches of `merged` and no files of the folder.
    """

    path: Path
    config: Path
    parts: Sequence[Part]
    context: int | None = None
    vocabulary: int | None = None
    stops: frozenset[int] = frozenset()
    start: int = 0
    kv_heads: int | None = None
    head_size: int | None = None
    document: Mapping[str, Any] | None = None
    merged: Path | None = None
    notes: Sequence[str] = ()
    apart: TemporaryFolder | None = field(default=None, compare=False)

    def file_of(self, part: Part) -> Path:
        """Return the path of a part's model."""
        return part.made or self.path / part.file


def read_document(path: Path) -> dict[str, Any]:
    """Read a JSON file that lies in a folder itself.

    Raises:
        DovetailError: It cannot be read, leads out of the folder, or holds no mapping.
    """
    content = read_input(inside(path.parent, path))
    try:
        document = parse_json(content)
    except ValueError as error:
        raise DovetailError(f"{path} is no JSON: {error}", "export the model again") from None
    if not isinstance(document, dict):
        raise DovetailError(f"{path} holds {type(document).__name__} and no mapping", "export the model again")
    return document


def number_in(document: Mapping[str, Any], key: str, path: Path, least: int = 1) -> int | None:
    """Return a whole number of a document; None if the key is missing.

    Raises:
        DovetailError: The value is no whole number, or too small.
    """
    value = document.get(key)
    if value is None:
        return None
    if type(value) is not int or value < least:
        raise DovetailError(
            f"{path}: '{key}' is {printable(repr(value))}, and a whole number from {least} on is expected",
            "correct it, or export the model again",
        )
    return value


def stops_in(document: Mapping[str, Any], path: Path) -> frozenset[int]:
    """Return the tokens that end an answer; a document has one, several, or none.

    Raises:
        DovetailError: They are no whole numbers.
    """
    value = document.get("eos_token_id")
    listed = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(one) is int for one in listed):
        raise DovetailError(
            f"{path}: 'eos_token_id' is {printable(repr(value))}", "write a number or a list of numbers"
        )
    return frozenset(listed)


def path_in(name: object, where: str) -> Path:
    """Return the path of a file or a folder that a configuration names, relative to its own folder.

    Raises:
        DovetailError: It is no name, or leads out of the folder, on this system or another one.
    """
    if not isinstance(name, str) or not name:
        raise DovetailError(f"{where} is {printable(repr(name))} and no name of a file", "correct it")
    if not is_inner(name):
        raise DovetailError(f"{where} leads out of the folder: {printable(name)}", "keep all files in one folder")
    return Path(name)


def file_in(folder: Path, name: object, where: str) -> Path:
    """Return the path, relative to the folder, of a file that a configuration names.

    Raises:
        DovetailError: It is no name, leads out of the folder, or is not there.
    """
    path = path_in(name, where)
    if not (folder / path).is_file():
        there = sorted(str(file.relative_to(folder)) for file in folder.rglob(f"*{path.suffix}"))
        near = near_misses(str(path), there, 1)
        listed = ", ".join(there[:5]) or f"no {path.suffix or 'such'} file"
        hint = (
            f"did you mean '{near[0]}'?" if near else f"the folder holds {listed}: correct the name, or copy the file"
        )
        raise DovetailError(f"{where} names {printable(path)}, which is not there", hint)
    inside(folder, folder / path)
    return path
