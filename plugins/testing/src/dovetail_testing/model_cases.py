"""Whole models as cases: small nets of the suite, and a folder of the user's."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.errors import DovetailError, UsageError
from dovetail.ir.required import name_of

from dovetail_testing.case import Case, Work
from dovetail_testing.nets import NETS
from dovetail_testing.references import host_reference, references_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.plugin.loader import PluginSet


def model_cases(folder: Path | None = None) -> tuple[Case, ...]:
    """The nets of the suite, and each `NAME.onnx` of a folder, on the arrays of `NAME.npz` if that is there.

    Arrays are named after inputs; one that is named after an output is the result that is expected.

    Raises:
        UsageError: There is no such folder, or it holds no model.
    """
    found = [Case("models", name, "", _NetMaker(name)) for name in NETS]
    if folder is None:
        return tuple(found)
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", "name a folder with .onnx files, each with an .npz of its name")
    paths = sorted(folder.glob("*.onnx"))
    if not paths:
        raise UsageError(f"{folder} holds no .onnx file")
    for path in paths:
        if path.stem in NETS:
            raise UsageError(f"{path}: a net of the suite has the name '{path.stem}'", "rename the file")
        found.append(Case("models", path.stem, "", _FileMaker(path)))
    return tuple(found)


@dataclass(frozen=True)
class _NetMaker:
    """Makes a net of the suite ready to run."""

    name: str

    def __call__(self, plugins: PluginSet) -> Work:
        proto = NETS[self.name]()
        return work_of_model(proto, None, plugins)


@dataclass(frozen=True)
class _FileMaker:
    """Makes a model of the user ready to run."""

    path: Path

    def __call__(self, plugins: PluginSet) -> Work:
        data = self.path.with_suffix(".npz")
        return work_of_model(self.path, _arrays(data) if data.exists() else None, plugins)


def work_of_model(source: Any, arrays: Mapping[str, Any] | None, plugins: PluginSet) -> Work:
    """A model with its inputs, random ones by default; arrays that are named after outputs are expected results.

    Raises:
        DovetailError: The model cannot be opened, an input has no array, or an array is for nothing.
    """
    import dovetail
    import onnx
    from dovetail_verify.random_inputs import random_batch

    model = dovetail.open(source, plugins)
    inputs = [name_of(value) for value in model.graph.inputs if not value.is_initializer()]
    outputs = [name_of(value) for value in model.graph.outputs]
    given = random_batch(model) if arrays is None else {name: np.asarray(value) for name, value in arrays.items()}
    for name in given:
        if name not in inputs and name not in outputs:
            raise DovetailError(
                f"the model has neither an input nor an output '{name}'",
                f"inputs: {', '.join(inputs) or 'none'}; outputs: {', '.join(outputs)}",
            )
    missing = [name for name in inputs if name not in given]
    if missing:
        raise DovetailError(f"there is no array for input '{missing[0]}'", "name arrays after the model's inputs")
    plain = isinstance(source, onnx.ModelProto) or isinstance(source, (str, Path)) and str(source).endswith(".onnx")
    readable = Path(source) if plain and isinstance(source, (str, Path)) else source
    references = [*(references_of(readable) if plain else ()), host_reference(dovetail.open(source, plugins), plugins)]
    feeds = {name: given[name] for name in inputs}
    return Work(source, feeds, {name: given[name] for name in outputs if name in given}, references)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file.

    Raises:
        DovetailError: It cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError, EOFError) as error:
        raise DovetailError(f"{path} cannot be read as arrays by name: {error}", "write it with numpy.savez") from error
