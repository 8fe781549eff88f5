"""What edits, partitioners, executors, runners and solvers implement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

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
    """Makes the edits of one kind: changes of the graph next to a node; called without arguments to make one.

    It is registered under the name of the kind, and asked for by that: `--edit unit-conv=concat_12:after`, or in the
    claims of a strategy. What it does must follow from the graph and the arguments alone, because a replayed plan
    applies the same edits again.

    Attributes:
        sides: On which sides of a node it can be made: `before`, `after`, or both.
    """

    sides: tuple[str, ...]

    @abstractmethod
    def apply(self, model: Model, node: ir.Node, side: str, ctx: Context) -> Iterable[ir.Node]:
        """Change the graph next to `node`, and return the nodes that were added, with types on their outputs.

        Names come from `ctx.analysis(FreshNames, model)`; nodes without a name get one. Inputs and outputs of the model
        stay as they are.

        Raises:
            DovetailError: The edit cannot be made at this node.
        """


class RegionView(Protocol):
    """What a partitioner sees.

    Attributes:
        graph: The main graph; a partitioner never edits it.
        backends: The backends that name the partitioner.
        nodes: Their nodes in graph order, which are to be cut into regions.
        formed: Regions that other partitioners made before.
        reads: The values that each node of the graph uses; those that bodies capture are among them.
        chosen: The backends of the request by name: their options (`chosen["acme-npu"].chosen`), and what their files
            say under `place:`.
        request: What was asked for; None where nobody compiles.
    """

    graph: ir.Graph
    backends: tuple[str, ...]
    nodes: Sequence[ir.Node]
    formed: Sequence[Sequence[ir.Node]]
    reads: Mapping[ir.Node, tuple[ir.Value, ...]]
    chosen: Mapping[str, Backend]
    request: Request | None

    def backend_of(self, node: ir.Node) -> str:
        """The backend of any node of the graph."""


class Partitioner(Protocol):
    """Cuts the nodes of backends into regions, parts that run as one unit; called without arguments to make one.

    A backend names its partitioner in its attribute `regions` (in a file: `place: {regions: NAME}`); without one it has
    `topological`, which makes as few regions as possible.
    """

    def form(self, view: RegionView) -> Iterable[Iterable[ir.Node]]:
        """The regions: every node of `view.nodes` in exactly one, each of one backend.

        A region must be convex, and no two may wait for each other, by way of `view.formed` either.
        """


class Executor(ABC):
    """Runs a compiled model; made by calling it with a `CompiledModel`, whose model, engines and options it reads.

    `dovetail_runtime.executor.Executor`, which runs region by region, may be its base.

    Attributes:
        notes: What the user should know, one sentence each.
        refusals: Engines that did not take a region.
        runners: What runs each region, in the order in which they run; empty if it runs none.
    """

    notes: Sequence[str] = ()
    refusals: Sequence[Any] = ()
    runners: Sequence[Any] = ()

    @abstractmethod
    def run(self, inputs: Mapping[str, object]) -> Mapping[str, np.ndarray]:
        """Compute all outputs by name; may be called from several threads at once.

        Raises:
            DovetailError: An input is missing or does not fit, or an engine fails.
        """

    @abstractmethod
    def executed(self) -> Mapping[str, Executed]:
        """How every node was executed, by node name; empty if nobody can tell."""


class Regions(Protocol):
    """The regions of one backend in a model, over which nested pipelines run: what `dovetail.regions` gives."""

    def __iter__(self) -> Iterator[Any]:
        """The regions in the order in which they run; each has an `index`."""

    def __len__(self) -> int:
        """How many there are."""

    def take(self, region: Any) -> Model:
        """A copy of a region as a model: what enters it are its inputs, and weights are shared."""

    def put_back(self, region: Any, part: Model) -> None:
        """Replace the nodes of a region by those of the model that `take` gave for it.

        Raises:
            DovetailError: The model does not fit there any more.
        """

    def finish(self) -> None:
        """Tell the model that it changed, once the last region was put back."""


class Runner(ABC):
    """What `CompiledModel` asks of the executor that is registered as `regions`; dovetail-runtime brings it.

    It is made with every `CompiledModel` that is looked at, so it loads nothing before it is asked to run something. It
    also makes the other executors.

    Attributes:
        engines: The engines of each backend.
        loaded: Whether engines have loaded the model; otherwise `executed` would load it.
        notes: What the user should know of the engines.
        runners: The regions in the order in which they run.
    """

    engines: Mapping[str, Sequence[Engine]]
    loaded: bool
    notes: Sequence[str]
    runners: Sequence[Any]

    @abstractmethod
    def __init__(self, compiled: CompiledModel) -> None:
        """Get ready to run `compiled`, without loading anything."""

    @staticmethod
    @abstractmethod
    def tried(ctx: Context) -> Mapping[str, str]:
        """The engines that may refuse something of a compilation, by backend; they are part of its cache key.

        Raises:
            DovetailError: A backend has no engine at all.
        """

    @abstractmethod
    def executor(self, name: str = "") -> Executor:
        """The executor of that name; without it, the one that runs region by region."""

    @abstractmethod
    def run(self, inputs: Mapping[str, object], executor: str = "") -> dict[str, np.ndarray]:
        """Compute all outputs by name, with the executor of that name."""

    @abstractmethod
    def run_on(self, data: object, executor: str = "") -> dict[str, np.ndarray]:
        """All outputs for all batches of input data, joined on the first axis."""

    @abstractmethod
    def executed(self) -> Mapping[str, Executed]:
        """How every node was executed, by node name; empty if nobody can tell."""

    @abstractmethod
    def stand_ins(self) -> str:
        """What the coverage line says of engines that run regions instead of the preferred ones; empty if nothing."""

    @abstractmethod
    def unload(self) -> None:
        """Let go of the engines' sessions and their memory."""


class InputData(Protocol):
    """Input data of a request; `dovetail.input_data` makes it.

    Attributes:
        given: The data in a form that can be read more than once, as passes get it.
    """

    given: object

    def batches(self, model: Model) -> Iterator[tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]]:
        """The inputs of one run of the model after the other, each with the labels that the data has.

        Raises:
            DovetailError: The data does not fit the model.
        """

    def check(self, model: Model) -> None:
        """Look at the first batch, so that data which does not fit is an error before any work is done.

        Raises:
            DovetailError: It does not fit the model.
        """

    def extents(self, model: Model) -> Mapping[str, tuple[int, ...]]:
        """The shapes that one run of the model has on the data, of the inputs whose shape the model leaves open.

        Raises:
            DovetailError: Two samples differ in an open extent, or the data does not fit.
        """

    def digest(self) -> str:
        """A hash of all arrays; empty for data that can only be run through."""


class Solver(Protocol):
    """Chooses formats: a function that is registered with `registry.solver`."""

    def __call__(self, problem: Any) -> None:
        """Set `chosen` of every variable to one of its `choices`; `because` and `why` may say more.

        Args:
            problem: A `dovetail_precision.problem.TypingProblem`: plain data, whatever the model.
        """
