"""A graph as a list of instructions: kernels, control-flow nodes, and parts that another engine runs."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from dovetail.ir.bodies import all_nodes, bodies
from dovetail.ir.required import name_of
from dovetail.plugin import EngineError, Executed, RegionModel, span_recorder
from dovetail.text import pluralize
from dovetail_transforms.regions.extraction import extract, extract_body
from dovetail_transforms.regions.regions import ready_regions, used_values

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.plugin import Session
    from dovetail_transforms.regions.regions import Region


Environment: TypeAlias = "dict[str, object]"
"""The values that are there, by name: arrays, and lists of them."""

_PART, _SINGLE = "part", "single"


class Instruction(ABC):
    """One step of a program.

    Attributes:
        title: What a timeline shows for it.
        about: What a timeline says of it beside its time.
        reads: Names of the values that it reads, constants included.
        writes: Names of the values that it computes.
        runs_on_constants: If it reads nothing but constants, its results are constants as well.
    """

    title: str
    about: Mapping[str, object]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    runs_on_constants: bool = False

    @abstractmethod
    def run(self, values: Environment, dying: frozenset[str]) -> None:
        """Compute what it writes.

        Args:
            values: Holds what it reads, and gets what it computes.
            dying: Values that belong to the program and that nothing reads afterwards.
        """

    @abstractmethod
    def executed(self) -> dict[str, Executed]:
        """How its nodes were executed, by node name."""


LoadPart: TypeAlias = "Callable[[RegionModel], Session]"
"""Loads nodes that no kernel computes on another engine."""

MakeInstruction: TypeAlias = "Callable[[ir.Node, Callable[[ir.Graph], Program]], Instruction | None]"
"""The instruction of a single node, given what makes programs of its bodies; None if it belongs to a part."""


class Program:
    """Runs a graph; safe to call from several threads.

    Args:
        model: The graph as a model of its own.
        make: Makes the instructions of single nodes.
        load: Loads the other nodes, in parts as large as can be.

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
        """Run the instructions that may be run once, and keep their results in the place of what they read."""
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
        """How every node was executed, by node name."""
        return {name: how for one in (*self._done, *self._instructions) for name, how in one.executed().items()}


class _Part(Instruction):
    """Nodes that another engine runs."""

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
    """Names of the values that a node and its bodies read from the graph around it."""
    return tuple(dict.fromkeys(name for value in used_values(node) if (name := value.name) is not None))


def holds(node: ir.Node, wanted: Callable[[ir.Node], bool]) -> bool:
    """Whether a body of a control-flow node holds a node that is `wanted`."""
    return any(wanted(inner) for body in bodies(node) for inner in all_nodes(body))


def fails(node: ir.Node, why: str) -> EngineError:
    """The error of a node."""
    return EngineError(f"kernels: node '{node.name}': {why}", node=node.name or "")


def _dying(instructions: Sequence[Instruction], kept: set[str]) -> list[frozenset[str]]:
    """For every instruction the values that nobody needs after it."""
    last = {name: i for i, one in enumerate(instructions) for name in (*one.writes, *one.reads) if name not in kept}
    found: list[set[str]] = [set() for _ in instructions]
    for name, index in last.items():
        found[index].add(name)
    return [frozenset(names) for names in found]


def _read_only(array: np.ndarray) -> np.ndarray:
    """A view of a constant that no kernel can overwrite."""
    view = array.view()
    view.flags.writeable = False
    return view
