"""The result of a compilation: the model, its plan, and methods to run and save it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.planning.plan import Plan, coverage_line
from dovetail.planning.remark import assumed
from dovetail.plugin.pickling import Reduced, reduced, state_of
from dovetail.plugin.running import cannot_run, runner_class
from dovetail.text import html_table, pluralize

if TYPE_CHECKING:
    import numpy as np

    from dovetail.ir.model import Model
    from dovetail.planning.placement import Placement
    from dovetail.planning.remark import Remark
    from dovetail.plugin.artifacts import ArtifactFolder
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.engine import Engine, Executed
    from dovetail.plugin.loading.registry import Registry
    from dovetail.plugin.results import SavedResult
    from dovetail.plugin.running import Executor, Runner, Verification


_SHOWN = 5  # reasons listed in the notes


NOTHING_LEFT, NO_NODES = "nothing-left", "no-nodes"
"""Rules of the remarks on a backend without nodes, whose were all refused or never claimed; `backend` is their fact."""


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
        saved_to: The path of the result that it was last saved to, or was loaded from; None for a new one.
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
    saved_to: Path | None = field(default=None, repr=False)
    files: dict[str, str] = field(default_factory=dict)
    artifacts: ArtifactFolder | None = None
    options: dict[str, Any] = field(default_factory=dict)
    registry: Registry | None = field(default=None, repr=False)
    trial: object = field(default=None, repr=False)
    with_nodes: Model | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _revision: int = field(default=-1, repr=False)
    _saved_state: tuple[int, ...] = field(default=(), repr=False)  # of what is at `saved_to`

    def __post_init__(self) -> None:
        self._revision = self.model.revision
        if self.saved_to is not None and not self._saved_state:
            self._saved_state = state_of(self.saved_to)

    @property
    def edited(self) -> bool:
        """Whether the model changed since it was compiled or opened."""
        return self.model.revision != self._revision

    @property
    def is_saved(self) -> bool:
        """Whether it is at `saved_to` as it is: not edited since, and nothing else was written there."""
        return self.saved_to is not None and not self.edited and self._saved_state == state_of(self.saved_to)

    def __reduce__(self) -> Reduced:
        """Pickle a saved result by its path, and any other one with its files; see `dovetail.plugin.pickling`."""
        return reduced(self)

    def __deepcopy__(self, memo: dict[int, object]) -> CompiledModel:
        """Return a copy that shares the weights, and loads its engines itself."""
        held: dict[str, Any] = {one.name: getattr(self.plan, one.name) for one in fields(Plan)}
        held |= {name: value.copy() for name, value in held.items() if isinstance(value, (list, dict))}
        copied = replace(
            self, model=self.model.clone(), plan=Plan(**held), files=dict(self.files), options=dict(self.options),
            trial=None, with_nodes=self.with_nodes and self.with_nodes.clone(), _lock=threading.Lock(),
        )  # fmt: skip
        copied._revision = -1 if self.edited else copied.model.revision
        return copied

    def __repr__(self) -> str:
        return f"<CompiledModel {self.model.graph.name or 'model'}: {self.summary()}>"

    def _repr_html_(self) -> str:
        """Return the placement table and the coverage line as HTML, for notebooks."""
        return html_table(self.placement_table(), self.summary())

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
        """Count the nodes of the plan by operator, backend and precision.

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
        for node in self.plan.nodes:
            how = () if executed is None else (_reported(executed.get(node.name), node.placement),)
            rows[node.operator, node.backend, str(node.precision or ""), *how] += 1
        return [
            {**dict(zip(("operator", "backend", "precision", "executed"), row)), "nodes": number}
            for row, number in sorted(rows.items(), key=lambda row: (-row[1], row[0]))
        ]

    def summary(self) -> str:
        """Return the coverage line: `cpu-bf16 96/104 nodes in 2 regions, host 8; 3 conversions; SNR 41.2 dB`."""
        line = self.coverage() + (self.runner.stand_ins() if self._runner is not None else "")
        if self.verification is not None and self.verification.short():
            line += f"; {self.verification.short()}"
        return line

    def coverage(self) -> str:
        """Return the coverage line without the verification: the nodes of the plan, and the conversions between them.

        Nodes that the file has besides, such as the arithmetic that stands for a quantized node, do not count.
        """
        if self.saved is not None and not self.edited and self.saved.coverage is not None:
            return self.saved.coverage
        # Nobody reads notes where the last line looks as if all were well.
        empty = [one.facts for one in self.plan.remarks if one.rule in (NOTHING_LEFT, NO_NODES)]
        total, joins = pluralize(len(self.plan.nodes), "node"), pluralize(len(self.plan.joins), "conversion")
        first = [f"{facts['backend']} 0/{total}{facts['how']}" for facts in empty if "how" in facts]
        last = [f"{facts['backend']} 0" for facts in empty if "behind" in facts]
        return f"{', '.join([*first, coverage_line(self.plan.nodes), *last])}; {joins}"

    def notes(self) -> list[str]:
        """Return notes for the user: assumptions about the model, failures, and messages of engines."""
        planned = {node.name for node in self.plan.nodes}
        failed: dict[str, set[str]] = {}  # a node refused in several rounds is one node
        for remark in self.remarks:
            if remark.kind == "failed" and remark.node:
                failed.setdefault(remark.why, set()).add(remark.node)
        numbers = Counter({why: len(nodes & planned) or len(nodes) for why, nodes in failed.items()})
        lost = [f"{pluralize(number, 'node')} {why}" for why, number in numbers.most_common(_SHOWN)]
        if len(failed) > _SHOWN:
            lost.append(f"{pluralize(len(failed) - _SHOWN, 'more reason')} of this kind: dovetail explain FOLDER --all")
        return [*assumed(self.remarks), *lost, *(self.runner.notes if self._runner is not None else ())]

    def warnings(self) -> list[str]:
        """Return warnings about engines: nodes that no fast engine runs; `verification` has those of the comparison."""
        return list(self.runner.warnings) if self._runner is not None else []

    def save(
        self,
        folder: str | Path,
        *,
        external: bool | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """Write the result with the store that is installed for the suffix of `folder`.

        `dovetail-onnx` writes a folder: `model.onnx`, `plan.yaml`, `remarks.json`, `verification.json` if it was
        compared with the original, further files of passes, and `result.json`, which lists the files that belong
        together. An earlier result is replaced atomically: even after a crash, `dovetail.load` finds either the old
        result or this one. Other files in the folder stay.

        Raises:
            DovetailError: The folder is not writable, the disk is full, or the source model would be overwritten.
        """
        from dovetail.plugin.loading.stores import store_for

        with store_for(folder, "save", self.registry) as store:
            store.save(self, Path(folder), external=external, progress=progress)
        self.saved_to = Path(folder)
        self._saved_state = state_of(self.saved_to)

    def add_comparison(self) -> None:
        """Add `verification` to the saved result, if it was saved before it was compared.

        Raises:
            DovetailError: It cannot be written.
        """
        from dovetail.plugin.loading.stores import store_for

        if self.saved_to is not None and self.verification is not None:
            with store_for(self.saved_to, "save", self.registry) as store:
                store.add_comparison(self, self.saved_to)


def _reported(how: Executed | None, planned: Placement) -> str:
    """Return the precision that an engine reports for a node, for a table; for a conversion, either side may be it."""
    if how is None or how.how == "not-reported":
        return "-"
    if how.precision in map(str, planned.ports.values()):
        return str(planned.precision)
    if how.how.startswith("fused-into") and planned.precision and not planned.precision.is_float:
        return "-"  # integers that a fusion of floats reads have no precision of their own
    return how.precision or how.how
