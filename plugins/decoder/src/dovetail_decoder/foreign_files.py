"""The files of a folder that may come from somebody else: which of them are read, and which go into a result.

Links are followed as for the data of models (`dovetail_onnx.data_paths`): inside of the folder, into the store of its
repository, and from a snapshot of Hugging Face's cache to its blobs. Copies are made of texts and of data of models,
never of libraries, programs and pickled objects.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from dovetail.errors import DovetailError
from dovetail.text import pluralize, printable
from dovetail_onnx.data_paths import FolderPlaces, LeadsOut
from dovetail_onnx.files.parsing import parse_json
from dovetail_onnx.files.reading import read_input

from dovetail_decoder.clean_config import cleaned

_TEXTS = frozenset({".json", ".txt", ".md", ".model", ".jinja", ".tiktoken", ".vocab", ".bpe", ".spm", ".tsv", ".csv"})
_WEIGHTS = re.compile(r"\.onnx|\.onnx_data(?:_\d+)?|\.data|\.onnx_adapter|\.safetensors|\.png|\.jpe?g|\.svg")
_NAMES = frozenset({"license", "notice", "copying", "use_policy", "readme", "vocab", "merges"})
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
"""Files with tokenizers, of which a folder has at least one."""
_MODEL = ".onnx"
_OF_TOKENS = frozenset({"tokenizer.json", "vocab.json", "added_tokens.json", "merges.json"})
"""Tables of tokens: their keys are tokens, and no reader takes them for anything else."""
_SETTINGS = frozenset({"openvino_config.json"})
"""Files that set options of engines, and nothing else."""
_OF_RESULT = re.compile(r"dovetail\.json|result\.json|remarks\.json|(?:.*\.)?plan\.yaml")
"""Files that describe an earlier result; this one has its own."""
_PROGRAMS = (
    b"\x7fELF", b"PK\x03\x04", b"!<arch>",
    b"\xca\xfe\xba\xbe", b"\xfe\xed\xfa", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe",
)  # fmt: skip
"""How libraries and archives begin."""
_SCRIPTS = (*_PROGRAMS, b"MZ", b"#!", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""How programs begin that no text begins like, with scripts and pickled objects; numbers may begin with these bytes."""


def is_inner(name: str) -> bool:
    """Return whether a name is that of a file inside of a folder, on this system and on others."""
    return not any(path.anchor or ".." in path.parts for path in (PurePosixPath(name), PureWindowsPath(name)))


def inside(folder: Path, path: Path) -> Path:
    """Return a path of the folder after checking that it does not lead out of it; it need not be there.

    Raises:
        DovetailError: It does, or it cannot be followed.
    """
    try:
        FolderPlaces(folder).target(path.relative_to(folder))
    except LeadsOut as error:
        raise DovetailError(
            f"{printable(path)} is a link that leads out of the folder, to {printable(error.target)}",
            "copy the file into the folder: links are followed inside of it, and within caches of Hugging Face, "
            "git-annex and DVC",
        ) from None
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, RuntimeError) as error:
        raise DovetailError(
            f"{printable(path)} cannot be followed: {printable(error)}", "copy the file into the folder"
        ) from None
    return path


def copy_others(folder: Path, made: Path | None, belongs: Callable[[Path], bool] = lambda inner: True) -> list[str]:
    """Copy what belongs to no model: tokenizers, configurations, and other texts and data that programs read.

    Args:
        folder: The source.
        made: The folder to write to; files that are there stay. None to copy nothing, for the notes.
        belongs: Whether a file, by its path in the folder, is one of those to copy.

    Returns:
        Notes on what was left out, with names and reasons.
    """
    notes: list[str] = []
    unknown: list[str] = []
    places = FolderPlaces(folder)
    for inner in _files(folder):
        if made is not None and (made / inner).exists() or _OF_RESULT.fullmatch(inner.name) or not belongs(inner):
            continue
        try:
            source = places.target(inner)
        except LeadsOut as error:
            notes.append(
                f"{printable(inner)} is left out of the result: it is a link that leads out of the folder, to "
                f"{printable(error.target)}; copy the file into the folder if it belongs there"
            )
            continue
        except (OSError, RuntimeError):  # a link to nothing
            continue
        if not source.is_file():
            continue
        if not _is_copied(inner, source):
            unknown.append(inner.as_posix())
            continue
        target = made / inner if made is not None else None
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
        if inner.suffix.lower() == ".json" and inner.name not in _OF_TOKENS:
            notes += _write_cleaned(source, target, inner)
        elif target is not None:
            shutil.copyfile(source, target)
    if unknown:
        listed = ", ".join(map(printable, unknown[:8])) + (f" and {len(unknown) - 8} more" * (len(unknown) > 8))
        verb = "is" if len(unknown) == 1 else "are"
        notes.append(
            f"{listed} {verb} left out of the result, which takes texts, tokenizers and data of models, and no code: "
            f"copy {pluralize(len(unknown), 'file')} yourself if a program of yours needs them"
        )
    return notes


def copy_tokenizer(folder: Path, made: Path) -> None:
    """Copy the texts of a folder, from which libraries of tokenizers read what they need.

    Raises:
        DovetailError: A tokenizer leads out of the folder.
    """
    for name in TOKENIZERS:
        inside(folder, folder / name)
    copy_others(folder, made, lambda inner: inner.suffix.lower() in _TEXTS)


def _write_cleaned(source: Path, target: Path | None, name: Path) -> list[str]:
    """Write a JSON document without entries that name code or files elsewhere; return notes on these.

    Where nothing is left out, it is copied as it is, unless readers may differ in what it says.
    """
    try:
        content = read_input(source)
        found = cleaned(parse_json(content))
    except (ValueError, DovetailError) as error:
        return [f"{printable(name)} is left out of the result: it cannot be read as JSON ({printable(error)})"]
    if found.left_out or _has_repeated_keys(content):
        content = f"{json.dumps(found.document, indent=2, ensure_ascii=False)}\n".encode()
    if target is not None:
        target.write_bytes(content)
    return [note] if (note := found.note(printable(name))) else []


def _has_repeated_keys(content: bytes) -> bool:
    """Return whether a mapping has a key twice, of which readers take the first or the last."""
    repeated = False

    def mapping(pairs: list[tuple[str, object]]) -> None:
        nonlocal repeated
        repeated |= len(pairs) > len({key for key, _ in pairs})

    json.loads(content.decode("utf-8-sig"), object_pairs_hook=mapping)
    return repeated


def _files(folder: Path) -> Iterator[Path]:
    """Yield the paths of all files in a folder; hidden ones are skipped, and linked folders are not entered."""
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        if not any(name.startswith(".") for name in inner.parts) and (path.is_symlink() or path.is_file()):
            yield inner


def _is_copied(inner: Path, source: Path) -> bool:
    """Return whether a file is a text or data, by its name and by how it begins."""
    name, suffix = inner.name.lower(), inner.suffix.lower()
    is_text = suffix in _TEXTS or name in _NAMES
    if name in _SETTINGS or not is_text and not _WEIGHTS.fullmatch(suffix):
        return False
    with source.open("rb") as file:
        if file.read(8).startswith(_SCRIPTS if is_text else _PROGRAMS):
            return False
    return suffix != _MODEL or _is_plain_model(source)


def _is_plain_model(path: Path) -> bool:
    """Return whether a model names neither compiled programs nor options of sessions nor data elsewhere."""
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:  # whatever protobuf raises on a damaged file
        return False
    graphs = [model.graph]
    for graph in graphs:
        for node in graph.node:
            if node.op_type == _COMPILED:
                return False
            graphs += [body for one in node.attribute for body in (one.g, *one.graphs) if body.node]
        places = (e.value for tensor in graph.initializer for e in tensor.external_data if e.key == "location")
        if not all(map(is_inner, places)):
            return False
    return all(entry.key != _SESSION_OPTIONS for entry in model.metadata_props)


_COMPILED, _SESSION_OPTIONS = "EPContext", "ort_config"
