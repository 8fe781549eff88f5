"""The contract of engines, which execute parts of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from dovetail.errors import DovetailError
from dovetail.plugin.loading.contracts import class_of, derived

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.plugin.loading.registry import Registry


class EngineError(DovetailError):
    """An engine rejects a region, or fails while it runs one.

    Args:
        message: What happened, with the engine and, if known, the node.
        hint: What to do about it.
        node: Name of the node at fault, or of a value that it computes; empty if the engine does not say.
        nodes: The names of all nodes at fault, if the engine knows them; `node` is then the first.
    """

    def __init__(self, message: str, hint: str = "", node: str = "", nodes: Sequence[str] = ()):
        super().__init__(message, hint)
        self.nodes = tuple(nodes or filter(None, (node,)))
        self.node = node or next(iter(self.nodes), "")


class Availability(NamedTuple):
    """Whether an engine can run on this machine; `why` is the reason if not, or a caveat if so."""

    ok: bool
    why: str = ""


class Reads(NamedTuple):
    """The input limits of an engine.

    Attributes:
        opset: The highest version of the default ONNX domain.
        ir_version: The highest ONNX IR version; regions of a newer one are declared as this.
        types: Names of the element types that it accepts as inputs and outputs.
    """

    opset: int
    ir_version: int
    types: frozenset[str]


class Executed(NamedTuple):
    """The actual execution of one node.

    Attributes:
        precision: Element type of its computation, as the engine reports it; empty if it does not report.
        how: `reported`, `reported-on-cpu` (by the engine of another device, which left this node to the CPU),
            `fused-into:<node>`, `folded` (computed once, when the region was loaded), `reported-alone` (for a body that
            was compiled separately to find out), `in-program` (of a program whose engine reports none of its nodes) or
            `not-reported`.
    """

    precision: str
    how: str


@dataclass(frozen=True)
class RegionModel:
    """A part of a plan as a separate model.

    Attributes:
        model: The model; node names are those of the whole model.
        path: An existing file with exactly this model, or None; the engine may read it instead.
        artifact: The folder of the artifact that emitters made of this region, if a node or a function call stands for
            it; only for engines with `loads_artifacts = True`.
        shared: The folder of files that artifacts of its backend share, if there is one (`JointEmitter`).
    """

    model: Model
    path: Path | None = None
    artifact: Path | None = None
    shared: Path | None = None


class Session(ABC):
    """A loaded region.

    Attributes:
        notes: Notes for the user on how it was loaded.
        facts: What the engine reports of it, such as cycles and memory, as plain data.
    """

    notes: Sequence[str] = ()
    facts: Mapping[str, object] = {}

    @abstractmethod
    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name; thread-safe.

        bfloat16 arrays have the dtype `ml_dtypes.bfloat16`. The caller owns the results: later calls do not change
        them.
        """

    @abstractmethod
    def executed(self) -> dict[str, Executed]:
        """Return how every node of the region was executed, by node name."""

    def close(self) -> None:  # noqa: B027, need not be overridden
        """Release what it holds, such as a process or a device; it is not used any more."""


class Engine(ABC):
    """An executor of region models.

    Attributes:
        name: The name that it is registered under.
        reads: Its input limits.
        loads_artifacts: Whether it loads artifacts of emitters, passed as `RegionModel.artifact`.
        interprets: Whether it computes node by node in Python, for checks: a result that runs on it gets a warning.
        emulates: Whether it is the arithmetic of a device on any CPU, so that what it computes is what the plan says.
        spoils_sessions: Whether a session may refuse what it computed before, once inputs have failed on it. The region
            is then loaded again.
    """

    name: str
    reads: Reads
    loads_artifacts: ClassVar[bool] = False
    interprets: ClassVar[bool] = False
    emulates: ClassVar[bool] = False
    spoils_sessions: ClassVar[bool] = False

    @abstractmethod
    def available(self) -> Availability:
        """Return whether it can run here; must be cheap and must not raise."""

    def devices(self) -> list[str]:
        """Return the devices here that it runs on, as `gpu NVIDIA`; empty if its runtime does not list them.

        Raises:
            EngineError: There is none, or the runtime does not load; the error says what to do.
        """
        return []

    @abstractmethod
    def load(self, region: RegionModel, options: Mapping[str, object]) -> Session:
        """Load a region.

        Args:
            region: The region.
            options: The user's engine options, of which each engine uses those it knows (`threads`), and as `backend`
                the chosen options of the backend that the engine runs for.

        Raises:
            EngineError: The engine rejects the region; the error names the node if it is known.
        """


class SelectiveEngine(Engine):
    """Base class of engines for operators that the other engines of a backend do not support.

    Such an engine is tried first for a region with a node that it takes. The host accepts these nodes as well, although
    its file does not list them.
    """

    @classmethod
    @abstractmethod
    def of(cls, registry: Registry) -> SelectiveEngine:
        """Create the engine from the registry."""

    @abstractmethod
    def takes(self, node: ir.Node) -> bool:
        """Return whether it runs this node, and other engines do not."""


class Evaluator(Engine):
    """Base class of engines that can also evaluate a single node, for passes that fold constants."""

    @abstractmethod
    def evaluate(
        self, node: ir.Node, inputs: Sequence[np.ndarray | None], opsets: Mapping[str, int]
    ) -> list[np.ndarray]:
        """Compute the named outputs of `node`.

        Args:
            node: The node; it is not changed.
            inputs: One array per input, None for an absent one.
            opsets: The opset imports of the model.

        Raises:
            EngineError: There is no implementation, it rejects these inputs, or a result does not have the declared
                type.
        """


def make_engine(registry: Registry, name: str) -> Engine:
    """Create the engine registered as `name`.

    Raises:
        DovetailError: The name is not registered, its module does not import, or its target is not an engine.
    """
    title = registry.engine.title(name)
    found = class_of(registry.engine[name], title, Engine)
    return derived(found.of(registry) if issubclass(found, SelectiveEngine) else found(), title, Engine)


class SpanRecorder(Protocol):
    """Receiver of timed spans of a run; may be called from several threads."""

    def span(self, name: str, category: str, begun: int, about: Mapping[str, object]) -> None:
        """Record a span of the calling thread that ends now.

        Args:
            name: Its label.
            category: Its category, in one word: `instruction`.
            begun: Its start, from `time.perf_counter_ns`.
            about: Further data about it.
        """


CURRENT_RECORDER: ContextVar[SpanRecorder | None] = ContextVar("dovetail-span-recorder", default=None)
"""What `span_recorder` returns; an executor that records sets it in the threads that work for a run."""


def span_recorder() -> SpanRecorder | None:
    """Return the recorder of the run that the calling thread works for; None if it is not recorded."""
    return CURRENT_RECORDER.get()
