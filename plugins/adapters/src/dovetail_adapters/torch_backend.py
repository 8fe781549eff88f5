"""`torch.compile(model, backend="dovetail")`: each graph that torch captures is exported to ONNX and compiled.

    fast = torch.compile(model, backend="dovetail", options={"backend": "cpu-bf16"})

Torch finds the function `dovetail` by the entry point group `torch_dynamo_backends`.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from dovetail.errors import DovetailError, DovetailWarning

from dovetail_adapters.session import InferenceSession
from dovetail_adapters.torch_export import NotExported, exported, lifted_numbers, to_array, to_tensor

_MOST_SHAPES = 8
"""Shapes of inputs for which a graph is compiled; a call with further ones runs in torch."""


def dovetail(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    **_: Any,
) -> Callable[..., Any]:
    """Compile a graph that torch captured, for inference on CPU tensors.

    Args:
        graph: The graph.
        example_inputs: Its inputs; parameters and buffers of the model become constants.
        mode: Ignored; torch passes it.
        options: Keywords of `dovetail.InferenceSession`: `backend`, `high`, `low`, `pins`, ...

    Returns:
        A function with the inputs and outputs of the graph. It compiles at its first call with inputs of certain
        shapes. What cannot be exported or compiled, needs gradients, or is on another device runs in torch, with one
        `DovetailWarning`.
    """
    return _Compiled(graph, example_inputs, dict(options or {}))


class _Compiled:
    """A captured graph, with a session for each set of input shapes."""

    def __init__(self, graph: torch.fx.GraphModule, examples: Sequence[Any], options: dict[str, Any]):
        self._graph, self._options = graph, options
        self._weights = _weights(graph, examples)
        self._numbers = set(lifted_numbers(graph))
        self._free = [at for at in range(len(examples)) if at not in self._weights]
        self._state = self._state_of(examples)
        self._sessions: dict[tuple[Any, ...], _Prepared | None] = {}
        self._lock = threading.Lock()
        self._told: set[str] = set()

    def __call__(self, *inputs: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(one, torch.Tensor) and one.requires_grad for one in inputs):
            return self._in_torch("gradients are recorded: call it under torch.no_grad()", inputs)
        key = tuple(self._kind(at, inputs[at]) for at in self._free)
        if (state := self._state_of(inputs)) != self._state:
            with self._lock:
                self._sessions.clear()
                self._state = state
        try:
            prepared = self._sessions[key]
        except KeyError:
            prepared = self._prepare(key, inputs)
        if prepared is None:
            return self._graph(*inputs)
        try:
            return prepared.run(inputs)
        except (DovetailError, NotExported) as error:
            return self._in_torch(_first_line(error), inputs)

    def _kind(self, at: int, value: Any) -> object:
        """Return the properties that a compiled graph depends on: type and shape of a tensor, the value of a number."""
        if at in self._numbers:
            return value.item()
        return (value.dtype, tuple(value.shape)) if isinstance(value, torch.Tensor) else value

    def _prepare(self, key: tuple[Any, ...], inputs: Sequence[Any]) -> _Prepared | None:
        with self._lock:
            if key not in self._sessions:
                if len(self._sessions) >= _MOST_SHAPES:
                    self._tell(f"it was called with more than {_MOST_SHAPES} sets of shapes")
                    return None
                try:
                    fixed = {at: inputs[at] for at in self._weights}
                    self._sessions[key] = _Prepared(self._graph, inputs, fixed, self._options)
                except (DovetailError, NotExported) as error:
                    self._tell(_first_line(error))
                    self._sessions[key] = None
            return self._sessions[key]

    def _in_torch(self, why: str, inputs: Sequence[Any]) -> Any:
        self._tell(why)
        return self._graph(*inputs)

    def _tell(self, why: str) -> None:
        if why not in self._told:
            self._told.add(why)
            nodes = sum(node.op.startswith("call") for node in self._graph.graph.nodes)
            warnings.warn(f"a graph of {nodes} operations runs in torch: {why}", DovetailWarning, stacklevel=4)

    def _state_of(self, inputs: Sequence[Any]) -> list[tuple[int, int]]:
        """Identify the weights and their values: a write to a tensor raises its version."""
        held = [*(inputs[at] for at in self._weights), *self._graph.parameters(), *self._graph.buffers()]
        return [(id(weight), -1 if weight.is_inference() else weight._version) for weight in held]


class _Prepared:
    """A graph for inputs of certain shapes, in a session."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        inputs: Sequence[Any],
        fixed: Mapping[int, torch.Tensor],
        options: dict[str, Any],
    ):
        found = exported(graph, inputs, fixed)
        self._taken, self._given = found.taken, found.given
        self._session = InferenceSession(found.model, **options)
        self._inputs = [value.name for value in self._session.get_inputs()]

    def run(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Compute the outputs of the graph."""
        feeds = {name: to_array(inputs[at]) for name, at in self._taken.items() if name in self._inputs}
        results = iter(self._session.run(None, feeds))
        return tuple(to_tensor(next(results)) if is_tensor else None for is_tensor in self._given)


def _weights(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> list[int]:
    """Return the positions of inputs that torch took from modules: parameters, buffers, and other tensors of theirs."""
    places = [node for node in graph.graph.nodes if node.op == "placeholder"]
    static = [node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None for node in places]
    return [
        at
        for at, one in enumerate(examples)
        if isinstance(one, torch.nn.Parameter) or isinstance(one, torch.Tensor) and at < len(static) and static[at]
    ]


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
