"""Export of a graph that torch captured, and tensors as arrays and back."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch


class NotExported(Exception):
    """A graph has no form in ONNX; the text says why."""


@dataclass(frozen=True)
class Exported:
    """An exported graph.

    Attributes:
        model: The model; parameters are its constants.
        taken: The inputs of the model, each with its position among those of the graph.
        given: Whether each output of the graph is a tensor, which the model computes, or None.
    """

    model: onnx.ModelProto
    taken: dict[str, int]
    given: list[bool]


def exported(graph: torch.fx.GraphModule, inputs: Sequence[Any], fixed: Mapping[int, torch.Tensor]) -> Exported:
    """Export a graph for inputs of the shapes of `inputs`.

    Args:
        graph: The graph.
        inputs: Its inputs; numbers among them become constants.
        fixed: Inputs that are constants, by position.

    Raises:
        NotExported: An input is not on the CPU, an output is neither a tensor nor None, or torch's exporter fails.
    """
    free = [at for at, one in enumerate(inputs) if isinstance(one, torch.Tensor) and at not in fixed]
    if elsewhere := next((inputs[at] for at in free if inputs[at].device.type != "cpu"), None):
        raise NotExported(f"an input is on {elsewhere.device}, and tensors are passed in main memory")
    given = _outputs_of(graph)
    numbers = {at: inputs[at].item() for at in lifted_numbers(graph)}
    graph = with_numbers(graph, numbers)
    free = [at for at in free if at not in numbers]
    module = _Bound(graph, inputs, fixed, free)
    names = [f"input_{at}" for at in free]
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                module,
                tuple(inputs[at].detach() for at in free),
                input_names=names,
                output_names=[f"output_{at}" for at, is_tensor in enumerate(given) if is_tensor],
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # torch's exporter raises whatever its passes raise
        reason = " ".join(str(error.__cause__ or error).split())
        raise NotExported(f"torch cannot export it to ONNX: {reason[:300]}") from error
    if program is None:
        raise NotExported("torch's exporter gave no model")
    return Exported(program.model_proto, dict(zip(names, free)), given)


def lifted_numbers(graph: torch.fx.GraphModule) -> list[int]:
    """Return the positions of inputs that torch created from numbers: tensors that the graph converts back at once."""
    places = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return [at for at, place in enumerate(places) if place.users and all(map(_is_item, place.users))]


def with_numbers(graph: torch.fx.GraphModule, numbers: Mapping[int, float]) -> torch.fx.GraphModule:
    """Return a copy of a graph in which numbers take the place of inputs; see `lifted_numbers`."""
    if not numbers:
        return graph
    changed = copy.deepcopy(graph.graph)
    places = [node for node in changed.nodes if node.op == "placeholder"]
    for at, number in numbers.items():
        for item in list(places[at].users):
            for user in list(item.users):
                user.args = torch.fx.map_arg(user.args, lambda one, item=item, x=number: x if one is item else one)
                user.kwargs = torch.fx.map_arg(user.kwargs, lambda one, item=item, x=number: x if one is item else one)
            changed.erase_node(item)
    return torch.fx.GraphModule(graph, changed)


def _is_item(node: torch.fx.Node) -> bool:
    return node.op == "call_method" and node.target == "item"


class _Bound(torch.nn.Module):
    """A graph whose weights and numbers are part of it."""

    def __init__(
        self, graph: torch.fx.GraphModule, inputs: Sequence[Any], fixed: Mapping[int, torch.Tensor], free: list[int]
    ):
        super().__init__()
        self._graph, self._free = graph, free
        self._rest = [None if at in (*free, *fixed) else one for at, one in enumerate(inputs)]
        self._fixed = list(fixed)
        for at, weight in fixed.items():
            self.register_buffer(f"weight_{at}", weight.detach(), persistent=True)

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Compute those outputs of the graph that are tensors."""
        values = list(self._rest)
        for at in self._fixed:
            values[at] = getattr(self, f"weight_{at}")
        for at, one in zip(self._free, given):
            values[at] = one
        return tuple(one for one in self._graph(*values) if one is not None)


def _outputs_of(graph: torch.fx.GraphModule) -> list[bool]:
    """Return for each output of a graph whether it is a tensor; the others are None.

    Raises:
        NotExported: The outputs are no tuple, or one is something else.
    """
    (last,) = [node for node in graph.graph.nodes if node.op == "output"]
    outputs = last.args[0]
    if not isinstance(outputs, (tuple, list)):
        raise NotExported("its output is no tuple")
    for one in outputs:
        value = one.meta.get("example_value", one.meta.get("val")) if isinstance(one, torch.fx.Node) else one
        if value is not None and not isinstance(value, torch.Tensor):
            raise NotExported(f"an output is of the type {type(value).__name__}, and ONNX has tensors")
    return [one is not None for one in outputs]


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array, without a copy where it is contiguous."""
    held = tensor.detach().contiguous()
    if held.dtype is torch.bfloat16:
        return held.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return held.numpy()


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """Return an array as a tensor that shares its memory."""
    held = np.ascontiguousarray(array).reshape(np.shape(array))
    if held.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(held.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(held)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter from printing: what it says is in the error if it fails."""
    names = ("torch.onnx", "torch.export", "torch.fx", "onnxscript", "onnx_ir")
    levels = {name: logging.getLogger(name).level for name in names}
    quiet = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        warnings.simplefilter("ignore")
        for name in names:
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
