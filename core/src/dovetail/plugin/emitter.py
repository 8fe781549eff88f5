"""What emitters implement: they make files for a backend's own tools, or compile regions ahead of time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.planning.quantized_value import QuantizedValue
    from dovetail.plugin.backend import Backend


@dataclass(frozen=True)
class StandIn:
    """The operator that stands for a region which was compiled ahead of time.

    Its inputs and outputs are those of the region, in the order of `EmittedRegion.model`.

    Attributes:
        op_type: Its name, as `EPContext`.
        domain: Its domain, as `com.microsoft`.
        attributes: Attributes by name: numbers, texts, and lists of them.
        version: The version of the domain that the model imports then.
        into: Names of registered conversions that every input goes through first, such as one of its layout.
        out: Names of registered conversions that every output goes through.
    """

    op_type: str
    domain: str
    attributes: Mapping[str, object] = field(default_factory=dict)
    version: int = 1
    into: tuple[str, ...] = ()
    out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """The region becomes a call of a function of the model, `dovetail.<backend>::<region>`, that holds its nodes.

    The inputs of the function are those of the region, then its weights, so every engine can compute it. One that says
    `loads_artifacts` is given the files of the artifact with it.

    Attributes:
        attributes: Attributes of the call by name, for whoever reads the result: numbers, texts, and lists of them.
    """

    attributes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Artifact:
    """What an emitter made of a region.

    Attributes:
        files: Names of the files that it wrote into its folder, which all belong to the result.
        node: What stands for the region from now on: an operator of the engine's own, or a call of a function that
            holds the region; None where the region stays as it is.
        notes: What is not as it should be in these files, one sentence each; they become remarks.
    """

    files: tuple[str, ...] = ()
    node: StandIn | Call | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class EmittedRegion:
    """A region for an emitter, or the whole model for one that says `whole = True`.

    Attributes:
        name: Its name in the result: `region_3`, or `model`.
        backend: The backend, with its options chosen.
        model: The region as engines load it, with its conversions, at the working opset.
        source: The same nodes as the source model computes them, before any conversion: floats, with the weights of the
            source model. Its inputs and outputs are values of the source model. A region has the highest opset that
            the backend reads where the model is newer; the whole model has that of the compilation.
        nodes: The names of its nodes in the plan; of the whole model, those on the backend.
        quantized values: The quantized forms of the values that these nodes compute and read, with their parameters.
        context: The context of the compilation: what was asked for, and the plugins; None where nobody compiles.
    """

    name: str
    backend: Backend
    model: Model
    source: Model
    nodes: tuple[str, ...]
    quantized_values: tuple[QuantizedValue, ...] = ()
    context: Context | None = None


class Emitter(ABC):
    """Makes files for the tools of a backend, or compiles a region ahead of time.

    Attributes:
        whole: Ask once for the whole model, and not once for each region of the backend: for tools that read all of it
            and decide by a file what they run how. Such an emitter gives files alone, for a node stands for one region.
    """

    whole: ClassVar[bool] = False

    @abstractmethod
    def emit(self, region: EmittedRegion, folder: Path) -> Artifact:
        """Write what the backend's tools need of `region` into `folder`, and nothing outside of it.

        Raises:
            EngineError: The region, or the node that the error names, cannot be had; it is placed elsewhere. For the
                whole model that is every node on the backend, unless the error names one of them.
        """
