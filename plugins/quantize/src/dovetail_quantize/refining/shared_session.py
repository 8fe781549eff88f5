"""One session for the quantized copies of a decided model: parameters and integers of weights are inputs of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dovetail.ir import constant_of, name_of

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model

    from dovetail_quantize.refining.quantized_model import QuantizedModel

    Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


class SharedSession:
    """Runs quantized copies that are adapted to one calibration after the other, which takes less than loading each.

    Args:
        load: Returns a function that runs a model.
    """

    def __init__(self, load: Callable[[Model], Run]):
        self._load = load
        self._held: tuple[list[object], list[ir.TensorProtocol]] | None = None
        self._run: Run | None = None

    def of(self, quantized: QuantizedModel) -> Run:
        """Return a function that runs a copy as it is now.

        Raises:
            DovetailError: The copy cannot be loaded.
        """
        changing = {name_of(value): constant_of(value) for value in quantized.calibrated_constants()}
        if any(tensor.dtype.bitwidth < 8 for tensor in changing.values()):  # no arrays hold them
            return self._load(quantized.model)
        graph = quantized.model.graph
        form: list[object] = [[value and value.name for value in node.inputs] for node in graph]
        others = [constant_of(value) for name, value in graph.initializers.items() if name not in changing]
        if self._run is None or self._held is None or not _same(self._held, (form, others)):
            self._run, self._held = self._load(_with_inputs(quantized.model, changing)), (form, others)
        run, arrays = self._run, {name: tensor.numpy() for name, tensor in changing.items()}
        return lambda feeds: run({**feeds, **arrays})


def _same(one: tuple[list[object], list[ir.TensorProtocol]], two: tuple[list[object], list[ir.TensorProtocol]]) -> bool:
    """Check whether two copies have the same nodes, and constants that are the same objects."""
    return one[0] == two[0] and len(one[1]) == len(two[1]) and all(a is b for a, b in zip(one[1], two[1]))


def _with_inputs(model: Model, names: Mapping[str, object]) -> Model:
    """Return a copy of a model in which constants are inputs without a default."""
    work = model.clone()
    for name in names:
        value = work.graph.initializers.pop(name)
        value.const_value = None
        work.graph.inputs.append(value)
    work.touch()
    return work
