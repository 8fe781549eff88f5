"""New entries for a file of lists that is there: what a person wrote in it stays as it is, comments included."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from dovetail.errors import DovetailError
from dovetail_onnx import read_input, write_text
from dovetail_onnx.files.reading import UnreadableInput

_SECTION = re.compile(r"(?m)^([a-z_]+):")
_FLOW = re.compile(r"^( +)(operators|tests): *\[([^\]]*)\]", re.MULTILINE)
_WIDTH = 120


def add_to_lists(file: Path, backend: str, onnx: str, text: str) -> None:
    """Add entries to a file of lists, which is created if it is missing.

    Args:
        file: The file.
        backend: The backend, for a new file.
        onnx: The version of onnx whose tests are named, for a new file.
        text: The entries, as `dovetail_testing.verdicts.text_to_add` writes them.

    Raises:
        DovetailError: The file cannot be read or written, or it is no file of lists.
    """
    from dovetail_testing.list_files import read_lists

    old = f'backend: {backend}\nonnx: "{onnx}"\n'
    if file.exists():
        read_lists(file)
        try:
            old = read_input(file).decode()
        except UnreadableInput as error:
            raise DovetailError(f"{file}: {error.problem}", "name another file") from error
    write_text(file, merged(old, text))


def merged(old: str, added: str) -> str:
    """Return the text of a file of lists with more entries: new names in its lists, new items in its sections."""
    for key, body in _sections(added):
        old = _with_names(old, body) if key == "exact" else _with_items(old, key, body)
    return old


def _sections(text: str) -> list[tuple[str, str]]:
    """Return the top-level keys of a text, each with the lines below it."""
    found = list(_SECTION.finditer(text))
    ends = [*(each.start() for each in found[1:]), len(text)]
    return [(each[1], text[text.index("\n", each.start()) + 1 : end]) for each, end in zip(found, ends, strict=True)]


def _span(text: str, key: str) -> tuple[int, int] | None:
    """Return where the lines below a top-level key begin and end; None without the key."""
    found = re.search(rf"(?m)^{key}:.*\n", text)
    if found is None:
        return None
    following = _SECTION.search(text, found.end())
    return found.end(), following.start() if following else len(text)


def _with_items(text: str, key: str, body: str) -> str:
    """Add items to a section, before those that are there; they have the indentation of these."""
    span = _span(text, key)
    if span is None:
        return f"{text.rstrip()}\n{key}:\n{body.rstrip()}\n"
    first = re.search(r"(?m)^( *)- ", text[span[0] : span[1]])
    indent = first[1] if first else "  "
    return text[: span[0]] + textwrap.indent(textwrap.dedent(body.rstrip()), indent) + "\n" + text[span[0] :]


def _with_names(text: str, body: str) -> str:
    """Add names to the lists of the section `exact`."""
    for _, key, names in _FLOW.findall(body):
        span = _span(text, "exact")
        if span is None:
            text = f"{text.rstrip()}\nexact:\n"
            span = _span(text, "exact")
            assert span is not None, "it was added"
        lists = [each for each in _FLOW.finditer(text, span[0], span[1]) if each[2] == key]
        if lists:
            text = text[: lists[0].end(3)] + _joined(lists[0], names) + text[lists[0].end(3) :]
        elif re.match(r" *- ", text[span[0] :]):  # a list of entries
            text = f"{text[: span[0]]}  - {key}: [{names}]\n{text[span[0] :]}"
        else:
            text = f"{text[: span[0]]}  {key}: [{names}]\n{text[span[0] :]}"
    return text


def _joined(old: re.Match[str], names: str) -> str:
    """Return names as they follow those of a list, on lines of their own where the last one is full."""
    last = len(old[0].rpartition("\n")[2])
    if last + len(names) + 3 <= _WIDTH:
        return f", {names}" if old[3].strip() else names
    indent = " " * (len(old[1]) + len(old[2]) + 3)
    return ",\n" + textwrap.fill(names, _WIDTH, initial_indent=indent, subsequent_indent=indent)
