"""Guarded engines of backends: any exception becomes an error that names the engine and its distribution."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dovetail.errors import DovetailError
from dovetail.planning import HOST, from_source
from dovetail.plugin import (
    Availability,
    Emitter,
    Engine,
    EngineError,
    Reads,
    RegionModel,
    SelectiveEngine,
    Session,
)
from dovetail.plugin.loading import (
    TRIAL,
    artifact_of,
    class_of,
    derived,
    described,
    foreign_output,
    make_engine,
)

from dovetail_runtime.foreign_programs import refuse_programs
from dovetail_runtime.guarded_session import GuardedSession
from dovetail_runtime.nested_graphs import calls

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Backend, Registry


_LONGEST = 500  # characters of an engine's message
_BRINGS = {"kernels": "; `pip install dovetail-kernels` brings it"}
"""How to get an engine that backends of other distributions name."""


class GuardedEngine:
    """An engine whose errors name it.

    Attributes:
        name: The engine's name.
        distribution: The distribution that brings it; empty if it is unknown.
        chosen: Options of its backend.
        label: The name with the distribution that brings it, for messages: `openvino-cpu (dovetail-cpu-bf16)`.
        stands_in: Whether it is an engine of the host that runs a backend without an engine on this machine.
    """

    stands_in = False

    def __init__(self, engine: Engine, distribution: str = "", chosen: Mapping[str, str] = MappingProxyType({})):
        self._engine = engine
        self.chosen = chosen
        self.name, self.distribution = engine.name, distribution
        self.label = f"{engine.name} ({distribution})" if distribution else engine.name

    def standing_in(self) -> GuardedEngine:
        """Return this engine for regions of a backend that has none on this machine."""
        other = copy.copy(self)
        other.stands_in = True
        return other

    def available(self) -> Availability:
        """Check whether the engine can run here; an engine whose check raises cannot."""
        try:
            with foreign_output(self.label):
                ok, why = self._engine.available()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return Availability(False, f"its check failed: {_described(error)}")
        return Availability(bool(ok), str(why))

    @property
    def loads_artifacts(self) -> bool:
        """Whether the engine wants the files of compiled regions and the calls to them."""
        return self._engine.loads_artifacts

    @property
    def interprets(self) -> bool:
        """Whether the engine computes node by node in Python."""
        return self._engine.interprets

    @property
    def emulates(self) -> bool:
        """See `dovetail.plugin.Engine`."""
        return self._engine.emulates

    @property
    def spoils_sessions(self) -> bool:
        """See `dovetail.plugin.Engine`."""
        return self._engine.spoils_sessions

    def takes(self, node: ir.Node) -> bool:
        """Check whether the engine runs a node that the other engines of its backend do not support.

        Raises:
            EngineError: The check raises.
        """
        if not isinstance(self._engine, SelectiveEngine):
            return False
        try:
            with foreign_output(self.label):
                return bool(self._engine.takes(node))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self.failure(error, f"cannot say whether it runs node '{node.name}'") from error

    @property
    def is_selective(self) -> bool:
        """Whether the engine runs nodes that the other engines of its backend do not support."""
        return isinstance(self._engine, SelectiveEngine)

    @property
    def is_unimportable(self) -> bool:
        """Whether it only stands for an engine whose module cannot be imported."""
        return isinstance(self._engine, UnimportableEngine)

    @property
    def reads(self) -> Reads:
        """The opsets and types that the engine's reader accepts."""
        return self._engine.reads

    def load(self, region: RegionModel, options: Mapping[str, object]) -> GuardedSession:
        """Load a region into a new session.

        Raises:
            EngineError: The engine refuses the region, or crashes.
        """
        if not self.loads_artifacts:
            if region.artifact is not None and any(map(artifact_of, region.model.graph)) and not calls(region.model):
                raise EngineError(f"{self.label} does not run what was compiled for another engine")
            region = replace(region, artifact=None, shared=None)
        refuse_programs(region, self.label)
        region = self.in_its_opset(region)
        try:
            with foreign_output(self.label):
                session = self._engine.load(region, {**options, "backend": dict(self.chosen)})
                derived(session, f"what {self.label} loads", Session)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            failure = self.failure(error, "could not load the region")
            failure.message += _source_of(failure.node, region.model.graph)
            raise failure from error
        return GuardedSession(session, self, region.model.graph.outputs)

    def in_its_opset(self, region: RegionModel) -> RegionModel:
        """Convert the region to the opset versions that the engine's reader supports; programs are compiled already.

        Raises:
            EngineError: The region cannot be converted to them.
        """
        reads, model = self._engine.reads, region.model
        is_newer = model.opset > reads.opset and region.artifact is None
        if is_newer and not model.ir.functions:
            from dovetail_transforms.lowering import NotLowered, lower

            try:
                model = lower(model, reads.opset).model
            except NotLowered as error:
                why = f"{self.label} reads opset {reads.opset} at most: {error.message}"
                raise EngineError(why, error.hint, error.node) from error
            region = replace(region, model=model, path=None)
        if is_newer and model.opset > reads.opset:
            raise EngineError(f"{self.label} reads opset {reads.opset} at most, the region has {model.opset}")
        if model.ir.ir_version > reads.ir_version:
            region = replace(region, model=_declared_older(model, reads.ir_version), path=None)
        return region

    def failure(self, error: BaseException, what: str) -> EngineError:
        """Convert an engine's exception to an error that names the engine."""
        if not isinstance(error, DovetailError):
            return EngineError(f"{self.label} {what}: {_described(error)}")
        message = " ".join(error.message.split())
        message = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}..."
        if message.startswith(self.name):
            message = self.label + message.removeprefix(self.name)
        else:
            message = f"{self.label}: {message}"
        nodes = error.nodes if isinstance(error, EngineError) else ()
        return EngineError(message, error.hint, error.node, nodes)


class UnimportableEngine(Engine):
    """The place of an engine whose module cannot be imported, so that every list and note has its reason.

    Args:
        name: Its name.
        why: Why it cannot be imported.
    """

    reads = Reads(0, 0, frozenset())

    def __init__(self, name: str, why: str):
        self.name, self._why = name, why

    def available(self) -> Availability:
        """Return the reason."""
        return Availability(False, self._why)

    def load(self, region: RegionModel, options: Mapping[str, object]) -> Session:
        """Refuse the region.

        Raises:
            EngineError: Always.
        """
        raise EngineError(f"{self.name} cannot be imported: {self._why}")


def _declared_older(model: Model, ir_version: int) -> Model:
    """Return `model` with a lower IR version.

    That is the version of the tool that wrote a file, which seldom has anything of it: what depends on the version are
    opsets and element types, and those are compared with the engine's own.
    """
    import onnx_ir as ir
    from dovetail.ir import Model

    older = ir.Model(model.graph, ir_version=ir_version, functions=tuple(model.ir.functions.values()))
    return Model(older, dialect=model.dialect)


def _source_of(name: str, graph: ir.Graph) -> str:
    """Return the source nodes of the node that an engine names, if their names differ; else empty."""
    names = (node for node in graph if name and name in (node.name, *(value.name for value in node.outputs)))
    return next(map(from_source, names), "")


def guarded(engine: Engine | GuardedEngine, distribution: str = "") -> GuardedEngine:
    """Wrap `engine` in a guard, unless it has one."""
    return engine if isinstance(engine, GuardedEngine) else GuardedEngine(engine, distribution)


def _described(error: BaseException) -> str:
    return " ".join(described(error).split())


Engines: TypeAlias = "Mapping[str, Sequence[GuardedEngine]]"
"""The engines of every backend, in its order of preference."""

TARGET_ONLY = "target-only"
"""Name of the option under which a request or a plan says that the result is for another machine."""


def engines_of(
    backends: Iterable[Backend], registry: Registry, target_only: Callable[[], bool] = lambda: False
) -> dict[str, list[GuardedEngine]]:
    """Return the engines of every backend, in its order of preference.

    One whose module cannot be imported is not available, and its reason becomes a note like that of any other.

    Args:
        backends: The backends.
        registry: The registry with the engines.
        target_only: Asked where a backend has no engine on this machine: whether those of the host stand in.

    Raises:
        DovetailError: A backend has no engines, and none stands in.
    """
    found, lacking = {}, {}
    for backend in backends:
        engines: list[GuardedEngine] = []
        missing: dict[str, str] = {}
        for name in backend.engines:
            if backend.name == HOST and name not in registry.engine:
                continue  # the host names engines that it has where their distribution is installed
            owner = registry.engine.entry(name).owner if name in registry.engine else ""
            try:
                engine = make_engine(registry, name)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                why = str(error).partition(chr(10))[0] or type(error).__name__
                missing[name] = why + (_BRINGS.get(name, "") if name not in registry.engine else "")
                engine = UnimportableEngine(name, missing[name])
            engines.append(GuardedEngine(engine, owner, backend.chosen))
        found[backend.name] = engines if len(missing) < len(engines) else []
        if not found[backend.name] or backend.name != HOST and not any(engine.available().ok for engine in engines):
            lacking[backend.name] = (
                "; ".join(f"{name}: {why}" for name, why in missing.items()) or "its file names none"
            )
    if lacking and target_only():
        for name in lacking:
            found[name] += [engine.standing_in() for engine in found.get(HOST, ())]
    for name, why in lacking.items():
        if not found[name]:
            way = "install the distribution that brings one; --target-only compiles without it"
            raise DovetailError(f"backend '{name}' has no engine here ({why})", way)
    return found


def engines_in(ctx: Context) -> Engines:
    """Return the engines of the chosen backends and of the host, created once per context.

    Raises:
        DovetailError: A backend has no engines.
    """
    known = ctx.kept.get(_Made)
    if known is None:
        backends = (*ctx.backends, ctx.host)
        known = ctx.kept.put(_Made(engines_of(backends, ctx.registry, lambda: TARGET_ONLY in ctx.request.options)))
    return _for_nodes(known.engines, ctx) if TRIAL.get() else known.engines


def _for_nodes(engines: Engines, ctx: Context) -> Engines:
    """Return the engines for a trial: of a backend whose programs match the plan, those that run nodes.

    The host's engines stand in for a backend that has none of these.
    """
    found = dict(engines)
    for backend in ctx.backends:
        emitters = (class_of(ctx.registry.emitter[name], name, Emitter) for name in backend.artifacts)
        if any(emitter.matches_plan for emitter in emitters):
            here = (engine for engine in engines[backend.name] if not engine.is_unimportable)
            own = [engine for engine in here if not engine.loads_artifacts]
            found[backend.name] = own or [engine.standing_in() for engine in engines[HOST]]
    return found


class _Made(NamedTuple):
    engines: Engines
