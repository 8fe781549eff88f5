"""Runner of one region: on the first engine that accepts it, and on the next one if that fails."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError, EngineWarning
from dovetail.ir import name_of
from dovetail.planning import HOST
from dovetail.plugin import EngineError, Executed, RegionModel, TemporaryFolder
from dovetail.text import pluralize

from dovetail_runtime.engines import GuardedEngine
from dovetail_runtime.feeds import declared, shape_mismatches
from dovetail_runtime.guarded_session import GuardedSession
from dovetail_runtime.open_extents import with_open_extents

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    import onnxruntime as ort
    from dovetail.planning import Region

    from dovetail_runtime.sessions import Bindable, SelfChecking


class RegionRefusal(NamedTuple):
    """An engine's refusal of a region.

    Attributes:
        region: The region.
        engine: Name of the engine.
        error: Its error.
    """

    region: Region
    engine: str
    error: EngineError


_MOST_RELOADS = 4  # for inputs of other shapes that fail on a new session, too; then only after 2, 4, 8, ... failures
_MOST_REFUSALS = 20  # that a region reports while it runs; an engine may name the values of every failing input


class _Other(NamedTuple):
    """An engine that replaces a failing one; `position` is its index among the engines that wait."""

    position: int
    engine: GuardedEngine
    session: GuardedSession
    results: dict[str, np.ndarray]  # for the inputs that failed


class NoEngine(DovetailError):
    """Raised if no engine runs a region.

    Attributes:
        refusals: The refusal of each engine.
    """

    def __init__(self, region: Region, refusals: Sequence[RegionRefusal]):
        reasons = [refusal.error.message for refusal in refusals] or ["none of its engines is available here"]
        super().__init__(f"no engine runs {described(region)}: " + "; ".join(reasons))
        self.refusals = list(refusals)


class RegionRunner:
    """Runs one region; thread-safe.

    Args:
        region: The region.
        model: The region as a separate model.
        engines: The engines of its backend that are available here, in order of preference.
        options: Passed to the engine.
        note: Receives messages for the user.

    Attributes:
        region: The region.
        inputs: Names of its inputs.
        engine: Name of the engine that ran it last; before the first run, of the one that loaded it.
        refusals: Refusals at load time, and the first twenty later.

    Raises:
        DovetailError: No engine accepts the region; the message lists all reasons.
    """

    def __init__(
        self,
        region: Region,
        model: RegionModel,
        engines: Sequence[GuardedEngine],
        options: Mapping[str, object],
        note: Callable[[str], None],
    ):
        self.region = region
        self.inputs = list(map(name_of, region.inputs))
        self.refusals: list[RegionRefusal] = []
        self._declared = [declared(value) for value in region.outputs]
        self._model = model
        self._waiting = _selective_first(engines, model)
        self._options = options
        self._note = note
        self._lock = threading.RLock()
        # The host's engine is the reference for others: an input that it rejects is invalid, and its shapes are right.
        self._is_judge = region.backend == HOST
        self._shapes_are_settled = self._is_judge
        self._engine, self._session = self._load_first()
        self._stand_in: _Other | None = None
        self._files: TemporaryFolder | None = None  # of what is loaded again
        self._said: set[str] = set()  # why another engine computed
        self._failures = 0  # of the present session since it computed anything
        self._refused: set[tuple[object, ...]] = set()  # shapes of inputs that a new session failed on
        self.engine = self._engine.name

    @property
    def index(self) -> int:
        """Index of the region in execution order."""
        return self.region.index

    @property
    def backend(self) -> str:
        """Name of the region's backend."""
        return self.region.backend

    @property
    def outputs(self) -> list[str]:
        """Names of the region's outputs."""
        return list(map(name_of, self.region.outputs))

    @property
    def nodes(self) -> list[str]:
        """Names of the region's nodes, without nodes in bodies."""
        return [node.name or "" for node in self.region.nodes]

    @property
    def native(self) -> ort.InferenceSession | None:
        """The session of ONNX Runtime that runs the region as it is; None if there is none."""
        return self._session.native

    @property
    def loaded(self) -> tuple[GuardedSession, RegionModel]:
        """Its session on its present engine, and the region that the session was loaded from."""
        return self._session, self._model

    @property
    def facts(self) -> Mapping[str, object]:
        """What its present engine reports of the loaded region."""
        return self._session.facts

    @property
    def self_checking(self) -> SelfChecking | None:
        """The session of its present engine, if it checks inputs itself; else None."""
        return self._session.self_checking

    @property
    def bindable(self) -> Bindable | None:
        """The session of its present engine, if it runs over fixed arrays and computed the last results; else None."""
        return self._session.bindable if self.engine == self._engine.name else None

    @property
    def joins_neighbors(self) -> bool:
        """Whether one session of its engine may run this region together with others."""
        return self._session.joins_neighbors and not self.stands_in

    def load(self, model: RegionModel, options: Mapping[str, object]) -> GuardedSession:
        """Load another model on the present engine of the region.

        Raises:
            EngineError: The engine does not accept it.
        """
        return self._engine.load(model, options)

    @property
    def stands_in(self) -> bool:
        """Whether an engine of the host runs it because its backend has none on this machine."""
        return self._engine.stands_in

    @property
    def interprets(self) -> bool:
        """Whether its present engine computes node by node in Python."""
        return (self._stand_in.engine if self._stand_in is not None else self._engine).interprets

    @property
    def emulates(self) -> bool:
        """Whether the engine emulates a device; see `dovetail.plugin.Engine`."""
        return (self._stand_in.engine if self._stand_in is not None else self._engine).emulates

    @property
    def is_last(self) -> bool:
        """Whether no other engine takes over if the present one fails."""
        return self._is_judge or not self._waiting

    def __repr__(self) -> str:
        return f"<region {self.index}: {pluralize(len(self.region.nodes), 'node')} of {self.backend} on {self.engine}>"

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute the region's outputs by name.

        If an engine fails on these inputs and a later one does not, the later one steps in, with a note. An engine that
        computes a shape which the model rules out is replaced permanently, as earlier results may have been wrong.

        Raises:
            EngineError: No engine computes these inputs; the error is the first failure.
        """
        engine, session = self._engine, self._session
        try:
            results = session.run(inputs)
        except EngineError as error:
            return self._run_elsewhere(session, inputs, error)
        self.engine, self._failures = engine.name, 0
        mismatches = [] if self._shapes_are_settled else shape_mismatches(self._declared, results)
        if not mismatches:
            return results
        return self._doubted(session, inputs, results, EngineError(f"{engine.label} {mismatches[0].text}"))

    def executed(self) -> dict[str, Executed]:
        """Return how every node of the region was executed, by node name."""
        return self._session.executed()

    def _load_first(self) -> tuple[GuardedEngine, GuardedSession]:
        """Load the region on the first engine that accepts it, and note why the engines before it did not."""
        while self._waiting:
            engine = self._waiting.pop(0)
            try:
                session = engine.load(self._model, self._options)
            except EngineError as error:
                self.refusals.append(RegionRefusal(self.region, engine.name, error))
                continue
            for refusal in self.refusals:
                self._note(f"{self.described} runs on {engine.name}: {refusal.error.message}")
            for note in session.notes:
                self._note(note)
            return engine, session
        raise NoEngine(self.region, self.refusals)

    def _run_elsewhere(self, failed: GuardedSession, inputs: Mapping, error: EngineError) -> dict[str, np.ndarray]:
        """Compute on the next engine that can; the next call tries the first engine again."""
        with self._lock:
            if self._session is not failed:
                return self.run(inputs)  # another thread replaced the engine meanwhile
            if self._reload_opened(inputs):
                return self.run(inputs)
            if self._reload_spoiled(inputs):
                return self.run(inputs)
            other = self._next_that_runs(inputs)
            if other is None:
                raise error
            self._stand_in = other._replace(results={})
            self._say_that_it_moved(other.engine, error)
            return other.results

    def _reload_opened(self, inputs: Mapping) -> bool:
        """Load the region again if the model declares other extents for its inputs than they have; tell if it did."""
        opened = with_open_extents(self._model, inputs)
        if opened is None:
            return False
        try:
            session = self._engine.load(opened.model, self._options)
        except EngineError:
            return False
        self._model, self._files, self._session = opened.model, opened.files, session
        self._shapes_are_settled = True  # what the model declares after them is no better
        self._stand_in = None
        self._note(f"{self.described} is loaded with open extents: {opened.why}")
        return True

    def _reload_spoiled(self, inputs: Mapping) -> bool:
        """Load the region again if earlier inputs may have spoiled the session; tell if a new one computes these."""
        if not self._engine.spoils_sessions:
            return False
        self._failures += 1
        shapes = tuple(getattr(value, "shape", None) for value in inputs.values())
        is_hopeless = shapes in self._refused or len(self._refused) >= _MOST_RELOADS
        if self._failures > 1 and (not is_hopeless or _is_power_of_two(self._failures)):
            with suppress(EngineError):
                session = self._engine.load(self._model, self._options)
                session.run(inputs)
                self._session, self._stand_in = session, None
                return True
        if not is_hopeless:
            self._refused.add(shapes)
        return False

    def _doubted(
        self, session: GuardedSession, inputs: Mapping, results: dict[str, np.ndarray], error: EngineError
    ) -> dict[str, np.ndarray]:
        """Decide whether an engine computed a wrong shape or the model declares one.

        If a second engine computes the declared shapes, it takes over. Otherwise the first engine's shape is accepted,
        with a note.
        """
        with self._lock:
            if self._session is session and not self._shapes_are_settled:
                other = self._next_that_runs(inputs)
                if other is not None and not shape_mismatches(self._declared, other.results):
                    self._take_over(other, error)
                    return other.results
                self._shapes_are_settled = True
                self._note(error.message)
                return results
        return results if self._shapes_are_settled else self.run(inputs)

    def _next_that_runs(self, inputs: Mapping) -> _Other | None:
        """Return the next engine that accepts the region and computes these inputs."""
        for position, engine in enumerate(self._waiting if not self._is_judge else ()):
            try:
                known = self._stand_in
                if known is not None and known.engine is engine:
                    session = known.session
                else:
                    session = engine.load(self._model, self._options)
                return _Other(position, engine, session, session.run(inputs))
            except EngineError:
                continue
        return None

    def _take_over(self, other: _Other, error: EngineError) -> None:
        self._say_that_it_moved(other.engine, error)
        del self._waiting[: other.position + 1]
        self._engine, self._session = other.engine, other.session

    def _say_that_it_moved(self, engine: GuardedEngine, error: EngineError) -> None:
        self.engine = engine.name
        if error.message in self._said or len(self._said) == _MOST_REFUSALS:
            return
        self._said.add(error.message)
        if all(refusal.error.message != error.message for refusal in self.refusals):
            self.refusals.append(RegionRefusal(self.region, self._engine.name, error))
        self._note(f"{self.described} runs on {engine.name}: {error.message}")
        way = error.hint or f"pin these nodes to '{HOST}', or change these inputs, if results have to be the same"
        text = f"{self.described} runs on {engine.name} instead of {self._engine.name}: {error.message}; {way}"
        warnings.warn(text, EngineWarning, stacklevel=2)

    @property
    def described(self) -> str:
        """Describe the region: `region 1 (cpu-bf16, 3 nodes from 'conv_1')`."""
        return described(self.region)


def _is_power_of_two(number: int) -> bool:
    return not number & (number - 1)


def _selective_first(engines: Sequence[GuardedEngine], model: RegionModel) -> list[GuardedEngine]:
    """Order engines: first those that run a node of the region which the others do not support."""
    chosen = [one for one in engines if one.is_selective and any(map(one.takes, model.model.nodes()))]
    others = [one for one in engines if not one.is_selective]
    return [*chosen, *others] or list(engines)


def described(region: Region) -> str:
    """Describe a region: `region 1 (cpu-bf16, 3 nodes from 'conv_1')`."""
    first = region.nodes[0]
    name = first.name or (first.outputs[0].name if first.outputs else first.op_type)
    return f"region {region.index} ({region.backend}, {pluralize(len(region.nodes), 'node')} from '{name}')"


NOT_REPORTED = Executed("", "not-reported")
"""Stands for nodes of engines that do not report how they compute."""


def node_key(node: ir.Node) -> str:
    """Return the name of a node in reports; that of its first output if it has none."""
    return node.name or (node.outputs[0].name if node.outputs else "") or node.op_type


def follow_fusions(nodes: Iterable[ir.Node], reported: Mapping[str, str]) -> dict[str, Executed]:
    """Infer how every node was executed from the precisions of the nodes that an engine reports.

    Engines name a fusion after its last operator. Hence an unreported node was fused into the first reported node along
    its chain of sole users; if that chain forks or ends, nothing is known.
    """
    answers: dict[str, Executed] = {}
    for node in reversed(list(nodes)):
        key = node_key(node)
        if key in reported:
            answers[key] = Executed(reported[key], "reported")
            continue
        consumers = {node_key(user): user for output in node.outputs for user in output.consumers()}
        next_ = answers.get(next(iter(consumers))) if len(consumers) == 1 else None
        if next_ is None or next_ == NOT_REPORTED or any(output.is_graph_output() for output in node.outputs):
            answers[key] = NOT_REPORTED
        else:
            into = next_.how if next_.how.startswith("fused-into:") else f"fused-into:{next(iter(consumers))}"
            answers[key] = Executed(next_.precision, into)
    return answers
