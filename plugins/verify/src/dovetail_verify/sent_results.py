"""Results that are sent to other processes: those of a search, which are in no folder that these could read."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.plugin import TemporaryFolder

from dovetail_verify.runners import weights_within

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, PluginSet

_LARGEST = 1 << 30  # bytes of weights in a message
_FOLDERS = 2  # results that a process keeps: one that is measured, and the one before


def can_be_sent(result: CompiledModel) -> bool:
    """Check whether another process can run a result that it is sent.

    A trial of a backend with programs has none, and runs on engines that only this process chose. What is too
    large for a message stays here, as well.
    """
    has_programs = result.artifacts is not None or any(backend.artifacts for backend in result.backends)
    return not (has_programs or result.edited or result.options or not weights_within(result.model, _LARGEST))


def packed(result: CompiledModel) -> bytes:
    """Return the files of a result as an archive; the result stays as it is.

    Raises:
        DovetailError: The files cannot be written.
    """
    content = io.BytesIO()
    plan = replace(result.plan, model=dict(result.plan.model))  # saving writes into it what it saves
    with TemporaryFolder("sent") as folder, zipfile.ZipFile(content, "w") as archive:
        replace(result, plan=plan).save(folder / "result", external=False)
        for path in sorted((folder / "result").rglob("*")):
            if path.is_file():
                archive.write(path, str(path.relative_to(folder / "result")))
    return content.getvalue()


@lru_cache(maxsize=_FOLDERS)
def unpacked(content: bytes, plugins: PluginSet) -> SentResult:
    """Return the result of an archive, in a folder that lives as long as the result is kept.

    Raises:
        DovetailError: The archive or its result is not valid.
    """
    from dovetail import api

    folder = TemporaryFolder("sent")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            archive.extractall(folder.path)
    except (zipfile.BadZipFile, OSError) as error:
        raise DovetailError(f"a result that was sent cannot be read: {error}", "compile without a cluster") from None
    return SentResult(api.load(folder.path, plugins), folder)


class SentResult:
    """A result in a temporary folder.

    Attributes:
        compiled: The result.
    """

    def __init__(self, compiled: CompiledModel, folder: TemporaryFolder):
        self.compiled, self._folder = compiled, folder
