"""Front end for ONNX models, used by `dovetail.open` and all commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.ir import name_of
from dovetail.plugin import Frontend

from dovetail_onnx.dialect import OnnxDialect

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


_TEXT = (".onnxtxt", ".txt")


class OnnxFrontend(Frontend):
    """Reads and writes ONNX files and ONNX text, including files without a suffix of another front end."""

    suffixes = (".onnx", *_TEXT, "")
    dialect = OnnxDialect()

    def read(self, path: Path) -> Model:
        """Open a file; see `dovetail_onnx.opening.open_model`."""
        from dovetail_onnx.opening import open_model

        return open_model(path)

    def open_declared(self, path: Path) -> Model:
        """Open a file in which tensors without data are zeros, the format of crash reproducers."""
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
        """Write a model as ONNX text or an ONNX file, by suffix; see `dovetail_onnx.saving.save_model`."""
        if path.suffix in _TEXT:
            from dovetail_onnx.files.writing import write_text
            from dovetail_onnx.printer import print_model

            write_text(path, print_model(model))
        else:
            from dovetail_onnx.saving import save_model

            save_model(model, path, external=external, progress=progress)

    def convert(self, source: object, path: Path | None = None) -> Model | None:
        """Return the model of an `onnx.ModelProto`, an `onnx_ir.Model` or the bytes of a model file; None otherwise.

        Protos and onnx-ir models are copied, and weights of an onnx-ir model are shared; models given with the path of
        their file are not copied.

        Raises:
            DovetailError: The model is invalid (see `dovetail_onnx.source`), or the bytes are not a model.
        """
        import onnx
        import onnx_ir as ir
        from dovetail.ir import Model

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
                return Model(lazy=split_weights(source), dialect=self.dialect)  # onnx-ir cannot clone it
            return Model(source.clone() if path is None else source, path, dialect=self.dialect)
        if isinstance(source, (bytes, bytearray, memoryview)):
            return open_proto(parse_proto(bytes(source), name), name, path)
        return None


_MANY = 3  # inputs; a longer list of shapes is more than a reader checks
UNKNOWN = "N"
"""Placeholder in an option for an extent that only the user knows."""


def open_inputs(model: Model) -> list[ir.Value]:
    """Return the inputs of a model with a symbolic or unknown extent, without initializers."""
    return [value for value in model.graph.inputs if not value.is_initializer() and _is_open(value)]


def fixing_option(inputs: Iterable[ir.Value], known: Mapping[str, Sequence[int]] | None = None) -> tuple[str, bool]:
    """Return the option that fixes input shapes, ready to copy, and whether it is complete.

    Args:
        inputs: The inputs.
        known: Known shapes by input name. For other inputs, an open first extent becomes 1: it counts samples in most
            models, and backends with static shapes process one sample at a time.
    """
    inputs = list(inputs)
    if len(inputs) > _MANY and known is not None and {name_of(value) for value in inputs} <= known.keys():
        return "--fix-shape data", True
    words, complete = [], True
    inner = {str(extent) for value in inputs for extent in list(value.shape or ())[1:] if _has_name(extent)}
    for value in inputs:
        guessed = [_guess(extent, axis, inner) for axis, extent in enumerate(value.shape or (UNKNOWN,))]
        shape = (known or {}).get(name_of(value)) or guessed
        complete &= UNKNOWN not in shape
        words += ["--fix-shape", f"{value.name}:{'x'.join(map(str, shape))}"]
    return shlex.join(words), complete


def shape_text(value: ir.Value) -> str:
    """Format the shape of a value: `[N, 3, ?]`."""
    if value.shape is None:
        return "of unknown rank"
    texts = (str(extent) if isinstance(extent, int) else extent.value or "?" for extent in value.shape)
    return f"[{', '.join(texts)}]"


def _guess(extent: object, axis: int, inner: Collection[str]) -> object:
    """Return an extent, 1 for a number of samples, or `UNKNOWN`, also for a first extent that is an inner one, too."""
    if isinstance(extent, int) and extent > 0:
        return extent
    return 1 if axis == 0 and not (_has_name(extent) and str(extent) in inner) else UNKNOWN


def _has_name(extent: object) -> bool:
    import onnx_ir as ir

    return isinstance(extent, ir.SymbolicDim) and bool(extent.value)


def _is_open(value: ir.Value) -> bool:
    import onnx_ir as ir

    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return False
    return value.shape is None or any(not isinstance(extent, int) or extent < 0 for extent in value.shape)
