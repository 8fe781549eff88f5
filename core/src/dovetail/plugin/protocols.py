"""What plugins implement, where the contract has no other home: strategies, backends, and formats of backend files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.passes.context import Context
    from dovetail.planning.claim import Claim, Claims
    from dovetail.planning.remedies import Remedy
    from dovetail.planning.verdict import Refusal, Verdict
    from dovetail.runtime.engine import Executed

__all__ = [
    "Backend",
    "BackendFormat",
    "BackendSummary",
    "Editor",
    "Executor",
    "Fact",
    "FindFile",
    "FixUp",
    "Judge",
    "Neighbour",
    "RegionEnds",
    "RegionFormer",
    "RegionLimits",
    "RegionView",
    "Solver",
    "Remedies",
    "Source",
    "SourceFiles",
    "Strategy",
    "View",
]

Fact: TypeAlias = "Callable[[ir.Node], object]"
"""A property of nodes that limits of backend files may name: a function that returns a number, a text or a truth value,
or None if it cannot be told. Registered with `registry.fact`."""


class Source(Protocol):
    """Where a file comes from: a `pathlib.Path`, or a resource inside a package."""

    @property
    def name(self) -> str:
        """The last part of its path."""

    def is_file(self) -> bool:
        """Whether it is there."""

    def read_bytes(self) -> bytes:
        """Its content."""


FindFile: TypeAlias = "Callable[[str, str], Source | None]"
"""Finds a file that a plugin registered: `find("policy", "fp16")`, `find("backend", "bpu-int8")`."""


class BackendSummary(NamedTuple):
    """What a listing shows of a backend.

    Attributes:
        name: Its name.
        summary: One line about it.
        device: Where it runs.
        engines: Names of the engines that execute its parts, in order of preference.
    """

    name: str
    summary: str
    device: str
    engines: tuple[str, ...]


class Judge(Protocol):
    """Decides for one model which nodes a backend takes."""

    def __call__(self, node: ir.Node, region: Mapping[str, object] | None = None) -> Verdict:
        """Whether the backend takes `node`, with which types, and if not, why.

        Args:
            node: The node.
            region: `{"last": True}` if no reader of the node is on this backend, `{"last": False}` if one is; None
                while backends claim.
        """


class Backend(Protocol):
    """A backend with its options chosen, read from a file or written as a Python class.

    A class is registered as `registry.backend("acme-npu", "acme_npu.backend:AcmeNpu")` and called with the options that
    the user gave, a mapping of texts; it raises a DovetailError for an option that it does not have.

    It may have attributes besides: `regions`, the name of its region former; `artifacts`, the names of its emitters;
    `options`, the values of every option, which remedies try; `place`, the options of its strategy; `border`, with
    `into` and `out`, each `outside` if integers enter or leave its regions and `inside` if floats do; `lowest_opset`,
    the lowest opset in which its formats can be written; `region_maxima`, the largest numbers of `nodes`, `inputs` and
    `constants` of a region. `RegionLimits`, `RegionEnds` and `SourceFiles` are protocols of their own.

    Attributes:
        name: Its name, as after `--backend`.
        summary: One line about it.
        device: Where it runs.
        low: The low precision (`float16`), or None.
        high: The high precision, or None.
        accumulate: The type that sums are kept in, or None.
        opset: The lowest and the highest version of the default ONNX domain that its tools read.
        strategy: Name of the strategy that claims nodes for it.
        engines: Names of its engines, in order of preference.
        chosen: The value of every option, by name; they are recorded in the plan.
        facts: Names of the registered facts that its judge asks.
        source: Name of its file or class, for remarks.
    """

    name: str
    summary: str
    device: str
    low: str | None
    high: str | None
    accumulate: str | None
    opset: tuple[int, int]
    strategy: str
    engines: tuple[str, ...]
    chosen: Mapping[str, str]
    source: str

    @property
    def facts(self) -> Collection[str]:
        """Names of the registered facts that its judge asks."""

    @property
    def border_types(self) -> Collection[str]:
        """Element types that may enter and leave it; a conversion that it says nothing else about takes these."""

    def lists(self, domain: str, op_type: str) -> bool:
        """Whether it has a rule for this operator, even one that refuses it."""

    def takes(self, domain: str, op_type: str) -> bool:
        """Whether it may take nodes of an operator; False if it takes none, whatever their attributes."""

    def takes_angles(self, domain: str, op_type: str) -> bool:
        """Whether an operator reads an angle; nodes that compute one from positions stay in the high precision."""

    def judge(self, opsets: Mapping[str, int], facts: Mapping[str, Fact]) -> Judge:
        """The judge of the nodes of one model.

        Args:
            opsets: The versions of the domains that the model imports.
            facts: The facts named by `facts`.
        """


class RegionLimits(Protocol):
    """An optional part of a backend: it refuses regions as a whole. A backend without it takes any region.

    Attributes:
        limits_regions: Whether its regions need to be looked at.
    """

    limits_regions: bool

    def region_refusals(self, counts: Mapping[str, int], operators: Collection[str]) -> tuple[Refusal, ...]:
        """Why a region is refused; its nodes then go to the next backend. Empty if it is taken.

        Args:
            counts: How many `inputs`, `outputs`, `nodes` and `constants` the region has.
            operators: The operators in it, as `Conv` or `com.acme::FusedMlp`.
        """


class RegionEnds(Protocol):
    """An optional part of a backend: its verdicts may depend on `region.last`.

    Attributes:
        asks_region: Whether its judge wants to know whether a node is the last of its region on this backend.
    """

    asks_region: bool


class Editor(Protocol):
    """Makes the edits of one kind: changes of the graph next to a node; called without arguments to make one.

    It is registered under the name of the kind, and asked for by that: `--edit unit-conv=concat_12:after`, or in the
    claims of a strategy. What it does must follow from the graph and the arguments alone, because a replayed plan
    applies the same edits again.

    Attributes:
        sides: On which sides of a node it can be made: `before`, `after`, or both.
    """

    sides: tuple[str, ...]

    def apply(self, model: Model, node: ir.Node, side: str, ctx: Context) -> Iterable[ir.Node]:
        """Change the graph next to `node`, and return the nodes that were added, with types on their outputs.

        Names come from `ctx.analysis(FreshNames, model)`; nodes without a name get one. Inputs and outputs of the model
        stay as they are.

        Raises:
            DovetailError: The edit cannot be made at this node.
        """


class RegionView(Protocol):
    """What a region former sees.

    Attributes:
        graph: The main graph; a former never edits it.
        backends: The backends that name the former.
        nodes: Their nodes in graph order, which are to be cut into regions.
        formed: Regions that other formers made before.
        reads: The values that each node of the graph uses; those that bodies capture are among them.
    """

    graph: ir.Graph
    backends: tuple[str, ...]
    nodes: Sequence[ir.Node]
    formed: Sequence[Sequence[ir.Node]]
    reads: Mapping[ir.Node, tuple[ir.Value, ...]]

    def backend_of(self, node: ir.Node) -> str:
        """The backend of any node of the graph."""


class RegionFormer(Protocol):
    """Cuts the nodes of backends into regions, parts that run as one unit; called without arguments to make one.

    A backend names its former in its attribute `regions` (in a file: `place: {regions: NAME}`); without one it has
    `waves`, which makes as few regions as possible.
    """

    def form(self, view: RegionView) -> Iterable[Iterable[ir.Node]]:
        """The regions: every node of `view.nodes` in exactly one, each of one backend.

        A region must be convex, and no two may wait for each other, by way of `view.formed` either.
        """


class Executor(Protocol):
    """Runs a compiled model; made by calling it with a `CompiledModel`, whose model, engines and options it reads.

    `dovetail.runtime.executor.Executor`, the default, may be its base. Besides the methods it may have `notes`, texts
    for the user, `refusals`, and `runners`, one per region.
    """

    def run(self, inputs: Mapping[str, object]) -> Mapping[str, np.ndarray]:
        """Compute all outputs by name; may be called from several threads at once.

        Raises:
            DovetailError: An input is missing or does not fit, or an engine fails.
        """

    def executed(self) -> Mapping[str, Executed]:
        """How every node was executed, by node name; empty if nobody can tell."""


class Remedies(Protocol):
    """An optional part of a strategy: it suggests what might bring a node to its backend."""

    def remedies(self, view: View, node: ir.Node) -> Iterable[Remedy]:
        """Changes of the request, the cheapest first; `dovetail explain` tries each on the plan.

        Args:
            view: Shows the final claims of a round.
            node: A node that the view's backend does not have.
        """


class SourceFiles(Protocol):
    """An optional part of a backend: the files that it was read from. Without it, only the registered file counts.

    Attributes:
        files: Every file that it was read from. A result is compiled anew when one of them changes.
    """

    files: tuple[Source, ...]


class BackendFormat(Protocol):
    """A format of backend files.

    Attributes:
        suffix: How names of its files end (`.backend.yaml`); such files of a plugin's package are found by themselves.
        endings: How names of its files may end besides, where somebody names the file (`.yaml`).
    """

    suffix: str
    endings: tuple[str, ...]

    def name(self, source: Source) -> str:
        """The name of the backend, as cheap as it can be had: this is asked whenever Dovetail starts.

        Raises:
            DovetailError: The file names none.
        """

    def peek(self, source: Source) -> BackendSummary:
        """What a listing shows; nothing else in the file is checked.

        Raises:
            DovetailError: The file cannot be read that far.
        """

    def load(self, source: Source, find: FindFile, options: Mapping[str, str], facts: Collection[str]) -> Backend:
        """The backend.

        One that is read from more files than `source` names them (`SourceFiles`).

        Args:
            source: The file.
            find: Finds the files that it names.
            options: What the user chose.
            facts: Names of the registered facts.

        Raises:
            DovetailError: The file is at fault, with its line, or an option does not exist.
        """

    def check(
        self, source: Source, known: Mapping[str, Collection[str]], load: Callable[[Mapping[str, str]], Any]
    ) -> None:
        """Check what loading the file with its default options leaves out: variants, and names that it uses.

        Args:
            source: The file.
            known: Registered names by kind: `engine`, `strategy`, `region_former`.
            load: Loads the file with other options.

        Raises:
            DovetailError: The first thing that is wrong, with its line.
        """


class View(Protocol):
    """What a strategy sees: the nodes that it may claim, what one backend says of them, and who has the others.

    Attributes:
        model: The model; a strategy never edits it.
        backend: The backend that nodes are claimed for.
    """

    model: Model
    backend: Backend

    def nodes(self) -> Iterator[ir.Node]:
        """Nodes of the main graph that may be claimed, in graph order; see `whole` for those in bodies."""

    def whole(self, node: ir.Node) -> list[ir.Node]:
        """`node` and all nodes of its bodies, which one engine runs together."""

    def verdict(self, node: ir.Node) -> Verdict:
        """Whether the backend takes `node`, with which types, and if not, why."""

    def kind(self, node: ir.Node) -> str:
        """What `node` computes: `data`, `index` or `shape`."""

    def claimed(self, node: ir.Node) -> tuple[str, Claim] | None:
        """The backend that has `node`, with its claim (`pinned` by role if it is pinned); None if nobody has it."""

    def producers(self, node: ir.Node) -> Iterator[Neighbour]:
        """The nodes that compute the inputs of `node`, in the order of its inputs; constants have none."""

    def readers(self, node: ir.Node) -> Iterator[Neighbour]:
        """The nodes that read the outputs of `node`, once per use."""

    def remark(
        self, kind: str, node: ir.Node | str, rule: str, why: str, *, because: object = (), suggest: str = "",
        source: str = "",
    ) -> None:  # fmt: skip
        """Say why something was decided; see `dovetail.planning.remark.Remark`."""


class Neighbour(Protocol):
    """A node beside another one.

    Attributes:
        port: The port of the node that was asked about.
        node: The node at the other end of the value.
        its_port: The port of that node.
    """

    port: str
    node: ir.Node
    its_port: str


class Strategy(Protocol):
    """A rule that claims nodes for a backend. It marks nodes and never edits the graph.

    It claims each node once, only nodes that the view offers, and a control-flow node with all of its bodies. Its
    options are the fields of its dataclass, which `place:` of a backend file sets. A strategy that is no dataclass
    reads `backend.place`, and names the keys that it reads in an attribute `place_keys`. Other keys are an error.
    """

    def claim(self, view: View, backend: Backend) -> Claims:
        """Claim nodes of `view` for `backend`; what is not claimed goes to the next backend, and last to the host.

        `Claims.edits` asks for changes of the graph; when these are made, everything is claimed again on the new graph.

        A verdict whose `ok` is None depends on whether the node will be the last of its region: the node may be
        claimed, and is judged again once all backends have claimed.
        """


class Solver(Protocol):
    """Chooses formats: a function that is registered with `registry.solver`."""

    def __call__(self, problem: Any) -> None:
        """Set `chosen` of every variable to one of its `choices`; `because` and `why` may say more.

        Args:
            problem: A `dovetail_precision.problem.TypingProblem`: plain data, whatever the model.
        """


class FixUp(Protocol):
    """An optional part of a strategy: it reconsiders its claims when those of all backends are known."""

    def fix_up(self, view: View, claims: Claims) -> Claims:
        """The claims that stay, the same objects or narrowed to fewer formats.

        It is asked until it leaves everything as it is. It may neither add claims nor touch pinned ones. What it
        withdraws is offered to the backends behind it; in the next round of deciding, if there is one, it is claimed
        and withdrawn anew.

        Args:
            view: Shows the claims of all backends.
            claims: The present claims for the view's backend.
        """
