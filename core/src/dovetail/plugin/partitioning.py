"""The contracts of partitioners, which form regions, and of access to the regions of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.planning.request import Request
    from dovetail.plugin.backend import Backend


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
