"""The contracts of backends and of backend file formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.planning.claim import Refusal, Verdict


Fact: TypeAlias = "Callable[[ir.Node], object]"
"""A property of nodes that limits in backend files may name: a function that returns a number, a string or a boolean,
or None if the property is unknown. Registered with `registry.fact`."""


class Source(Protocol):
    """The source of a file: a `pathlib.Path`, or a resource inside a package."""

    @property
    def name(self) -> str:
        """The last component of its path."""

    def is_file(self) -> bool:
        """Return whether it exists and is a file."""

    def read_bytes(self) -> bytes:
        """Return its content."""


FindFile: TypeAlias = "Callable[[str, str], Source | None]"
"""Looks up a registered file: `find("policy", "fp16")`, `find("backend", "bpu-int8")`."""


class BackendSummary(NamedTuple):
    """The listing entry of a backend.

    Attributes:
        name: Its name.
        summary: A one-line description.
        device: The device it runs on.
        engines: Names of its engines, in order of preference.
        extends: Name of the backend that provides those of these fields that are empty; empty if there is none.
    """

    name: str
    summary: str
    device: str
    engines: tuple[str, ...]
    extends: str = ""


class Judge(Protocol):
    """The legality check of one model's nodes on a backend."""

    def __call__(self, node: ir.Node, region: Mapping[str, object] | None = None) -> Verdict:
        """Return whether the backend supports `node`, with which types, and if not, why.

        Args:
            node: The node.
            region: `{"last": True}` if no user of the node is on this backend, `{"last": False}` if one is; None while
                backends claim.
        """


class Border(NamedTuple):
    """The positions of conversions at the border of a backend's regions.

    Attributes:
        into: Conversions of inputs: `outside` if integers enter the region, `inside` if floats do.
        out: Conversions of outputs, likewise.
        floats: `low` if floats cross the border in the type in which they are computed and read, `high` if in the high
            precision.
    """

    into: Literal["inside", "outside"] = "outside"
    out: Literal["inside", "outside"] = "outside"
    floats: Literal["low", "high"] = "low"


class Backend(ABC):
    """A backend with its options chosen, loaded from a file or written as a Python class.

    A class is registered as `registry.backend("acme-npu", "acme_npu.backend:AcmeNpu")` and called with the user's
    options as a mapping of strings; it raises a DovetailError for an unknown option.

    Attributes:
        name: Its name, as after `--backend`.
        summary: A one-line description.
        device: The device it runs on.
        low: The low precision (`float16`), or None.
        high: The high precision, or None.
        accumulate: The accumulator type, or None.
        opset: Lowest and highest version of the default ONNX domain that its tools read.
        strategy: Name of the strategy that claims nodes for it.
        engines: Names of its engines, in order of preference.
        chosen: The value of every option, by name, as recorded in the plan.
        source: Name of its file or class, for remarks.
        options: Possible values of every option by name, for remedies to try.
        idle_options: Options that do not affect placement; remedies skip them.
        unused_options: Options without effect given the other choices; tuning skips them.
        place: Options of its strategy.
        place_sources: File and line of each of these options.
        regions: Name of its partitioner; empty for the default.
        artifacts: Names of its emitters.
        border: Positions of conversions at the border of its regions; None for a backend without quantized formats.
        widened: Float types of source models that are treated as float32.
        open_cost: The cost to its engines of extents unknown until run time, as a clause that follows its name; empty
            for none.
        refine: Refinements of quantized weights, unless the request names others.
        floor: The SNR in decibels that each node in integers must leave at every output on the data, with file and line
            of that rule; nodes that alone leave less are computed in floats. None for no such rule.
        arithmetic: The arithmetic of quantized nodes on its engines: `floats` between conversions, or `integers`.
        files: Every file that it was loaded from; a change of one invalidates cached results. None if unknown.
        region_maxima: Maximum numbers of `nodes`, `inputs`, `outputs`, `constants` and `bytes` of weights of a region;
            larger regions are split.
        region_count: Maximum number of its regions in a model, 0 for any, and file and line of that rule; the regions
            with the least work go to the following backends.
        prepare: The fusions of nodes that are offered to it, by name, with file and line of each.
        runtimes: Options that suit a program which loads results, by its name, given the other options; each holds
            where a request gives no value of the option.
        interacting: Groups of options of which one changes what another gains; tuning tries all values of a group
            together.
        asks_region: Whether a verdict may depend on the node being the last of its region on this backend; its `ok` is
            None until that is known.
        limits_regions: Whether `region_refusals` must be called; if not, any region is accepted.
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
    unused_options: frozenset[str] = frozenset()
    place: Mapping[str, Any] = MappingProxyType({})
    place_sources: Mapping[str, str] = MappingProxyType({})
    regions: str = ""
    artifacts: tuple[str, ...] = ()
    border: Border | None = None
    widened: tuple[str, ...] = ()
    open_cost: str = ""
    refine: tuple[str, ...] = ()
    floor: tuple[float, str] | None = None
    arithmetic: Literal["floats", "integers"] = "floats"
    files: tuple[Source, ...] | None = None
    region_maxima: Mapping[str, int] = MappingProxyType({})
    region_count: tuple[int, str] = (0, "")
    prepare: Mapping[str, str] = MappingProxyType({})
    runtimes: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    interacting: tuple[tuple[str, ...], ...] = ()
    asks_region: bool = False
    limits_regions: bool = False

    @property
    @abstractmethod
    def facts(self) -> Collection[str]:
        """Names of the registered facts that its judge evaluates."""

    @property
    @abstractmethod
    def border_types(self) -> Collection[str]:
        """Element types that may cross the border of its regions; the default types of conversions."""

    @abstractmethod
    def lists(self, domain: str, op_type: str) -> bool:
        """Return whether it has a rule for this operator, even a rule that rejects it."""

    @abstractmethod
    def takes(self, domain: str, op_type: str) -> bool:
        """Return whether it may support nodes of an operator; False if it supports none, whatever their attributes."""

    @abstractmethod
    def judge(self, opsets: Mapping[str, int], facts: Mapping[str, Fact]) -> Judge:
        """Return the judge for the nodes of one model.

        Args:
            opsets: The opset imports of the model.
            facts: The registered facts that the property `facts` names.
        """

    def takes_angles(self, domain: str, op_type: str) -> bool:
        """Return whether an operator reads an angle; nodes that derive it from positions stay high."""
        return False

    @property
    def has_integers(self) -> bool:
        """Whether its low precision is an integer type."""
        return self.low is not None and self.low.startswith(("int", "uint"))

    @property
    def lowest_opset(self) -> int:
        """The lowest opset that can express its formats."""
        return self.opset[0]

    def region_refusals(self, counts: Mapping[str, int], operators: Collection[str]) -> Sequence[Refusal]:
        """Return why a region is rejected as a whole; its nodes then go to the next backend. Empty if it is accepted.

        Args:
            counts: Numbers of `inputs`, `outputs`, `nodes`, `constants` and `bytes` of weights of the region.
            operators: The operators in it, as `Conv` or `com.acme::FusedMlp`.
        """
        return ()


class BackendFormat(ABC):
    """A file format of backends.

    Attributes:
        suffix: Suffix of its files (`.backend.yaml`); such files in a plugin's package are registered automatically.
        endings: Further suffixes, accepted for files that are named explicitly (`.yaml`).
    """

    suffix: str
    endings: tuple[str, ...] = ()

    @abstractmethod
    def name(self, source: Source) -> str:
        """Return the name of the backend. Called at every start of Dovetail, so it must be cheap.

        Raises:
            DovetailError: The file does not name a backend.
        """

    @abstractmethod
    def peek(self, source: Source) -> BackendSummary:
        """Return the listing entry, without checking the rest of the file.

        Raises:
            DovetailError: The parts needed cannot be read.
        """

    @abstractmethod
    def load(self, source: Source, find: FindFile, options: Mapping[str, str], facts: Collection[str]) -> Backend:
        """Load the backend.

        A backend that is loaded from further files lists them in `files`.

        Args:
            source: The file.
            find: Looks up the registered files that it names.
            options: The user's options.
            facts: Names of the registered facts.

        Raises:
            DovetailError: The file is invalid (the error names the line), or an option is unknown.
        """

    @abstractmethod
    def check(
        self, source: Source, known: Mapping[str, Collection[str]], load: Callable[[Mapping[str, str]], Any]
    ) -> None:
        """Check the parts of a file that a load with default options does not reach: variants and referenced names.

        Args:
            source: The file.
            known: Registered names by kind: `engine`, `emitter`, `strategy`, `partitioner`, `fusion`.
            load: Loads the file with other options.

        Raises:
            DovetailError: The first error found, with its line.
        """
