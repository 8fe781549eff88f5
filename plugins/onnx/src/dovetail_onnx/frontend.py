"""The front end that `dovetail.open` and all commands use for ONNX models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.plugin import Frontend

from dovetail_onnx.dialect import OnnxDialect

if TYPE_CHECKING:
    from dovetail.ir.model import Model


_TEXT = (".onnxtxt", ".txt")


class OnnxFrontend(Frontend):
    """Reads and writes ONNX files and ONNX text, and every file that no other front end has the suffix of."""

    suffixes = (".onnx", *_TEXT, "")
    dialect = OnnxDialect()

    def read(self, path: Path) -> Model:
        """Open a file; see `dovetail_onnx.opening.open_model`."""
        from dovetail_onnx.opening import open_model

        return open_model(path)

    def open_declared(self, path: Path) -> Model:
        """Open a file in which tensors without data are zeros, as crash reproducers are written."""
        from dovetail_onnx.opening import open_model

        return open_model(path, declared=True)

    def write(
        self,
        model: Model,
        path: Path,
        *,
        external: bool | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """Write a model as ONNX text, told by the suffix, or as an ONNX file; see `dovetail_onnx.saving.save_model`."""
        if path.suffix in _TEXT:
            from dovetail_onnx.files.writing import write_text
            from dovetail_onnx.printer import print_model

            write_text(path, print_model(model))
        else:
            from dovetail_onnx.saving import save_model

            save_model(model, path, external=external, progress=progress)

    def convert(self, source: object, path: Path | None = None) -> Model | None:
        """Return the model of an `onnx.ModelProto`, an `onnx_ir.Model` or the bytes of a model file; None otherwise.

        Protos and onnx-ir models are copied, and weights of an onnx-ir model are shared; those that come with the path
        of their file are taken over.

        Raises:
            DovetailError: The model is invalid (see `dovetail_onnx.source`), or the bytes are no model.
        """
        import onnx
        import onnx_ir as ir
        from dovetail.ir.model import Model

        from dovetail_onnx.opening import open_proto, parse_proto
        from dovetail_onnx.skeleton import split_weights
        from dovetail_onnx.topological_order import in_order

        name = str(path) if path is not None else "the model"
        if isinstance(source, onnx.ModelProto):
            proto = source
            if path is None:
                proto = onnx.ModelProto()
                proto.CopyFrom(source)
            return open_proto(proto, name, path)
        if isinstance(source, ir.Model):
            if path is None and not in_order(source.graph):
                return Model(unbuilt=split_weights(source), dialect=self.dialect)  # onnx-ir cannot clone it
            return Model(source.clone() if path is None else source, path, dialect=self.dialect)
        if isinstance(source, (bytes, bytearray, memoryview)):
            return open_proto(parse_proto(bytes(source), name), name, path)
        return None
