"""The contracts of edits, partitioners, executors, runners, input data and solvers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail.compiler.compiled import CompiledModel
    from dovetail.ir.model import Model
    from dovetail.passes.context import Context
    from dovetail.passes.request import Request
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.engine import Engine, Executed


class Editor(ABC):
    """Applies edits of one kind: changes of the graph next to a node; its class is instantiated without arguments.

    Registered under the name of the kind, which requests use: `--edit unit-conv=concat_12:after`, or the claims of a
    strategy. Its effect must depend on the graph and the arguments alone, because a replayed plan applies the same
    edits again.

    Attributes:
        sides: The sides of a node it supports: `before`, `after`, or both.
    """

    sides: tuple[str, ...]

    @abstractmethod
    def apply(self, model: Model, node: ir.Node, side: str, ctx: Context) -> Iterable[ir.Node]:
        """Change the graph next to `node`, and return the added nodes, with types on their outputs.

        Use `ctx.analysis(FreshNames, model)` for value names; unnamed nodes get a name. Inputs and outputs of the model
        must not change.

        Raises:
            DovetailError: The edit is not possible at this node.
        """


class RegionView(Protocol):
    """The input of a partitioner.

    Attributes:
        graph: The main graph, which must not be edited.
        backends: The backends that name the partitioner.
        nodes: Their nodes in graph order, to be partitioned.
        formed: Regions already formed by other partitioners.
        reads: The values that each node of the graph uses, including values captured by its bodies.
        chosen: The backends of the request by name: their options (`chosen["acme-npu"].chosen`), and the `place:`
            section of their files (`chosen["acme-npu"].place`).
        request: The request; None outside of a compilation.
    """

    graph: ir.Graph
    backends: tuple[str, ...]
    nodes: Sequence[ir.Node]
    formed: Sequence[Sequence[ir.Node]]
    reads: Mapping[ir.Node, tuple[ir.Value, ...]]
    chosen: Mapping[str, Backend]
    request: Request | None

    def backend_of(self, node: ir.Node) -> str:
        """Return the backend of any node of the graph."""


class Partitioner(ABC):
    """Partitions the nodes of backends into regions that run as one unit; its class is instantiated without arguments.

    A backend names its partitioner in its attribute `regions` (in a file: `place: {regions: NAME}`); the default is
    `topological`, which forms as few regions as possible.

    Attributes:
        place_keys: Keys under `place:` of a backend's file that it reads, from `view.chosen[name].place`. A key that
            neither the partitioner nor the strategy reads is an error.
    """

    place_keys: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def form(self, view: RegionView) -> Iterable[Iterable[ir.Node]]:
        """Return the regions: every node of `view.nodes` in exactly one, and each with nodes of one backend only.

        A region must be convex, and the regions, together with `view.formed`, must not depend on each other cyclically.
        """


class Executor(ABC):
    """Runs a compiled model; called with a `CompiledModel`, whose model, engines and options it uses.

    `dovetail_runtime.executor.Executor`, which runs region by region, can serve as base class.

    Attributes:
        notes: Notes for the user, one sentence each.
        refusals: Rejections of regions by engines.
        runners: The runner of each region, in execution order; empty if it does not run regions.
    """

    notes: Sequence[str] = ()
    refusals: Sequence[Any] = ()
    runners: Sequence[Any] = ()

    @abstractmethod
    def run(self, inputs: Mapping[str, object]) -> Mapping[str, np.ndarray]:
        """Run the model and return all outputs by name; thread-safe.

        Raises:
            DovetailError: An input is missing or does not fit, or an engine fails.
        """

    @abstractmethod
    def executed(self) -> Mapping[str, Executed]:
        """Return how every node was executed, by node name; empty if unknown."""


class Regions(Protocol):
    """The regions of one backend in a model, as nested pipelines run on them; see `dovetail.regions`."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the regions in execution order; each has an `index`."""

    def __len__(self) -> int:
        """Return the number of regions."""

    def take(self, region: Any) -> Model:
        """Copy a region into a model: its inputs are the values that enter the region, and weights are shared."""

    def put_back(self, region: Any, part: Model) -> None:
        """Replace the nodes of a region by those of the model that `take` returned for it.

        Raises:
            DovetailError: The model no longer fits there.
        """

    def finish(self) -> None:
        """Mark the model as changed, after the last region was put back."""


class Runner(ABC):
    """The runtime interface of `CompiledModel`: the executor registered as `regions`, from dovetail-runtime.

    Created with every `CompiledModel` that is inspected, so it loads nothing before something runs. It also creates the
    other executors.

    Attributes:
        engines: The engines of each backend.
        loaded: Whether engines have loaded the model; if not, `executed` would load it.
        notes: Notes for the user about the engines.
        runners: The regions in execution order.
    """

    engines: Mapping[str, Sequence[Engine]]
    loaded: bool
    notes: Sequence[str]
    runners: Sequence[Any]

    @abstractmethod
    def __init__(self, compiled: CompiledModel) -> None:
        """Prepare to run `compiled`, without loading anything."""

    @staticmethod
    @abstractmethod
    def tried(ctx: Context) -> Mapping[str, str]:
        """Return the engines that may reject parts of a compilation, by backend; they are part of its cache key.

        Raises:
            DovetailError: A backend has no engine.
        """

    @abstractmethod
    def executor(self, name: str = "") -> Executor:
        """Return the executor of that name; by default the one that runs region by region."""

    @abstractmethod
    def run(self, inputs: Mapping[str, object], executor: str = "") -> dict[str, np.ndarray]:
        """Run the model with the executor of that name, and return all outputs by name."""

    @abstractmethod
    def run_on(self, data: object, executor: str = "") -> dict[str, np.ndarray]:
        """Run on all batches of input data and return the outputs, joined on the first axis."""

    @abstractmethod
    def executed(self) -> Mapping[str, Executed]:
        """Return how every node was executed, by node name; empty if unknown."""

    @abstractmethod
    def stand_ins(self) -> str:
        """Return the coverage line's note on fallback engines, which replace preferred ones, or empty."""

    @abstractmethod
    def unload(self) -> None:
        """Release the engines' sessions and their memory."""


class InputData(Protocol):
    """Input data of a request; created by `dovetail.input_data`.

    Attributes:
        given: The data in a form that can be read repeatedly, for passes.
    """

    given: object

    def batches(self, model: Model) -> Iterator[tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]]:
        """Yield the inputs of one run after the other, each with the labels in the data.

        Raises:
            DovetailError: The data does not fit the model.
        """

    def check(self, model: Model) -> None:
        """Check the first batch, to report data that does not fit before any work is done.

        Raises:
            DovetailError: It does not fit the model.
        """

    def extents(self, model: Model) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes that the data gives to inputs whose shape the model leaves open, for one run.

        Raises:
            DovetailError: Two samples differ in an open extent, or the data does not fit.
        """

    def digest(self) -> str:
        """Return a hash of all arrays; empty for data that can be read only once."""


class Solver(Protocol):
    """Chooses formats; a function registered with `registry.solver`."""

    def __call__(self, problem: Any) -> None:
        """Set `chosen` of every variable to one of its `choices`, and optionally its `because` and `why`.

        Args:
            problem: A `dovetail_precision.problem.TypingProblem`: plain data, independent of the model.
        """
