"""The result of a compilation: the model, its plan, and methods to run and save it."""

from __future__ import annotations

import html
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.ir.graphs import body_nodes
from dovetail.planning.placement import HOST, PART, get_placement
from dovetail.planning.remark import assumed
from dovetail.plugin.artifacts import nodes_of
from dovetail.plugin.running import cannot_run, runner_class
from dovetail.text import pluralize

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail.ir.formats import Format
    from dovetail.ir.model import Model
    from dovetail.planning.placement import Placement
    from dovetail.planning.plan import Plan
    from dovetail.planning.remark import Remark
    from dovetail.plugin.artifacts import ArtifactFolder
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.engine import Engine, Executed
    from dovetail.plugin.loading.registry import Registry
    from dovetail.plugin.results import SavedResult
    from dovetail.plugin.running import Executor, Runner, Verification


_SHOWN = 5  # reasons listed in the notes


NOTHING_LEFT = "nothing-left"
"""Rule of the remark on a backend whose nodes were all refused; its fact `backend` names it."""


@dataclass(repr=False)
class CompiledModel:
    """A model whose every operator has a backend and a precision.

    Attributes:
        model: The compiled model, with placements as annotations.
        plan: The decisions and their reasons.
        backends: Its backends, with their options chosen.
        verification: The comparison with the original, if one was requested.
        source: The file of the source model, which saving must not overwrite.
        saved: What the store that loaded it knows about it; None for a new result.
        files: Text files to save next to the model, by file name.
        artifacts: The artifacts that emitters made of its regions, or None.
        options: Engine options for loading (`threads`, for example); each engine takes those it knows.
        registry: The registry with engines and executors; None for that of all installed plugins.
        trial: State left by the engine trial, reused by the runner.
        with_nodes: The model with the nodes of regions that programs or calls replaced; None if none did, or if it was
            loaded from a folder.
    """

    model: Model
    plan: Plan
    backends: Sequence[Backend] = ()
    verification: Verification | None = None
    source: Path | None = None
    saved: SavedResult | None = field(default=None, repr=False)
    files: dict[str, str] = field(default_factory=dict)
    artifacts: ArtifactFolder | None = None
    options: dict[str, Any] = field(default_factory=dict)
    registry: Registry | None = field(default=None, repr=False)
    trial: object = field(default=None, repr=False)
    with_nodes: Model | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _revision: int = field(default=-1, repr=False)

    def __post_init__(self) -> None:
        self._revision = self.model.revision

    @property
    def edited(self) -> bool:
        """Whether the model changed since it was compiled or opened."""
        return self.model.revision != self._revision

    def __repr__(self) -> str:
        return f"<CompiledModel {self.model.graph.name or 'model'}: {self.summary()}>"

    def _repr_html_(self) -> str:
        """Return the placement table and the coverage line as HTML, for notebooks."""
        rows = self.placement_table()
        head = "".join(f"<th>{html.escape(key)}</th>" for key in (rows[0] if rows else ()))
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row.values()) + "</tr>" for row in rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{html.escape(self.summary())}</p>"

    @property
    def remarks(self) -> list[Remark]:
        """All remarks of the plan."""
        return self.plan.remarks

    @property
    def _runner(self) -> Runner | None:
        """The runner of this result, created once for all threads; None if no runtime is installed."""
        with self._lock:
            return self._made_runner

    @cached_property
    def _made_runner(self) -> Runner | None:
        from dovetail.plugin.loading.loader import load_plugins

        make = runner_class(self.registry or load_plugins().registry)
        return None if make is None else make(self)

    @property
    def runner(self) -> Runner:
        """The runner of this result.

        Raises:
            DovetailError: No runtime is installed.
        """
        if (runner := self._runner) is None:
            raise cannot_run()
        return runner

    @property
    def engines(self) -> Mapping[str, Sequence[Engine]]:
        """The engines of each of its backends.

        Raises:
            DovetailError: A backend has no engine.
        """
        return self.runner.engines

    def executor(self, name: str = "") -> Executor:
        """Return the executor that runs this result. It is created on first use, and again if `options` changed.

        Args:
            name: Name of a registered executor; by default the one that runs region by region.

        Raises:
            DovetailError: No such executor is registered, it cannot be created, or no engine takes a region.
        """
        return self.runner.executor(name)

    def unload(self) -> None:
        """Release the engines' sessions and their memory; the next run creates them again."""
        self.runner.unload()

    @property
    def regions(self) -> Sequence[Any]:
        """The regions in execution order; each can be run alone: `compiled.regions[0].run({...})`."""
        return self.runner.runners

    def run(self, inputs: Mapping[str, object], executor: str = "") -> dict[str, np.ndarray]:
        """Run the model and return all outputs by name; thread-safe.

        Args:
            inputs: An array, list or number for each input.
            executor: See `executor`.

        Raises:
            DovetailError: An input is missing, unknown or does not fit, or no engine takes a region.
        """
        return self.runner.run(inputs, executor)

    def run_on(self, data: object, executor: str = "") -> dict[str, np.ndarray]:
        """Run on all batches of `data` (see `dovetail.input_data`) and return the outputs, joined on the first axis.

        Raises:
            DovetailError: The data does not fit, or no engine takes a region.
        """
        return self.runner.run_on(data, executor)

    def executed(self) -> Mapping[str, Executed]:
        """Return the precision that each node was actually executed in by the last executor, by node name."""
        return self.runner.executed()

    def placement_table(self) -> list[dict[str, Any]]:
        """Count nodes by operator, backend and precision; nodes that together replace one node of the plan count once.

        Rows of operator, backend, precision, executed, nodes. `executed` is the precision that the engine reports once
        the regions are loaded; `-` where it reports none.
        """
        executed = self.runner.executed() if self._runner is not None and self.runner.loaded else None
        return self.placements() if executed is None else self._table(executed)

    def placements(self) -> list[dict[str, Any]]:
        """Return the rows of `placement_table` as planned: operator, backend, precision, nodes."""
        known = self.saved.placements if self.saved is not None and not self.edited else None
        return self._table(None) if known is None else [dict(row) for row in known]

    def _table(self, executed: Mapping[str, Executed] | None) -> list[dict[str, Any]]:
        rows: Counter[tuple[str, ...]] = Counter()
        if executed is None:
            # Distinct placements are few: build the text once per placement, not once per node.
            rows.update({(*row, str(precision or "")): number for (*row, precision), number in self._kinds().items()})
        else:
            for operator, node, placement in self._counted():
                text = str(placement.precision or "")
                rows[operator, placement.backend, text, _reported(executed.get(node.name or ""), placement)] += 1
        keys = ("operator", "backend", "precision", "executed")
        return [
            {**dict(zip(keys, row)), "nodes": number}
            for row, number in sorted(rows.items(), key=lambda row: (-row[1], row[0]))
        ]

    def summary(self) -> str:
        """Return the coverage line: `cpu-bf16 96/104 nodes in 2 regions, host 8; 3 joins; SNR 41.2 dB`."""
        line = self.coverage() + (self.runner.stand_ins() if self._runner is not None else "")
        if self.verification is not None and self.verification.short():
            line += f"; {self.verification.short()}"
        return line

    def coverage(self) -> str:
        """Return the coverage line without the verification."""
        if self.saved is not None and not self.edited and self.saved.coverage is not None:
            return self.saved.coverage
        coverage: Counter[str] = Counter()
        for (_, backend, _), number in self._kinds().items():
            coverage[backend] += number
        total = sum(coverage.values())
        placed = (placement for node in self.model.graph if (placement := get_placement(node)))
        numbers = {(placement.region, placement.backend) for placement in placed}
        regions = Counter(backend for number, backend in numbers if number is not None)
        parts = []
        for backend, number in sorted(coverage.items(), key=lambda item: (item[0] == HOST, -item[1])):
            whole = f"{backend} {number}/{pluralize(total, 'node')} in {pluralize(regions[backend], 'region')}"
            parts.append(f"{backend} {number}" if backend == HOST else whole)
        # Nobody reads notes where the last line looks as if all were well.
        empty = (remark.facts["backend"] for remark in self.plan.remarks if remark.rule == NOTHING_LEFT)
        parts[:0] = [f"{backend} 0/{pluralize(total, 'node')} (all refused)" for backend in empty]
        joins = self.plan.summary.get("joins", 0)
        return ", ".join(parts) + f"; {pluralize(joins, 'join')}"

    def _kinds(self) -> Counter[tuple[str, str, Format | None]]:
        """Count the nodes by operator, backend and precision."""
        return Counter((operator, place.backend, place.precision) for operator, _, place in self._counted())

    def _counted(self) -> list[tuple[str, ir.Node, Placement]]:
        """Return the placed nodes, each with its operator; parts of a planned node count as one."""
        nodes = list(self._placed_nodes())
        split = {node.metadata_props[PART] for node in nodes if PART in node.metadata_props}
        planned = {node.name: node.op_type for node in self.plan.nodes if node.name in split} if split else {}
        placed = ((node, get_placement(node)) for node in nodes if PART not in node.metadata_props)
        return [
            (planned.get(node.name or "", node.op_type), node, placement) for node, placement in placed if placement
        ]

    def _placed_nodes(self) -> Iterator[ir.Node]:
        """Yield all placed nodes; a node that stands for a function or a compiled region is replaced by its nodes."""
        if not self.model.ir.functions:
            yield from self.model.nodes()
            return
        for node in self.model.graph:
            held = nodes_of(self.model, node)
            yield from (node, *body_nodes(node)) if held == (node,) else held

    def notes(self) -> list[str]:
        """Return notes for the user: assumptions about the model, failures, and messages of engines."""
        failed = Counter(r.why for r in self.remarks if r.kind == "failed" and r.node)
        lost = [f"{pluralize(number, 'node')} {why}" for why, number in failed.most_common(_SHOWN)]
        if len(failed) > _SHOWN:
            lost.append(f"{pluralize(len(failed) - _SHOWN, 'more reason')} of this kind: dovetail explain FOLDER --all")
        return [*assumed(self.remarks), *lost, *(self.runner.notes if self._runner is not None else ())]

    def save(
        self,
        folder: str | Path,
        *,
        external: bool | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """Write the result with the store that is installed for the suffix of `folder`.

        `dovetail-onnx` writes a folder: `model.onnx`, `plan.yaml`, `remarks.json`, further files of passes, and
        `result.json`, which lists the files that belong together. An earlier result is replaced atomically: even after
        a crash, `dovetail.load` finds either the old result or this one. Other files in the folder stay.

        Raises:
            DovetailError: The folder is not writable, the disk is full, or the source model would be overwritten.
        """
        from dovetail.plugin.loading.stores import store_for

        with store_for(folder, "save", self.registry) as store:
            store.save(self, Path(folder), external=external, progress=progress)


def _reported(how: Executed | None, planned: Placement) -> str:
    """Return the precision that an engine reports for a node, for a table; for a conversion, either side may be it."""
    if how is None or how.how == "not-reported":
        return "-"
    if how.precision in map(str, planned.ports.values()):
        return str(planned.precision)
    if how.how.startswith("fused-into") and planned.precision and not planned.precision.is_float:
        return "-"  # integers that a fusion of floats reads have no precision of their own
    return how.precision or how.how
