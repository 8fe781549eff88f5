"""The contract of front ends, which read and write models of one file format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    import onnx_ir as ir

    from dovetail.ir.dialect import Dialect
    from dovetail.ir.model import Model
    from dovetail.plugin.context import Progress


class Frontend(ABC):
    """Reads files of one format; its class is instantiated without arguments.

    A front end with a dialect returns verified models, and words its own errors.

    Attributes:
        suffixes: Suffixes of its files, each with the leading dot: `(".toy",)`. An empty suffix matches all files that
            no other front end reads.
        dialect: The semantics of its operators, or None. Models built in memory, and those of front ends without a
            dialect, get the dialect of the first front end that has one.
    """

    suffixes: tuple[str, ...]
    dialect: Dialect | None = None

    @abstractmethod
    def read(self, path: Path) -> onnx.ModelProto | ir.Model | Model:
        """Read the model in a file; its dialect then verifies it.

        Raises:
            DovetailError: The file is invalid: `{path}:{line}: what is wrong`. For any other exception, the line is
                taken from its attribute `lineno`.
        """

    def write(
        self, model: Model, path: Path, *, external: bool | None = None, progress: Progress | None = None
    ) -> None:
        """Write a model to a file; a front end that does not override this is read-only.

        Args:
            model: The model.
            path: The file.
            external: Store weights outside the file (True), inside it (False), or as the front end chooses (None).
            progress: Called with ("save", weights written, weights in total).

        Raises:
            DovetailError: The file cannot be written.
        """
        raise NotImplementedError

    def convert(self, source: object, path: Path | None) -> Model | None:
        """Convert an object in memory to a model; return None if its type is unknown, as by default.

        Args:
            source: The object.
            path: The file that the object was read from, or None.
        """
        return None

    def open_declared(self, path: Path) -> Model:
        """Open a file that was written without tensor data; the tensors read as zeros.

        Never called on a front end that does not override it.
        """
        raise NotImplementedError
