"""Device code in a wheel's libraries: kept for one architecture, so that a quarter of the bytes travels.

A library for NVIDIA's GPUs holds its kernels once for every architecture, in the section `.nv_fatbin`: containers
(magic number, version, size of the header, size of the rest), one after the other, of entries (kind, version, size of
the header, size of the code, ..., architecture at byte 28). The driver picks entries by architecture and reads no
other, so those of others may be zeros, which compress to nothing. For transport to a machine that is known, only.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

_CONTAINER = 0xBA55ED50
_SECTIONS = (b".nv_fatbin", b"__nv_relfatbin")
_LARGE = 1 << 24  # bytes of a library that is worth it
_NOT_READ = ("libonnxruntime.so", "libonnxruntime_providers_tensorrt.so", "onnxruntime/tools/", "onnxruntime/datasets/")
"""Parts of ONNX Runtime's wheel that no Python reads here."""


def slim(wheel: Path, architecture: int) -> None:
    """Rewrite a wheel without the device code of other architectures, not compressed, so that an archive compresses it.

    Args:
        wheel: The file.
        architecture: The compute capability, such as 90.
    """
    beside = wheel.with_name(f"{wheel.name}.partial")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(beside, "w", zipfile.ZIP_STORED) as new:
        for info in old.infolist():
            if any(part in info.filename for part in _NOT_READ):
                continue
            data = bytearray(old.read(info))
            if len(data) > _LARGE and data[:4] == b"\x7fELF":
                _clear(data, architecture)
            new.writestr(info.filename, bytes(data))
    beside.replace(wheel)


def _clear(data: bytearray, architecture: int) -> None:
    for position, end in _sections(data):
        while position + 16 <= end:
            magic, _, header, size = struct.unpack_from("<IHHQ", data, position)
            if magic != _CONTAINER:
                position += 8
                continue
            entry, stop = position + header, position + header + size
            while entry < stop:
                _, _, length, code = struct.unpack_from("<HHIQ", data, entry)
                (made_for,) = struct.unpack_from("<I", data, entry + 28)
                if made_for != architecture:
                    data[entry + length : entry + length + code] = bytes(code)
                entry += length + code
            position = (stop + 7) & ~7


def _sections(data: bytearray) -> Iterator[tuple[int, int]]:
    """Return the beginnings and ends of the sections with device code in an ELF file of 64 bits."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + index * size) for index in range(count)]
    for header in headers:
        start = headers[names][4] + header[0]
        if bytes(data[start : data.index(0, start)]) in _SECTIONS:
            yield header[4], header[4] + header[5]
