"""What compiling gives: the model, its plan, and how to run it."""

from __future__ import annotations

import html
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.compiler.artifacts import nodes_of
from dovetail.compiler.running import cannot_run, runner_class
from dovetail.ir.graphs import body_nodes
from dovetail.planning.placement import HOST, PART, get_placement
from dovetail.planning.remark import assumed
from dovetail.text import pluralize

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail.compiler.artifacts import ArtifactFolder
    from dovetail.compiler.running import Verification
    from dovetail.ir.model import Model
    from dovetail.planning.placement import Placement
    from dovetail.planning.plan import Plan
    from dovetail.planning.remark import Remark
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.engine import Engine, Executed
    from dovetail.plugin.registry import Registry
    from dovetail.plugin.results import SavedResult
    from dovetail.plugin.services import Executor, Runner


_SHOWN = 5  # reasons among the notes


@dataclass(repr=False)
class CompiledModel:
    """A model in which every operator has a backend and a precision.

    Attributes:
        model: The result, with placements as annotations.
        plan: What was decided, and why.
        backends: The backends in it, with their options chosen.
        verification: The comparison with the original, where one was asked for.
        source: The file of the source model, which no result may replace.
        saved: What the store that it was loaded from knows of it; None for a new one.
        files: Texts to save beside the model, by file name.
        artifacts: What backends made of their regions for their own tools, or None.
        options: Passed to the engines when they load (`threads`, say); each takes what it knows.
        registry: Has the engines and executors that plugins bring; None for those of all installed plugins.
        trial: What trying the engines left for whatever runs the model.
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
    trial: Any = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _revision: int = field(default=-1, repr=False)

    def __post_init__(self) -> None:
        self._revision = self.model.revision

    @property
    def edited(self) -> bool:
        """Whether somebody changed the model since it was compiled or opened."""
        return self.model.revision != self._revision

    def __repr__(self) -> str:
        return f"<CompiledModel {self.model.graph.name or 'model'}: {self.summary()}>"

    def _repr_html_(self) -> str:
        """The placement table and the coverage line, as notebooks show them."""
        rows = self.placement_table()
        head = "".join(f"<th>{html.escape(key)}</th>" for key in (rows[0] if rows else ()))
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row.values()) + "</tr>" for row in rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{html.escape(self.summary())}</p>"

    @property
    def remarks(self) -> list[Remark]:
        """Every reason."""
        return self.plan.remarks

    @property
    def _runner(self) -> Runner | None:
        """What runs it, made once for all threads; None if nothing that runs models is installed."""
        with self._lock:
            return self._made_runner

    @cached_property
    def _made_runner(self) -> Runner | None:
        from dovetail.plugin.loader import load_plugins

        make = runner_class(self.registry or load_plugins().registry)
        return None if make is None else make(self)

    @property
    def runner(self) -> Runner:
        """What runs it.

        Raises:
            DovetailError: Nothing that runs models is installed.
        """
        if self._runner is None:
            raise cannot_run()
        return self._runner

    @property
    def engines(self) -> Mapping[str, Sequence[Engine]]:
        """The engines of each backend in it.

        Raises:
            DovetailError: A backend has no engine at all.
        """
        return self.runner.engines

    def executor(self, name: str = "") -> Executor:
        """What runs it, made when first asked for, and again when `options` have changed.

        Args:
            name: The name of an executor that a plugin brings; without it, the one that runs region by region.

        Raises:
            DovetailError: No plugin brings it, it cannot be made, or no engine takes a region.
        """
        return self.runner.executor(name)

    def unload(self) -> None:
        """Let go of the engines' sessions and their memory; they are made again when something is run."""
        self.runner.unload()

    @property
    def regions(self) -> Sequence[Any]:
        """The regions in the order in which they run; each can be run alone: `compiled.regions[0].run({...})`."""
        return self.runner.runners

    def run(self, inputs: Mapping[str, object], executor: str = "") -> dict[str, np.ndarray]:
        """All outputs by name; may be called from several threads at once.

        Args:
            inputs: An array, list or number for each input.
            executor: As for `executor`.

        Raises:
            DovetailError: An input is missing, unknown or does not fit, or no engine runs a region.
        """
        return self.runner.run(inputs, executor)

    def run_on(self, data: object, executor: str = "") -> dict[str, np.ndarray]:
        """All outputs for all batches of `data` (see `dovetail.input_data`), joined on the first axis.

        Raises:
            DovetailError: The data does not fit, or no engine runs a region.
        """
        return self.runner.run_on(data, executor)

    def executed(self) -> Mapping[str, Executed]:
        """The precision that every node was really executed in, by what ran it last, by node name."""
        return self.runner.executed()

    def placement_table(self) -> list[dict[str, Any]]:
        """How many nodes of each operator are where and in what; those that stand for one of the plan count as one.

        Rows of operator, backend, precision, executed, nodes. `executed` is the precision that the engine reports,
        where the regions have been loaded; `-` where it reports none.
        """
        executed = self.runner.executed() if self._runner is not None and self.runner.loaded else None
        return self.placements() if executed is None else self._table(executed)

    def placements(self) -> list[dict[str, Any]]:
        """The rows of `placement_table` as they were planned: operator, backend, precision, nodes."""
        known = self.saved.placements if self.saved is not None and not self.edited else None
        return self._table(None) if known is None else [dict(row) for row in known]

    def _table(self, executed: Mapping[str, Executed] | None) -> list[dict[str, Any]]:
        rows: Counter[tuple[str, ...]] = Counter()
        placed = [(node, placement) for node in self._counted_nodes() if (placement := get_placement(node))]
        operator = self._planned_operator()
        if executed is None:
            # Few distinct placements: text is made per kind of row, not per node.
            kinds = Counter((operator(node), placement.backend, placement.precision) for node, placement in placed)
            rows.update({(*row, str(precision or "")): number for (*row, precision), number in kinds.items()})
        else:
            for node, placement in placed:
                text = str(placement.precision or "")
                rows[operator(node), placement.backend, text, _reported(executed.get(node.name or ""), placement)] += 1
        keys = ("operator", "backend", "precision", "executed")
        return [
            {**dict(zip(keys, row)), "nodes": number}
            for row, number in sorted(rows.items(), key=lambda row: (-row[1], row[0]))
        ]

    def summary(self) -> str:
        """The coverage line: `cpu-bf16 96/104 nodes in 2 regions, host 8; 3 joins; SNR 41.2 dB`."""
        line = self.coverage() + (self.runner.stand_ins() if self._runner is not None else "")
        if self.verification is not None and self.verification.short():
            line += f"; {self.verification.short()}"
        return line

    def coverage(self) -> str:
        """The coverage line without the verification."""
        if self.saved is not None and not self.edited and self.saved.coverage is not None:
            return self.saved.coverage
        placements = (placement for node in self._counted_nodes() if (placement := get_placement(node)))
        coverage = Counter(placement.backend for placement in placements)
        total = sum(coverage.values())
        placed = (placement for node in self.model.graph if (placement := get_placement(node)))
        numbers = {(placement.region, placement.backend) for placement in placed}
        regions = Counter(backend for number, backend in numbers if number is not None)
        parts = []
        for backend, number in sorted(coverage.items(), key=lambda item: (item[0] == HOST, -item[1])):
            whole = f"{backend} {number}/{pluralize(total, 'node')} in {pluralize(regions[backend], 'region')}"
            parts.append(f"{backend} {number}" if backend == HOST else whole)
        joins = self.plan.summary.get("joins", 0)
        return ", ".join(parts) + f"; {pluralize(joins, 'join')}"

    def _counted_nodes(self) -> Iterator[ir.Node]:
        """The placed nodes without those that are a part of what stands for one node of the plan."""
        return (node for node in self._placed_nodes() if PART not in node.metadata_props)

    def _planned_operator(self) -> Callable[[ir.Node], str]:
        """The operator of a node; that of the plan where several nodes stand for one of it."""
        split = {node.metadata_props[PART] for node in self._placed_nodes() if PART in node.metadata_props}
        planned = {node.name: node.op_type for node in self.plan.nodes if node.name in split} if split else {}
        return lambda node: planned.get(node.name or "", node.op_type)

    def _placed_nodes(self) -> Iterator[ir.Node]:
        """All nodes, with those of functions and of compiled regions instead of the nodes that stand for them."""
        if not self.model.ir.functions:
            yield from self.model.nodes()
            return
        for node in self.model.graph:
            held = nodes_of(self.model, node)
            yield from (node, *body_nodes(node)) if held == (node,) else held

    def notes(self) -> list[str]:
        """What the user should know: what was assumed of the model, what failed, and what engines have to say."""
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
        """Write the result, by the installed store for paths of that suffix.

        `dovetail-onnx` writes a folder: `model.onnx`, `plan.yaml`, `remarks.json`, what passes want beside them, and
        `result.json`, which says what belongs together. They take the place of an earlier result as a whole: whatever
        happens meanwhile, `dovetail.load` finds either the old result or this one. Other files in the folder stay.

        Raises:
            DovetailError: The folder cannot be written to, the disk is full, or the source model would be replaced.
        """
        from dovetail.compiler.stores import store_for

        with store_for(folder, "save", self.registry) as store:
            store.save(self, Path(folder), external=external, progress=progress)


def _reported(how: Executed | None, planned: Placement) -> str:
    """The precision that an engine reports of a node, for a table; of a conversion it may report either side."""
    if how is None or how.how == "not-reported":
        return "-"
    if how.precision in map(str, planned.ports.values()):
        return str(planned.precision)
    if how.how.startswith("fused-into") and planned.precision and not planned.precision.is_float:
        return "-"  # integers that a fusion of floats reads have no precision of their own
    return how.precision or how.how
