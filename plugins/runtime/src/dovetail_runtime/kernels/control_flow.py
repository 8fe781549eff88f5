"""If, Loop and Scan with kernels in their bodies: these are prepared once, and run as programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np
from dovetail.ir.bodies import bodies
from dovetail.ir.required import name_of
from dovetail.plugin import Executed

from dovetail_runtime.kernels.program import Environment, Instruction, Program, fails, names_read

if TYPE_CHECKING:
    import onnx_ir as ir


def control_flow(node: ir.Node, program_of: Callable[[ir.Graph], Program]) -> Instruction:
    """The instruction of a node with bodies.

    Raises:
        EngineError: It is none of If, Loop and Scan.
    """
    if node.op_type not in _KINDS or node.domain not in ("", "ai.onnx"):
        raise fails(
            node, f"a body of {node.op_type} holds an operator that a kernel computes, and only If, Loop and Scan may"
        )
    return _KINDS[node.op_type](node, program_of)


class _ControlFlow(Instruction):
    """The base: programs of the bodies by attribute, and what they read from around them."""

    def __init__(self, node: ir.Node, program_of: Callable[[ir.Graph], Program]):
        self.node = node
        self.title, self.about = node.name or node.op_type, {"operator": node.op_type}
        self.reads = names_read(node)
        self.writes = tuple(value.name for value in node.outputs if value.name)
        self._inputs = tuple(name_of(value) if value is not None else "" for value in node.inputs)
        self._outputs = tuple(value.name or "" for value in node.outputs)
        self._bodies = {id(body): program_of(body) for body in bodies(node)}
        # A body may return what it does not compute: its outputs are those that the graph names.
        self._own = {name: self._bodies[id(attribute.value)] for name, attribute in node.attributes.items()
                     if id(attribute.value) in self._bodies}  # fmt: skip
        self._returned = {name: [value.name for value in node.attributes[name].value.outputs] for name in self._own}
        self._taken = {name: [value.name for value in node.attributes[name].value.inputs] for name in self._own}

    def call(self, body: str, given: list[object], values: Environment) -> list[object]:
        """Run a body on its own inputs; what it captures is taken from `values`."""
        program = self._own[body]
        own = dict(zip(self._taken[body], given, strict=True))
        results = program.run({name: own[name] if name in own else values[name] for name in program.inputs})
        return [results[name] for name in self._returned[body]]

    def give(self, values: Environment, results: list[object]) -> None:
        """Name what the node computed."""
        values.update({name: result for name, result in zip(self._outputs, results, strict=True) if name})

    def executed(self) -> dict[str, Executed]:
        inner = {name: how for program in self._own.values() for name, how in program.executed().items()}
        return {self.node.name or "": Executed("", "reported"), **inner}


class _If(_ControlFlow):
    def run(self, values: Environment, dying: frozenset[str]) -> None:
        del dying
        branch = "then_branch" if bool(np.asarray(values[self._inputs[0]]).reshape(())) else "else_branch"
        self.give(values, self.call(branch, [], values))


class _Loop(_ControlFlow):
    def run(self, values: Environment, dying: frozenset[str]) -> None:
        del dying
        most = int(np.asarray(values[self._inputs[0]]).reshape(())) if self._inputs[0] else None
        going = bool(np.asarray(values[self._inputs[1]]).reshape(())) if self._inputs[1:] and self._inputs[1] else True
        carried = [values[name] for name in self._inputs[2:]]
        stacked: list[list[object]] = [[] for _ in self._outputs[len(carried) :]]
        turn = 0
        while going and (most is None or turn < most):
            given, *results = self.call("body", [np.array(turn, np.int64), np.array(going), *carried], values)
            going, carried = bool(np.asarray(given).reshape(())), results[: len(carried)]
            for kept, result in zip(stacked, results[len(carried) :], strict=True):
                kept.append(result)
            turn += 1
        ends = self.node.outputs[len(carried) :]
        self.give(values, [*carried, *(_stacked(end, kept, 0) for end, kept in zip(ends, stacked, strict=True))])


class _Scan(_ControlFlow):
    def run(self, values: Environment, dying: frozenset[str]) -> None:
        del dying
        attributes = self.node.attributes
        count = attributes["num_scan_inputs"].as_int()
        given = [values[name] for name in self._inputs]
        carried, scanned = given[: len(given) - count], cast("list[np.ndarray]", given[len(given) - count :])
        collected = len(self._outputs) - len(carried)

        def listed(name: str, length: int) -> list[int]:
            return list(attributes[name].as_ints()) if name in attributes else [0] * length

        axes, ends = listed("scan_input_axes", count), listed("scan_output_axes", collected)
        backward, turned = listed("scan_input_directions", count), listed("scan_output_directions", collected)
        steps = scanned[0].shape[axes[0]]
        stacked: list[list[object]] = [[] for _ in range(collected)]
        for turn in range(steps):
            slices = [
                np.take(array, steps - 1 - turn if back else turn, axis=axis)
                for array, axis, back in zip(scanned, axes, backward, strict=True)
            ]
            results = self.call("body", [*carried, *slices], values)
            carried = results[: len(carried)]
            for kept, result in zip(stacked, results[len(carried) :], strict=True):
                kept.append(result)
        outputs = self.node.outputs[len(carried) :]
        results = [
            _stacked(output, kept[::-1] if back else kept, axis)
            for output, kept, axis, back in zip(outputs, stacked, ends, turned, strict=True)
        ]
        self.give(values, [*carried, *results])


def _stacked(output: ir.Value, parts: list[object], axis: int) -> np.ndarray:
    """The results of all turns as one array; without a turn, an empty one of the declared type and shape."""
    if parts:
        return np.stack(cast("list[np.ndarray]", parts), axis=axis)
    shape = [0, *(extent if isinstance(extent, int) else 0 for extent in list(output.shape or [None])[1:])]
    return np.zeros(shape, output.dtype.numpy() if output.dtype is not None else np.float32)


_KINDS: dict[str, type[_ControlFlow]] = {"If": _If, "Loop": _Loop, "Scan": _Scan}
