"""The smallest model that still fails: by regions, then nodes, then outputs, extents and values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import dovetail
from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.passes import Context, Request
from dovetail.plugin import TemporaryFolder
from dovetail.text import html_table, pluralize
from dovetail_runtime.data.batches import batches

from dovetail_verify.random_inputs import random_batch
from dovetail_verify.reducing.ddmin import minimized
from dovetail_verify.reducing.parts import FailingModel, ModelParts
from dovetail_verify.reducing.recording import give_types, record, temporary_file, typed_copy
from dovetail_verify.reducing.shrinking import Shrinking
from dovetail_verify.runners import reference_runner

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model
    from dovetail.plugin import PluginSet

    from dovetail_verify.reducing.checks import Check
    from dovetail_verify.reducing.journal import ReductionJournal


_TRIES = 3  # runs of the check on the whole model, and on the smallest one
_BATCHES = 16  # batches that are searched for one that fails


@dataclass(repr=False)
class Reduction:
    """The smallest model that still fails.

    Attributes:
        model: The model.
        feeds: The inputs that it fails on, by name; empty if the source does not run.
        nodes: Names of its nodes, as in the source.
        source_nodes: Number of nodes of the source's main graph.
        checks: Number of runs of the check.
        answered: Number of answers that the journal of an earlier run had.
        said: The message of the check for the smallest model.
        notes: Messages for the user.
    """

    model: Model
    feeds: Mapping[str, np.ndarray]
    nodes: list[str]
    source_nodes: int
    checks: int = 0
    answered: int = 0
    said: str = ""
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<Reduction: {self.line()}>"

    def _repr_html_(self) -> str:
        """Return the nodes that are left and what the check said, for notebooks."""
        rows = [{"node": node.name, "operator": node.op_type} for node in self.model.nodes()]
        return html_table(rows, self.line(), self.said, *self.notes)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        fields = ("nodes", "source_nodes", "checks", "answered", "said", "notes")
        arrays = {name: [str(array.dtype), list(array.shape)] for name, array in self.feeds.items()}
        return {**{name: getattr(self, name) for name in fields}, "inputs": arrays}

    def line(self) -> str:
        """Return a one-line summary."""
        earlier = f", and {self.answered} of an earlier run" if self.answered else ""
        before, after = pluralize(self.source_nodes, "node"), pluralize(len(self.nodes), "node")
        return f"{before} reduced to {after} in {pluralize(self.checks, 'check')}{earlier}"


class Reducer:
    """Reduces one model.

    Args:
        model: The model.
        check: Says whether a candidate fails.
        journal: Keeps the answers.
        plugins: The plugins with the host's engines.
        data: Inputs; random ones by default. The first batch that fails is used.
        backends: Backends whose regions are removed first.
        attempts: Number of runs of the check for each candidate; it fails if one of them does.
        progress: Called with (what, done, total).
    """

    def __init__(
        self,
        model: Model,
        check: Check,
        journal: ReductionJournal,
        plugins: PluginSet,
        data: object = None,
        backends: Sequence[Any] = (),
        attempts: int = 1,
        progress: Callable[[str, int, int], None] | None = None,
    ):
        self._model, self._check, self._journal, self._plugins = model, check, journal, plugins
        self._data, self._backends, self._attempts, self._progress = data, backends, attempts, progress
        self._checks, self._answered = 0, journal.resumed
        self._notes: list[str] = []
        self._smallest: FailingModel | None = None

    def run(self) -> Reduction:
        """Reduce the model.

        Raises:
            DovetailError: The whole model does not fail, fails only sometimes, or the check fails on any model.
        """
        typed = typed_copy(self._model, self._plugins)
        with TemporaryFolder("reduce") as folder:
            feeds = self._failing_inputs(typed)
            self._check_control()
            with temporary_file(folder) as file:
                parts = self._parts(typed, feeds, file)
                self._smallest = parts.whole()
                kept = self._fewest_nodes(parts)
                shrunk = self._shrunk(self._smallest, runnable=not self._notes)
        self._confirm(shrunk)
        if self._journal.crashed:
            self._notes.append(f"{pluralize(self._journal.crashed, 'check')} ended the process twice and were left out")
        names = [name_of(parts.nodes[index]) or parts.nodes[index].op_type for index in kept]
        return Reduction(shrunk.model, shrunk.feeds, names, len(parts.nodes), self._checks, self._answered,
                         self._check.said, self._notes)  # fmt: skip

    @property
    def smallest(self) -> FailingModel | None:
        """The smallest candidate found so far, for callers that were interrupted; None before the first."""
        return self._smallest

    def _failing_inputs(self, model: Model) -> Mapping[str, np.ndarray]:
        """Return inputs on which the whole model fails every time.

        Raises:
            DovetailError: There are none, or the check is flaky.
        """
        tried = 0
        for feeds in self._inputs(model):
            tried += 1
            candidate = FailingModel(model, feeds)
            # Not kept in the journal: the command may be repaired after this, under the same name.
            answers = [self._run_check(candidate) for _ in range(_TRIES)]
            if all(answers):
                return feeds
            if any(answers):
                raise DovetailError(
                    f"the check is flaky: the whole model failed in {sum(answers)} of {_TRIES} runs",
                    "make the check deterministic (seeds, threads), or give --attempts 5: a model then fails if one of "
                    "five runs does",
                )
        said = f": {self._check.said}" if self._check.said else ""
        inputs = f" on {pluralize(tried, 'batch')}" if tried > 1 else ""
        raise DovetailError(
            f"the whole model does not fail{inputs}, so there is nothing to reduce{said}",
            "a check command exits with a code other than 0 where the model fails; --data gives inputs that fail",
        )

    def _inputs(self, model: Model) -> Any:
        if self._data is not None:
            return (feeds for feeds, _ in islice(batches(model, self._data), _BATCHES))
        try:
            feeds = random_batch(model)
        except DovetailError:
            feeds = {}
        return [feeds]

    def _check_control(self) -> None:
        """Make sure that the check passes on a model that does nothing.

        Raises:
            DovetailError: It fails there, too, and would fail on whatever is left of the model.
        """
        import numpy as np

        model = dovetail.open(_identity(), self._plugins)
        if self._run_check(FailingModel(model, {"x": np.ones((1, 4), np.float32)})):
            said = f": {self._check.said}" if self._check.said else ""
            raise DovetailError(
                f"the check fails on any model, even on a single Identity{said}",
                "make sure that it runs at all; --raises TEXT says what its output must hold",
            )

    def _parts(self, model: Model, feeds: Mapping[str, np.ndarray], file: Any) -> ModelParts:
        """Record the model's values; one that does not run is cut without."""
        try:
            recorded = record(model, feeds, file, self._plugins)
        except DovetailError as error:
            self._notes.append(f"the host does not run the model, so parts of it get random inputs: {error.message}")
            return ModelParts(model, feeds, None)
        give_types(model.graph, recorded)
        return ModelParts(model, feeds, recorded)

    def _fewest_nodes(self, parts: ModelParts) -> list[int]:
        everything = range(len(parts.nodes))

        def fails(kept: Sequence[int]) -> bool:
            candidate = parts.part(kept)
            if candidate is None or not self._test(f"nodes {_digest(kept)}", candidate):
                return False
            self._smallest = candidate
            if self._progress:
                self._progress(f"{len(kept)} nodes left", len(parts.nodes) - len(kept), len(parts.nodes))
            return True

        kept: list[int] = list(everything)
        regions = self._regions(parts)
        if len(regions) > 1:
            left = minimized(regions, lambda groups: fails(sorted(index for group in groups for index in group)))
            kept = sorted(index for group in left for index in group)
        return minimized(kept, fails)

    def _regions(self, parts: ModelParts) -> list[list[int]]:
        """Return the nodes of each region of the backends' plan; empty if there is no plan."""
        if not self._backends:
            return []
        try:
            plan = dovetail.plan(self._model, self._backends, plugins=self._plugins)
        except Exception:  # the failure that is reduced may be that of planning
            return []
        region = {node.name: (node.backend, node.region) for node in plan.nodes}
        numbered = [(region.get(name_of(node)), index) for index, node in enumerate(parts.nodes)]
        return [[index for _, index in group] for _, group in groupby(numbered, key=lambda pair: pair[0])]

    def _shrunk(self, candidate: FailingModel, runnable: bool) -> FailingModel:
        taken: list[str] = []

        def fails(label: str, smaller: FailingModel) -> bool:
            if self._progress:
                self._progress("smaller arrays", len(taken), 0)
            if not self._test(f"shrink {_digest((*taken, label))}", smaller):
                return False
            taken.append(label)
            self._smallest = smaller
            return True

        shrinking = Shrinking(candidate, fails, self._runs)
        shrinking.outputs()
        if runnable:
            shrinking.extents()
        shrinking.values()
        return shrinking.best

    def _runs(self, candidate: FailingModel) -> bool:
        """Check whether the host runs a candidate, so that it does not fail for another reason."""
        try:
            reference_runner(candidate.model, Context(Request(), plugins=self._plugins))(candidate.feeds)
        except DovetailError:
            return False
        return True

    def _confirm(self, candidate: FailingModel) -> None:
        """Note if the smallest model does not fail every time."""
        failed = [self._run_check(candidate) for _ in range(_TRIES)]
        if not all(failed):
            self._notes.append(
                f"the smallest model failed in {sum(failed)} of {_TRIES} further runs: the check is flaky"
            )

    def _test(self, key: str, candidate: FailingModel) -> bool:
        """Return whether a candidate fails, from the journal or by the check."""
        known = self._journal.known(key)
        if known is not None:
            return known
        self._journal.begin(key)
        try:
            found = self._run_check(candidate)
        except BaseException:
            self._journal.abandon(key)
            raise
        self._journal.answer(key, found)
        return found

    def _run_check(self, candidate: FailingModel) -> bool:
        for _ in range(self._attempts):
            self._checks += 1
            if self._check.fails(candidate):
                return True
        return False


def _digest(items: Sequence[object]) -> str:
    return hashlib.sha256(repr(tuple(items)).encode()).hexdigest()[:24]


def _identity() -> Any:
    import onnx_ir as ir

    node = ir.Node("", "Identity", [value := ir.val("x", ir.DataType.FLOAT, (1, 4))], name="identity")
    node.outputs[0].name = "y"
    node.outputs[0].type, node.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape((1, 4))
    graph = ir.Graph([value], node.outputs, nodes=[node], opset_imports={"": 17}, name="control")
    return ir.Model(graph, ir_version=8)
