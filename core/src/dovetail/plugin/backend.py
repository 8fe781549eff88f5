"""What backends and formats of backend files implement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.planning.claim import Refusal, Verdict


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


class Border(NamedTuple):
    """Where the conversions at the border of a backend's regions stand.

    Attributes:
        into: Those of the inputs: `outside` if integers enter, `inside` if floats do.
        out: Those of the outputs.
        floats: `low` if floats cross the border in the type in which they are computed and read, `high` if in the high
            precision.
    """

    into: Literal["inside", "outside"] = "outside"
    out: Literal["inside", "outside"] = "outside"
    floats: Literal["low", "high"] = "low"


class Backend(ABC):
    """A backend with its options chosen, read from a file or written as a Python class.

    A class is registered as `registry.backend("acme-npu", "acme_npu.backend:AcmeNpu")` and called with the options that
    the user gave, a mapping of texts; it raises a DovetailError for an option that it does not have.

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
        source: Name of its file or class, for remarks.
        options: The values of every option by name, which remedies try.
        idle_options: The options that change no placement; remedies leave them alone.
        place: The options of its strategy.
        place_sources: File and line of each of them.
        regions: Name of its partitioner; empty for the default.
        artifacts: Names of its emitters.
        border: Where conversions at the border of its regions stand; None for a backend without quantized formats.
        widened: The float types of a source model that stand for float32 here.
        open_cost: What its engines pay for extents that are not known before run time, as the part of a sentence after
            its name; empty for nothing.
        refine: The refinements of quantized weights that are made unless the request names others.
        arithmetic: What its engines compute quantized nodes in: `floats` between conversions, or `integers`.
        files: Every file that it was read from, and a result is compiled anew when one of them changes; None for a
            backend that does not say.
        region_maxima: The largest numbers of `nodes`, `inputs`, `outputs` and `constants` of a region; larger ones are
            split.
        asks_region: Whether a verdict may depend on whether the node is the last of its region on this backend; its
            `ok` is None until that is known.
        limits_regions: Whether `region_refusals` needs to be asked; otherwise any region is taken.
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
    options: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    idle_options: frozenset[str] = frozenset()
    place: Mapping[str, Any] = MappingProxyType({})
    place_sources: Mapping[str, str] = MappingProxyType({})
    regions: str = ""
    artifacts: tuple[str, ...] = ()
    border: Border | None = None
    widened: tuple[str, ...] = ()
    open_cost: str = ""
    refine: tuple[str, ...] = ()
    arithmetic: Literal["floats", "integers"] = "floats"
    files: tuple[Source, ...] | None = None
    region_maxima: Mapping[str, int] = MappingProxyType({})
    asks_region: bool = False
    limits_regions: bool = False

    @property
    @abstractmethod
    def facts(self) -> Collection[str]:
        """Names of the registered facts that its judge asks."""

    @property
    @abstractmethod
    def border_types(self) -> Collection[str]:
        """Element types that may enter and leave it; a conversion that it says nothing else about takes these."""

    @abstractmethod
    def lists(self, domain: str, op_type: str) -> bool:
        """Whether it has a rule for this operator, even one that refuses it."""

    @abstractmethod
    def takes(self, domain: str, op_type: str) -> bool:
        """Whether it may take nodes of an operator; False if it takes none, whatever their attributes."""

    @abstractmethod
    def judge(self, opsets: Mapping[str, int], facts: Mapping[str, Fact]) -> Judge:
        """The judge of the nodes of one model.

        Args:
            opsets: The versions of the domains that the model imports.
            facts: The facts named by `facts`.
        """

    def takes_angles(self, domain: str, op_type: str) -> bool:
        """Whether an operator reads an angle; nodes that compute one from positions stay in the high precision."""
        return False

    @property
    def lowest_opset(self) -> int:
        """The lowest opset in which its formats can be written."""
        return self.opset[0]

    def region_refusals(self, counts: Mapping[str, int], operators: Collection[str]) -> Sequence[Refusal]:
        """Why a region is refused as a whole; its nodes then go to the next backend. Empty if it is taken.

        Args:
            counts: How many `inputs`, `outputs`, `nodes` and `constants` the region has.
            operators: The operators in it, as `Conv` or `com.acme::FusedMlp`.
        """
        return ()


class BackendFormat(ABC):
    """A format of backend files.

    Attributes:
        suffix: How names of its files end (`.backend.yaml`); such files of a plugin's package are found by themselves.
        endings: How names of its files may end besides, where somebody names the file (`.yaml`).
    """

    suffix: str
    endings: tuple[str, ...] = ()

    @abstractmethod
    def name(self, source: Source) -> str:
        """The name of the backend, as cheap as it can be had: this is asked whenever Dovetail starts.

        Raises:
            DovetailError: The file names none.
        """

    @abstractmethod
    def peek(self, source: Source) -> BackendSummary:
        """What a listing shows; nothing else in the file is checked.

        Raises:
            DovetailError: The file cannot be read that far.
        """

    @abstractmethod
    def load(self, source: Source, find: FindFile, options: Mapping[str, str], facts: Collection[str]) -> Backend:
        """The backend.

        One that is read from more files than `source` names them in `files`.

        Args:
            source: The file.
            find: Finds the files that it names.
            options: What the user chose.
            facts: Names of the registered facts.

        Raises:
            DovetailError: The file is at fault, with its line, or an option does not exist.
        """

    @abstractmethod
    def check(
        self, source: Source, known: Mapping[str, Collection[str]], load: Callable[[Mapping[str, str]], Any]
    ) -> None:
        """Check what loading the file with its default options leaves out: variants, and names that it uses.

        Args:
            source: The file.
            known: Registered names by kind: `engine`, `strategy`, `partitioner`.
            load: Loads the file with other options.

        Raises:
            DovetailError: The first thing that is wrong, with its line.
        """
