"""Concrete extents that data has where a model leaves them open."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.ir import name_of

from dovetail_runtime.data.independent_rows import counted_together, inputs_of_samples, is_static
from dovetail_runtime.data.kept import RereadBatches
from dovetail_runtime.data.sources import read_data
from dovetail_runtime.feeds import optional_inputs, required_inputs
from dovetail_runtime.serialize import value_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from dovetail.ir import Model


def data_extents(model: Model, data: object) -> dict[str, tuple[int, ...]]:
    """Return the shapes that one run has on the data, by name, for inputs whose shape is not static.

    A first axis that counts samples becomes 1, because an array of samples is split to single ones; or, of several
    batches with the same number of samples, that number, because so many are run at once.

    Args:
        model: The model.
        data: See `dovetail_runtime.data.sources.read_data`.

    Raises:
        DovetailError: Two samples differ in an open extent, an input has no array, or one of the wrong rank.
    """
    required = required_inputs(model.graph)
    optional = optional_inputs(model.graph)
    open_inputs = [value for value in model.graph.inputs if value_type(value) and not _is_static(value.shape)]
    samples = inputs_of_samples(model)
    names = list(map(name_of, required)), list(map(name_of, optional))
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    batches: list[dict[str, int]] = []
    given = data.everything if isinstance(data, RereadBatches) else data
    for arrays, where in read_data(given, *names) if open_inputs else ():
        counted = {
            n: next(iter(v.shape or ()), None) for v in open_inputs if (n := name_of(v)) in samples & arrays.keys()
        }
        rows = {name: len(arrays[name]) for name in counted if _shape(arrays[name])}
        together = counted_together({name: (counted[name], number) for name, number in rows.items()})
        batches.append({name: rows[name] for name in together})
        for value in open_inputs:
            name = name_of(value)
            if name not in arrays:
                if value.is_initializer():
                    continue  # its default is used
                raise DovetailError(f"{where}: no array for input '{name}'", "name arrays after the model's inputs")
            shape = _of_one_run(value, _shape(arrays[name]), name in together, where)
            known, first = found.setdefault(name, (shape, where))
            if known != shape:
                raise DovetailError(
                    f"'{name}' is {_text(known)} in {first} and {_text(shape)} in {where}: "
                    "the data says no single shape",
                    _one_shape(where if 0 in known else first),
                )
    for name, (shape, where) in found.items():
        if 0 in shape:
            problem = f"'{name}' is {_text(shape)} in {where}: no engine is compiled for an extent of zero"
            raise DovetailError(problem, f"give data that has elements of '{name}', too, or leave its extents open")
    at_once = batches[0] if len(batches) > 1 and all(one == batches[0] for one in batches) else {}
    return {name: (at_once[name], *shape[1:]) if name in at_once else shape for name, (shape, _) in found.items()}


def _one_shape(first: str) -> str:
    """Return the way out where samples differ, with words to copy that take one of them alone."""
    alone = f" ({shlex.join(['--data', first, '--fix-shape', 'data'])})" if Path(first).exists() else ""
    return f"pad or crop all samples to one shape, or compile a result for the samples of one shape{alone}"


def _of_one_run(value: ir.Value, given: tuple[int, ...], samples: bool, where: str) -> tuple[int, ...]:
    declared: Sequence[object] = given if value.shape is None else list(value.shape)
    if value.shape is not None and len(declared) != len(given):
        wanted = ", ".join(map(str, declared))
        raise DovetailError(f"{where}: input '{value.name}' wants [{wanted}], the array has {list(given)}")
    shape = tuple(
        own if isinstance(own, int) and own >= 0 else extent for own, extent in zip(declared, given, strict=True)
    )
    if value.shape is not None and samples:
        shape = (1, *shape[1:])
    return shape


def _shape(array: Any) -> tuple[int, ...]:
    import numpy as np

    return tuple(np.shape(array))  # also accepts a list or a number


def _is_static(shape: ir.Shape | None) -> bool:
    return shape is not None and all(is_static(extent) for extent in shape)


def _text(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"
