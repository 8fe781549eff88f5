"""Programs of a result against the nodes that they stand for: what a vendor's tools compute, beside the plan.

A program (what an emitter compiled of a region, run by an engine or a simulator) gets the inputs that its region has in
the plan's own model. Its outputs are compared with those of the nodes of the region, which the host's engines run in
the types of the plan. So each region is measured alone, and an error is that of the tool, not of the types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, UsageError
from dovetail.ir import name_of
from dovetail.planning import Region, extract, get_placement
from dovetail.plugin.loading import artifact_of, nodes_of
from dovetail.text import pluralize
from dovetail_runtime.data.batches import batches, fitted
from dovetail_runtime.data.quantized_ends import quantized_inputs

from dovetail_verify.accuracy.per_node_errors import ErrorSums
from dovetail_verify.metrics import decibels_text, plain_decibels

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import CompiledModel
    from dovetail_runtime.executor import RegionExecutor
    from dovetail_runtime.region_runner import RegionRunner

Run = Callable[[Mapping[str, "np.ndarray"]], "dict[str, np.ndarray]"]


@dataclass
class ProgramMeasurement:
    """What the program of one region computes, beside the nodes of the region.

    Attributes:
        region: Name of its region, as in the folder of artifacts.
        backend: Its backend.
        nodes: Names of the nodes that it stands for.
        engine: The engine that ran the program; empty if none did.
        outputs: The error of each output, by its name in the plan's model.
        problem: Why it was not compared; else empty.
    """

    region: str
    backend: str
    nodes: Sequence[str]
    engine: str = ""
    outputs: dict[str, ErrorSums] = field(default_factory=dict)
    problem: str = ""

    @property
    def snr_db(self) -> float:
        """The SNR of the worst output in decibels; infinite if all are equal, minus infinity if it was not compared."""
        return -math.inf if self.problem else min((sums.snr_db for sums in self.outputs.values()), default=math.inf)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the table, one per output."""
        span = f"{self.nodes[0]} .. {self.nodes[-1]}" if len(self.nodes) > 1 else "".join(self.nodes)
        own = {"region": self.region, "backend": self.backend, "nodes": f"{len(self.nodes)} ({span})"}
        if self.problem:
            yield {**own, "output": "", "SNR": "not compared", "cosine": "", "engine": self.engine}
        for name, sums in self.outputs.items():
            figures = {"SNR": decibels_text(sums.snr_db), "cosine": f"{sums.cosine:.6f}"}
            yield {**own, "output": name, **figures, "engine": self.engine}

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        outputs = {
            name: {"snr_db": plain_decibels(sums.snr_db), "cosine": round(sums.cosine, 9), "mse": sums.mse}
            for name, sums in self.outputs.items()
        }
        return {"region": self.region, "backend": self.backend, "engine": self.engine, "nodes": list(self.nodes),
                "outputs": outputs, "problem": self.problem}  # fmt: skip


@dataclass
class ProgramErrors:
    """The programs of a result, measured.

    Attributes:
        programs: One measurement per program, worst first.
        batches: Number of batches measured.
        least: The limit in decibels, or None.
    """

    programs: Sequence[ProgramMeasurement]
    batches: int
    least: float | None = None

    @property
    def worst(self) -> ProgramMeasurement:
        """The program that differs most from its nodes, or was not compared."""
        return self.programs[0]

    @property
    def missed(self) -> list[str]:
        """The programs that miss the limit or, with one, were not compared, as sentences."""
        if self.least is None:
            return []
        found = []
        for one in self.programs:
            if one.problem:
                found.append(f"{one.region} of {one.backend} was not compared: {one.problem}")
            elif one.snr_db < self.least:
                output = min(one.outputs, key=lambda name: one.outputs[name].snr_db)
                is_at = f"{one.region} of {one.backend} is at {decibels_text(one.snr_db)} in '{output}'"
                found.append(f"{is_at}; at least {self.least:g} dB are wanted")
        return found

    def table_rows(self) -> list[dict[str, Any]]:
        """Return the table as one mapping per output."""
        return [row for one in self.programs for row in one.rows()]

    def lines(self) -> list[str]:
        """Return the summary to print after the table."""
        bad = [one for one in self.programs if one.problem]
        line = f"{pluralize(len(self.programs), 'program')} against the plan's own nodes, worst first, on "
        line += pluralize(self.batches, "batch")
        if len(bad) < len(self.programs):
            worst = next(one for one in self.programs if not one.problem)
            line += f": the worst is {worst.region} with {decibels_text(worst.snr_db)}"
        # With a limit, these are errors.
        said = bad if self.least is None else []
        return [line, *(f"note: {one.region} of {one.backend} was not compared: {one.problem}" for one in said)]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        found = [one.as_dict() for one in self.programs]
        return {"batches": self.batches, "min_program_snr": self.least, "missed": self.missed, "programs": found}


def measured_programs(
    original: Model,
    plain: Model,
    result: CompiledModel,
    data: object,
    host: Callable[[Model], Run],
    least: float | None = None,
    most: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> ProgramErrors:
    """Compare every program of a result with the nodes of its region.

    Args:
        original: The source model, for its inputs.
        plain: The result with nodes in the place of its programs.
        result: The result.
        data: See `dovetail_runtime.data.sources.read_data`.
        host: Loads a model on the host's engines.
        least: The limit in decibels, or None.
        most: The most batches to run; None for all.
        progress: Called after every batch.

    Raises:
        UsageError: The result has no programs.
        DovetailError: The data does not match, or the plan's model cannot be run.
    """
    programs = [_Program(node, plain, result) for node in result.model.graph if artifact_of(node)]
    if not programs:
        raise UsageError(
            "no region of the result is a program, so there is nothing to compare with the plan",
            "programs come from emitters that compile regions (`emit: {artifacts: ...}` in the backend's file)",
        )
    watched = plain.clone()
    known = set(map(name_of, watched.graph.outputs))
    values = {name_of(value): value for node in watched.graph for value in node.outputs}
    wanted = [name for one in programs for name in (*one.inputs, *one.outputs)]
    watched.graph.outputs.extend(values[name] for name in dict.fromkeys(wanted) if name in values.keys() - known)
    watched.touch()
    run = host(watched)
    count = 0
    for count, (feeds, _) in enumerate(islice(batches(original, data, watched), most), start=1):
        given = fitted(watched, quantized_inputs(watched, feeds))
        found = {**given, **run(given)}
        for one in programs:
            one.compare(found)
        if progress:
            progress("programs", count, 0)
    if not count:
        raise DovetailError("the data holds no batch, so no program was run", "give at least one sample")
    measured = sorted((one.measured for one in programs), key=lambda one: one.snr_db)
    return ProgramErrors(measured, count, least)


class _Program:
    """One program with the conversions at its border, as a model of its own.

    Args:
        node: The node that stands for a region.
        plain: The result with nodes in the place of its programs.
        result: The result.
    """

    def __init__(self, node: ir.Node, plain: Model, result: CompiledModel):
        placement = get_placement(node)
        inside = [inner.name or "" for inner in nodes_of(result.model, node)]
        planned = {one.name for one in result.plan.nodes}
        shown = [name for name in inside if name in planned]  # without conversions
        region = artifact_of(node).rpartition("/")[2]
        self.measured = ProgramMeasurement(region, placement.backend if placement else "", shown or inside)
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self._scales: dict[str, tuple[np.ndarray, np.ndarray, int]] = {}
        self._executor: RegionExecutor | None = None
        self._runner: RegionRunner | None = None
        try:
            self._load(set(inside), plain, result)
        except DovetailError as error:
            self.measured.problem = error.message

    def _load(self, names: set[str], plain: Model, result: CompiledModel) -> None:
        from dovetail_runtime.executor import RegionExecutor

        graph = plain.graph
        nodes = [node for node in graph if node.name in names]
        whole = Region(0, self.measured.backend, tuple(graph), tuple(graph.inputs), tuple(graph.outputs))
        region = whole.part(nodes)
        if len(nodes) != len(names) or not region.outputs:
            raise DovetailError("its nodes are not in the plan's model")
        self._scales = {name_of(value): found for value in region.outputs if (found := _scale_of(value)) is not None}
        self.inputs, self.outputs = list(map(name_of, region.inputs)), list(map(name_of, region.outputs))
        part, engines = _between(result.model, self.inputs, self.outputs), result.engines
        model = extract(result.model, part)
        executor = RegionExecutor(model, engines, result.options, artifacts=result.artifacts)
        self._runner = runner = next(one for one in executor.runners if any(map(artifact_of, one.region.nodes)))
        self.measured.engine = runner.engine
        if not next(one for one in engines[runner.backend] if one.name == runner.engine).loads_artifacts:
            why = "; ".join(executor.notes)
            raise DovetailError(f"{runner.engine} runs the nodes here, not the program{why and f' ({why})'}")
        self._executor = executor

    def compare(self, values: Mapping[str, np.ndarray]) -> None:
        """Run the program on values of the plan's model, and add its outputs beside those of the nodes."""
        if self._executor is None or self.measured.problem:
            return
        try:
            found = self._executor.run({name: values[name] for name in self.inputs})
        except DovetailError as error:
            self.measured.problem = error.message
            return
        if self._runner is not None and self._runner.engine != self.measured.engine:  # another one took over
            why = "; ".join(refusal.error.message for refusal in self._runner.refusals)
            self.measured.problem = f"{self.measured.engine} failed on the data: {why}"
            return
        for name in self.outputs:
            exact, given = values[name], found[name]
            if exact.shape != given.shape:
                self.measured.problem = f"'{name}' has the shape {list(given.shape)}, in the plan {list(exact.shape)}"
                return
            sums = self.measured.outputs.setdefault(name, ErrorSums())
            sums.add(self._real(name, exact), self._real(name, given))

    def _real(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return the floats that integers of a quantized value stand for; other arrays are returned unchanged."""
        if name not in self._scales or array.dtype.kind not in "iu":
            return array
        scale, zero, axis = self._scales[name]
        if scale.ndim:
            shape = [1] * array.ndim
            shape[axis] = -1
            scale, zero = scale.reshape(shape), zero.reshape(shape)
        return (array.astype("float64") - zero) * scale


def _scale_of(value: ir.Value) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Return scale, zero point and axis with which the readers of a value convert it to floats; None if none does."""
    import numpy as np

    for reader, _ in value.uses():
        constants = [given.const_value for given in reader.inputs[1:] if given is not None]
        if reader.op_type == "DequantizeLinear" and constants and None not in constants:
            scale, *zero = (tensor.numpy().astype(np.float64) for tensor in constants if tensor is not None)
            axis = reader.attributes.get("axis")
            along = axis.as_int() if axis is not None else 1
            return scale, zero[0] if zero else np.zeros_like(scale), along
    return None


def _between(model: Model, inputs: Sequence[str], outputs: Sequence[str]) -> Region:
    """Return the nodes of a model that compute some values from others: a program, with conversions around it.

    Raises:
        DovetailError: A value is not there, or something else is needed, such as another program.
    """
    values = {name_of(value): value for node in model.graph for value in node.outputs}
    values |= {name_of(value): value for value in (*model.graph.inputs, *model.graph.initializers.values())}
    lost = next((name for name in (*inputs, *outputs) if name not in values), None)
    if lost is not None:
        raise DovetailError(f"'{lost}' at its border is in the plan's model alone, as between two programs in a layout")
    ends = {values[name] for name in inputs}
    inside: set[ir.Node] = set()
    waiting = [values[name] for name in outputs]
    programs = 0
    while waiting:
        value = waiting.pop()
        node = value.producer()
        if value in ends or value.is_initializer() and not value.is_graph_input() or node in inside:
            continue
        if node is None or programs and artifact_of(node):
            what = f"'{value.name}'" if node is None else f"the program '{node.name}'"
            raise DovetailError(f"it does not run alone: it also reads {what}")
        programs += bool(artifact_of(node))
        inside.add(node)
        waiting += [given for given in node.inputs if given is not None]
    backend = next((place.backend for node in inside if (place := get_placement(node)) is not None), "")
    nodes = tuple(node for node in model.graph if node in inside)
    return Region(0, backend, nodes, tuple(values[name] for name in inputs), tuple(values[name] for name in outputs))
