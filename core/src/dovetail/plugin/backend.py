"""What backends and formats of backend files implement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.planning.verdict import Refusal, Verdict


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

    It may have attributes besides: `regions`, the name of its region former; `artifacts`, the names of its
    emitters; `options`, the values of every option, which remedies try; `place`, the options of its strategy;
    `border`, with `into` and `out`, each `outside` if integers enter or leave its regions and `inside` if floats
    do, and `floats`, which is `high` if floats have the high precision at the border; `lowest_opset`, the lowest
    opset in which its formats can be written; `widened`, the float types of a source model that stand for float32
    here; `open_cost`, what its engines pay for extents that are not known before
    run time, as the part of a sentence after its name; `region_maxima`, the largest numbers of `nodes`, `inputs`,
    `outputs` and `constants` of a region. `RegionLimits`, `RegionEnds` and `SourceFiles` are protocols of their own.

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
