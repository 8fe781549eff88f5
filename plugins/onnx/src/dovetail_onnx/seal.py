"""The seal of a saved model: a digest of its content, in the file itself.

A seal is an entry of the model's `metadata_props` and the last bytes of the file. Protobuf allows elements of a
repeated field anywhere, so every reader sees an ordinary entry, and any tool that edits and saves the model moves or
drops it. The digest covers all bytes before it, and the data files in the order of their names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from dovetail_onnx.files.digests import file_sha256
from dovetail_onnx.wire import tag, varint

SEAL = "dovetail.content"
"""Key of the seal in the model's metadata."""

_METADATA_PROPS = 14  # field number in ModelProto
_DIGITS = 64


def _prefix() -> bytes:
    key = SEAL.encode()
    entry = tag(1) + varint(len(key)) + key + tag(2) + varint(_DIGITS)
    return tag(_METADATA_PROPS) + varint(len(entry) + _DIGITS) + entry


_PREFIX = _prefix()
SEAL_SIZE = len(_PREFIX) + _DIGITS
"""Bytes of a seal at the end of a file."""


def make_seal(content: bytes, data: Iterable[bytes]) -> bytes:
    """Return the bytes of a seal.

    Args:
        content: SHA-256 of the file's bytes before the seal.
        data: SHA-256 of every data file, in the order of their names.
    """
    return _PREFIX + hashlib.sha256(b"".join((content, *data))).hexdigest().encode()


def read_seal(path: Path) -> str:
    """Return the hexadecimal digest at the end of the file, or empty if there is no seal; reads nothing else."""
    with path.open("rb") as file:
        if file.seek(0, 2) < SEAL_SIZE:
            return ""
        file.seek(-SEAL_SIZE, 2)
        found = file.read()
    return found[len(_PREFIX) :].decode("ascii", "replace") if found.startswith(_PREFIX) else ""


def seal_holds(path: Path, data: Iterable[Path]) -> bool:
    """Whether the model at `path` and its data files are unchanged since it was sealed; hashes all of them."""
    seal = read_seal(path)
    if not seal:
        return False
    digest, left = hashlib.sha256(), path.stat().st_size - SEAL_SIZE
    with path.open("rb") as file:
        while left and (chunk := file.read(min(left, 1 << 20))):
            digest.update(chunk)
            left -= len(chunk)
    files = [bytes.fromhex(file_sha256(file)) for file in sorted(data)]
    return make_seal(digest.digest(), files).endswith(seal.encode())
