"""What executes a part of a model: the contract of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from dovetail.errors import DovetailError
from dovetail.plugin.contracts import class_of, derived

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.plugin.registry import Registry


class EngineError(DovetailError):
    """An engine refuses a region, or fails while it runs one.

    Args:
        message: What happened, naming the engine and, where it tells, the node.
        hint: What to do about it.
        node: Name of the node at fault, or of a value that it computes; empty where the engine does not say.
    """

    def __init__(self, message: str, hint: str = "", node: str = ""):
        super().__init__(message, hint)
        self.node = node


class Availability(NamedTuple):
    """Can an engine run on this machine, and if not, why; `why` may also hold a caveat of one that can."""

    ok: bool
    why: str = ""


class Reads(NamedTuple):
    """What an engine's reader takes.

    Attributes:
        opset: The highest version of the default ONNX domain.
        ir_version: The highest ONNX IR version.
        types: Names of the element types it takes at its borders.
    """

    opset: int
    ir_version: int
    types: frozenset[str]


class Executed(NamedTuple):
    """How one node was really executed.

    Attributes:
        precision: Element type it computed in, as the engine reports it; empty when it does not report.
        how: `reported`, `reported-on-cpu` (by the engine of another device, which left this node to the CPU),
            `fused-into:<node>`, `folded` (computed once, when the region was loaded), `reported-alone` (of a body that
            was compiled by itself to find out) or `not-reported`.
    """

    precision: str
    how: str


@dataclass(frozen=True)
class RegionModel:
    """A part of a plan as a model of its own.

    Attributes:
        model: The model; node names are those of the whole model.
        path: A file that holds exactly this model, where there is one already; the engine may read it instead.
        artifact: The folder with the files that the backend's emitters made of this region, where a node stands for it
            or a call of a function holds it; only for engines that say `loads_artifacts = True`.
    """

    model: Model
    path: Path | None = None
    artifact: Path | None = None


class Session(ABC):
    """A loaded region.

    Attributes:
        notes: What the user should know of how it was loaded.
    """

    notes: Sequence[str] = ()

    @abstractmethod
    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name; may be called from several threads at once.

        bfloat16 arrays have the dtype `ml_dtypes.bfloat16`. Results belong to the caller: a later call does not
        change them.
        """

    @abstractmethod
    def executed(self) -> dict[str, Executed]:
        """How every node of the region was executed, by node name."""


class Engine(ABC):
    """Something that executes region models.

    Attributes:
        name: The name that it is registered under.
        reads: What its reader takes.
        loads_artifacts: Whether it loads what emitters made of regions; `RegionModel.artifact` is then given.
    """

    name: str
    reads: Reads
    loads_artifacts: ClassVar[bool] = False

    @abstractmethod
    def available(self) -> Availability:
        """Whether it can run here; must be cheap and must not raise."""

    @abstractmethod
    def load(self, region: RegionModel, options: Mapping[str, object]) -> Session:
        """Make a session.

        Args:
            region: The region.
            options: What the user gave for engines, of which each takes what it knows (`threads`), and as `backend` the
                chosen options of the backend that the engine runs for.

        Raises:
            EngineError: The engine refuses the region; it names the node where the engine tells.
        """


class SelectiveEngine(Engine):
    """The base of engines that run operators which the other engines of a backend do not know.

    Such an engine is asked first for a region with a node that it takes. The host accepts these nodes, too, although
    its file does not list them.
    """

    @classmethod
    @abstractmethod
    def of(cls, registry: Registry) -> SelectiveEngine:
        """Make the engine, given everything that plugins registered."""

    @abstractmethod
    def takes(self, node: ir.Node) -> bool:
        """Whether it runs this node, and other engines do not."""


class Evaluator(Engine):
    """The base of engines that compute one node at once, too, for passes that fold constants."""

    @abstractmethod
    def evaluate(
        self, node: ir.Node, inputs: Sequence[np.ndarray | None], opsets: Mapping[str, int]
    ) -> list[np.ndarray]:
        """The outputs of `node` that have a name.

        Args:
            node: The node; it is read and not changed.
            inputs: An array per input, None for one that is absent.
            opsets: The versions of the domains that the model imports.

        Raises:
            EngineError: There is no implementation, it refuses these inputs, or a result has not the declared type.
        """


def make_engine(registry: Registry, name: str) -> Engine:
    """The engine that is registered as `name`.

    Raises:
        DovetailError: Nobody registered the name, its module does not import, or it is no engine.
    """
    who = registry.engine.title(name)
    found = class_of(registry.engine[name], who, Engine)
    return derived(found.of(registry) if issubclass(found, SelectiveEngine) else found(), who, Engine)


def evaluator_of(registry: Registry, name: str) -> Evaluator | None:
    """The engine that is registered as `name`, if it is there and computes single nodes."""
    found = registry.engine.get(name)
    return found() if isinstance(found, type) and issubclass(found, Evaluator) else None


class SpanRecorder(Protocol):
    """Takes the steps of a run; may be called from several threads."""

    def span(self, name: str, category: str, begun: int, about: Mapping[str, object]) -> None:
        """Record a step of the calling thread that ends now.

        Args:
            name: What is shown for it.
            category: Its kind, in one word: `instruction`.
            begun: When it began, by `time.perf_counter_ns`.
            about: What is said of it beside its time.
        """


_CURRENT: ContextVar[SpanRecorder | None] = ContextVar("dovetail-span-recorder", default=None)


def span_recorder() -> SpanRecorder | None:
    """What records the run that the calling thread works for; None if nobody records it."""
    return _CURRENT.get()


@contextmanager
def record_spans(recorder: SpanRecorder) -> Iterator[None]:
    """Let `span_recorder` return `recorder` in this thread until the end of the block."""
    token = _CURRENT.set(recorder)
    try:
        yield
    finally:
        _CURRENT.reset(token)
