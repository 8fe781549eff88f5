"""The contract of emitters: they write files for a backend's own tools, or compile regions ahead of time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dovetail.plugin.engine import EngineError

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.planning.quantized_value import QuantizedValue
    from dovetail.planning.regions import BorderValue
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.context import Context


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """The node that replaces a region compiled ahead of time: `EPContext` of ONNX Runtime's domain `com.microsoft`.

    Its inputs and outputs are those of the region, in the order of `EmittedRegion.model`. Its attributes say where the
    program is: `main_context` 1, `embed_mode` 0, `ep_cache_context` (the first file, relative to `model.onnx`),
    `partition_name` (the region), `source` (the backend) and `ep_sdk_version` (`Emitter.version`).

    Attributes:
        attributes: More attributes by name, or other values of these: numbers, strings, and lists of them. An execution
            provider takes the nodes whose `source` it knows, such as `QNNExecutionProvider`.
        into: Names of registered conversions that are applied to every input, such as a layout change.
        out: Names of registered conversions that are applied to every output.
    """

    attributes: Mapping[str, object] = field(default_factory=dict)
    into: tuple[str, ...] = ()
    out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """A call of a model-local function, `dovetail.<backend>::<region>`, that replaces a region and holds its nodes.

    The inputs of the function are those of the region, followed by its weights, so every engine can run it. An engine
    with `loads_artifacts` also gets the files of the artifact.

    Attributes:
        attributes: Attributes of the call by name, for consumers of the result: numbers, strings, and lists of them.
    """

    attributes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Artifact:
    """The output of an emitter for a region.

    Attributes:
        files: Names of the files that it wrote into its folder; all of them belong to the result.
        node: The replacement of the region: a node that stands for the program in these files, or a call of a function
            that holds the region; None if the region stays as it is.
        notes: Shortcomings of these files, one sentence each; they become remarks.
        facts: What the tool reports: cycles, memory, its own error, as plain data for plan and explanations.
        shared: Names of files for all regions of the backend that this one needs, too; see `JointEmitter`.
    """

    files: tuple[str, ...] = ()
    node: StandIn | Call | None = None
    notes: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    shared: tuple[str, ...] = ()


@dataclass(frozen=True)
class EmittedRegion:
    """The input of an emitter: a region, or the whole model for an emitter with `whole = True`.

    Attributes:
        name: Its name in the result: `region_3`, or `model`.
        backend: The backend, with its options chosen.
        model: The region as engines load it, with its conversions, at the working opset.
        source: The same nodes in the source model, before any conversion: floats, with the original weights. Its inputs
            and outputs are values of the source model. If the model is newer than the backend reads, a region has the
            highest opset that the backend reads; the whole model has that of the compilation.
        nodes: Names of its nodes in the plan; for the whole model, of the nodes on the backend.
        quantized_values: The quantized values that these nodes compute and read, with their parameters.
        inputs: The border value of each input of `model`: the value of `source`, its format, and scale and zero point.
        outputs: The same for each output of `model`.
        context: The context of the compilation, with request and plugins; None outside of a compilation.
    """

    name: str
    backend: Backend
    model: Model
    source: Model
    nodes: tuple[str, ...]
    quantized_values: tuple[QuantizedValue, ...] = ()
    inputs: tuple[BorderValue, ...] = ()
    outputs: tuple[BorderValue, ...] = ()
    context: Context | None = None


class Emitter(ABC):
    """Writes files for a backend's tools, or compiles a region ahead of time.

    Attributes:
        whole: Emit once for the whole model, not once per region of the backend: for tools that read the whole model
            and a file that assigns its nodes. Such an emitter returns no node, because a node replaces a single region.
        matches_plan: Its programs compute what the nodes of their regions compute. A search for nodes to raise then
            runs the nodes, and compiles programs only of the results that it proposes and judges.
        reads_samples: It reads samples of its regions' inputs, as `dovetail_quantize.region_samples` gives them, so the
            data is a part of what its artifacts are made of.
    """

    whole: ClassVar[bool] = False
    matches_plan: ClassVar[bool] = False
    reads_samples: ClassVar[bool] = False

    def version(self) -> str:
        """Return the version of its tool; with one, artifacts of the same region are used again, by any program."""
        return ""

    @abstractmethod
    def emit(self, region: EmittedRegion, folder: Path) -> Artifact:
        """Write the files that the backend's tools need for `region` into `folder`, and nothing outside of it.

        Raises:
            EngineError: The region, or the node that the error names, is not supported and is placed elsewhere. For the
                whole model, this means every node on the backend, unless the error names one of them.
        """


class JointEmitter(Emitter):
    """Compiles all regions of a backend at once: for tools that plan memory, or store weights, for all of them."""

    @abstractmethod
    def emit_all(
        self, regions: Sequence[EmittedRegion], folders: Sequence[Path], shared: Path
    ) -> Sequence[Artifact | EngineError]:
        """Write the files of each region into its folder, and those that several regions need into `shared`.

        The latter become `artifacts/<backend>/shared/`, which engines get as `RegionModel.shared`.

        Args:
            regions: The regions, in the order in which they run.
            folders: An empty folder for each.
            shared: An empty folder.

        Returns:
            For each region its artifact, or the reason why the region, or the node that the error names, is placed
            elsewhere.

        Raises:
            EngineError: Like one that is returned, for the region with the node that it names. Without a name, the
                regions are compiled one by one to find those at fault.
        """

    def emit(self, region: EmittedRegion, folder: Path) -> Artifact:
        """Compile a region alone, with its shared files in its folder.

        Raises:
            EngineError: See `Emitter`.
        """
        (made,) = self.emit_all([region], [folder], folder)
        if isinstance(made, EngineError):
            raise made
        return made


TRIAL: ContextVar[bool] = ContextVar("dovetail-trial", default=False)
"""Whether the present compilation is a trial of a search; see `Emitter.matches_plan`."""


@contextmanager
def searching(is_trial: bool = True) -> Iterator[None]:
    """Mark what is compiled inside of the block as a trial of a search, or as none."""
    token = TRIAL.set(is_trial)
    try:
        yield
    finally:
        TRIAL.reset(token)


# The time, of `time.monotonic`, at which a call of a tool ends, whatever its own timeout is. Only commands with a time
# limit set it.
TOOL_DEADLINE: ContextVar[float] = ContextVar("dovetail-tool-deadline", default=math.inf)

# Called with each line of progress of a tool while an emitter or an engine uses it.
TOOL_PROGRESS: ContextVar[Callable[[str], None] | None] = ContextVar("dovetail-tool-progress", default=None)
