"""Files that a report may be written to: never those of the result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dovetail.errors import UsageError
from dovetail_onnx.results.reading import find_result


def check_output(path: Path, suffixes: Sequence[str], results: Sequence[Path]) -> None:
    """Check that writing `path` replaces no file of a result and nothing of another kind.

    Args:
        path: The file to write.
        suffixes: The suffixes that it may have.
        results: Paths of results that must not be changed.

    Raises:
        UsageError: It has another suffix, or is a file of a result.
    """
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"{path} is no name for this file", f"let it end in {' or '.join(suffixes)}")
    for folder in results:
        found = find_result(folder) if folder.is_dir() else None
        own = [folder / name for name in found.manifest.files] if found is not None else [folder]
        if any(path.resolve() == one.resolve() for one in own):
            raise UsageError(f"{path} is a file of the result", "name another file")
