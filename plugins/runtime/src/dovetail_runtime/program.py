"""A graph as a list of instructions: kernels, control flow, and parts that another engine runs."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from dovetail.ir import all_nodes, bodies, is_onnx, name_of, used_values
from dovetail.planning import extract
from dovetail.plugin import EngineError, Executed, RegionModel, span_recorder
from dovetail.text import pluralize

from dovetail_runtime.nested_graphs import extract_body
from dovetail_runtime.unpartitioned import ready_regions

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.planning import Region
    from dovetail.plugin import Session


Environment: TypeAlias = "dict[str, object]"
"""Live values by name: arrays, and lists of arrays."""

_PART, _SINGLE = "part", "single"


class Instruction(ABC):
    """One instruction of a program.

    Attributes:
        title: Title in a timeline.
        about: Details in a timeline.
        reads: Names of its operands, including constants.
        writes: Names of its results.
        runs_on_constants: Whether it may be constant-folded if all operands are constants.
    """

    title: str
    about: Mapping[str, object]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    runs_on_constants: bool = False

    @abstractmethod
    def run(self, values: Environment, dying: frozenset[str]) -> None:
        """Compute the results.

        Args:
            values: Holds the operands, and receives the results.
            dying: Values owned by the program whose last use this is.
        """

    @abstractmethod
    def executed(self) -> dict[str, Executed]:
        """Return how its nodes were executed, by node name."""


LoadPart: TypeAlias = "Callable[[RegionModel], Session]"
"""Loads nodes without kernels on another engine."""

MakeInstruction: TypeAlias = "Callable[[ir.Node, Callable[[ir.Graph], Program]], Instruction | None]"
"""Creates the instruction of a single node, given a function that compiles its bodies; None if it belongs to a part."""


class Program:
    """Runs a graph; thread-safe.

    Args:
        model: The graph as a separate model.
        make: Creates the instructions of single nodes.
        load: Loads the other nodes, in maximal parts.

    Attributes:
        inputs: Names of the inputs.
        outputs: Names of the outputs, in their order.
    """

    def __init__(self, model: Model, make: MakeInstruction, load: LoadPart):
        def of_body(body: ir.Graph) -> Program:
            return Program(extract_body(model, body), make, load)

        graph = model.graph
        self.inputs = tuple(map(name_of, graph.inputs))
        self.outputs = tuple(map(name_of, graph.outputs))
        single = {node: made for node in graph if (made := make(node, of_body)) is not None}
        self._instructions: list[Instruction] = []
        for region in ready_regions(graph, lambda node: _SINGLE if node in single else _PART):
            if region.backend == _SINGLE:
                self._instructions += [single[node] for node in region.nodes]
            elif region.outputs:
                self._instructions.append(_Part(region, load(RegionModel(extract(model, region)))))
        wanted = {name for one in self._instructions if not isinstance(one, _Part) for name in one.reads}
        wanted.update(self.outputs)
        self._constants: Environment = {
            name: _read_only(value.const_value.numpy())
            for name, value in graph.initializers.items()
            if name in wanted and value.const_value is not None
        }
        self._done = self._run_on_constants()
        self._dying = _dying(self._instructions, {*self.outputs, *self.inputs, *self._constants})

    def run(self, inputs: Mapping[str, object]) -> Environment:
        """Compute all outputs by name."""
        values: Environment = {**self._constants, **inputs}
        recorder = span_recorder()
        for instruction, dying in zip(self._instructions, self._dying, strict=True):
            if recorder is None:
                instruction.run(values, dying)
            else:
                begun = time.perf_counter_ns()
                instruction.run(values, dying)
                recorder.span(instruction.title, "instruction", begun, instruction.about)
            for name in dying:
                values.pop(name, None)
        return {name: values[name] for name in self.outputs}

    def _run_on_constants(self) -> list[Instruction]:
        """Fold instructions whose operands are constants; return the folded ones."""
        done: list[Instruction] = []
        rest: list[Instruction] = []
        for one in self._instructions:
            once = one.runs_on_constants and self._constants.keys() >= set(one.reads)
            if once:
                one.run(self._constants, frozenset())
            (done if once else rest).append(one)
        self._instructions = rest
        wanted = {*self.outputs, *(name for one in rest if not isinstance(one, _Part) for name in one.reads)}
        self._constants = {name: held for name, held in self._constants.items() if name in wanted}
        return done

    def executed(self) -> dict[str, Executed]:
        """Return how every node was executed, by node name."""
        return {name: how for one in (*self._done, *self._instructions) for name, how in one.executed().items()}


class _Part(Instruction):
    """Instruction for nodes that another engine runs."""

    def __init__(self, region: Region, session: Session):
        self._session = session
        self._inputs = tuple(map(name_of, region.inputs))
        self.title, self.about = pluralize(len(region.nodes), "node"), {"nodes": [node.name for node in region.nodes]}
        self.reads = self._inputs
        self.writes = tuple(map(name_of, region.outputs))

    def run(self, values: Environment, dying: frozenset[str]) -> None:
        del dying
        given = {name: values[name] for name in self._inputs}
        values.update(self._session.run(cast("dict[str, np.ndarray]", given)))

    def executed(self) -> dict[str, Executed]:
        return self._session.executed()


def names_read(node: ir.Node) -> tuple[str, ...]:
    """Return the names of values that a node and its bodies read from the enclosing graph."""
    return tuple(dict.fromkeys(name for value in used_values(node) if (name := value.name) is not None))


def holds(node: ir.Node, wanted: Callable[[ir.Node], bool]) -> bool:
    """Check whether a body of a control-flow node contains a node that satisfies `wanted`."""
    return any(wanted(inner) for body in bodies(node) for inner in all_nodes(body))


def fails(node: ir.Node, why: str) -> EngineError:
    """Return an error that names a node."""
    return EngineError(f"kernels: node '{node.name}': {why}", node=node.name or "")


def _dying(instructions: Sequence[Instruction], kept: set[str]) -> list[frozenset[str]]:
    """Return for every instruction the values whose last use it is."""
    last = {name: i for i, one in enumerate(instructions) for name in (*one.writes, *one.reads) if name not in kept}
    found: list[set[str]] = [set() for _ in instructions]
    for name, index in last.items():
        found[index].add(name)
    return [frozenset(names) for names in found]


def _read_only(array: np.ndarray) -> np.ndarray:
    """Return a read-only view of a constant, which no kernel can overwrite."""
    view = array.view()
    view.flags.writeable = False
    return view


def control_flow(node: ir.Node, program_of: Callable[[ir.Graph], Program]) -> Instruction:
    """Create the instruction of a node with bodies.

    Raises:
        EngineError: It is not If, Loop or Scan.
    """
    if node.op_type not in _KINDS or not is_onnx(node):
        raise fails(
            node, f"a body of {node.op_type} holds an operator that a kernel computes, and only If, Loop and Scan may"
        )
    return _KINDS[node.op_type](node, program_of)


class _ControlFlow(Instruction):
    """Base class: programs of the bodies by attribute, and the values that they capture."""

    def __init__(self, node: ir.Node, program_of: Callable[[ir.Graph], Program]):
        self.node = node
        self.title, self.about = node.name or node.op_type, {"operator": node.op_type}
        self.reads = names_read(node)
        self.writes = tuple(value.name for value in node.outputs if value.name)
        self._inputs = tuple(name_of(value) if value is not None else "" for value in node.inputs)
        self._outputs = tuple(value.name or "" for value in node.outputs)
        self._bodies = {id(body): program_of(body) for body in bodies(node)}
        # A body may return values that it does not compute, so take the outputs from the graph, not from its program.
        self._own = {name: self._bodies[id(attribute.value)] for name, attribute in node.attributes.items()
                     if id(attribute.value) in self._bodies}  # fmt: skip
        self._returned = {name: [value.name for value in node.attributes[name].value.outputs] for name in self._own}
        self._taken = {name: [value.name for value in node.attributes[name].value.inputs] for name in self._own}

    def call(self, body: str, given: list[object], values: Environment) -> list[object]:
        """Run a body on its own inputs; captured values come from `values`."""
        program = self._own[body]
        own = dict(zip(self._taken[body], given, strict=True))
        results = program.run({name: own[name] if name in own else values[name] for name in program.inputs})
        return [results[name] for name in self._returned[body]]

    def give(self, values: Environment, results: list[object]) -> None:
        """Enter the node's results under their names."""
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
    """Stack the results of all iterations; without iterations, return an empty array of the declared type and shape."""
    if parts:
        return np.stack(cast("list[np.ndarray]", parts), axis=axis)
    shape = [0, *(extent if isinstance(extent, int) else 0 for extent in list(output.shape or [None])[1:])]
    return np.zeros(shape, output.dtype.numpy() if output.dtype is not None else np.float32)


_KINDS: dict[str, type[_ControlFlow]] = {"If": _If, "Loop": _Loop, "Scan": _Scan}
