"""Contents of the vendor's files in the terms of a request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail_bpu_int8.bpu_requests import format_request
from dovetail_bpu_int8.vendor.tree import FileError, Items, Node, Scalar

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.planning import NodeRequest

    from dovetail_bpu_int8.vendor.calibration_data import CalibrationData
    from dovetail_bpu_int8.vendor.inputs import InputSettings
    from dovetail_bpu_int8.vendor.marches import March
    from dovetail_bpu_int8.vendor.refusals import Preprocessing


OTHER_DATA = "give --data: a folder of .npy or .npz files with inputs as the model takes them"
"""Hint for files without readable data."""

SUBGRAPH = "subgraph:"
"""Prefix of subgraph selectors until their nodes are resolved."""


class Named(NamedTuple):
    """A node or operator named in a file.

    Attributes:
        selector: The selector of the node, or the operator.
        place: Its position in the file.
        key: The key that names it.
    """

    selector: str
    place: Node
    key: str


class Subgraph(NamedTuple):
    """A subgraph between values; its selector in requests is `SUBGRAPH` plus its name.

    Attributes:
        name: Its name, with the position in the file.
        inputs: Names of its input values.
        outputs: Names of its output values.
    """

    name: Scalar
    inputs: list[str]
    outputs: list[str]


class Note(NamedTuple):
    """A message to the user about how a file was applied.

    Attributes:
        why: One sentence.
        suggest: A suggestion, or where the setting takes effect.
    """

    why: str
    suggest: str


@dataclass
class VendorSettings:
    """Settings requested by the vendor's files.

    Attributes:
        march: The BPU.
        model: The model path as written; None if missing.
        folder: The file's folder, the base of relative paths.
        requests: The requests about nodes; later ones win.
        placed: Nodes that must be on the `BPU` or on the `CPU`; later entries win.
        nodes: All named nodes, which must exist in the model.
        operators: All named operators.
        subgraphs: All named subgraphs.
        backend: Options of the backend, as text.
        refine: Requested refinements.
        notes: Messages about settings that are ignored or handled differently.
        inputs: Settings of the inputs; None without any.
        preprocessing: Settings of their channels; None without any.
        on_random: Whether calibration uses random data.
        data: The calibration data; None if none is named.
        no_data: Why there is no data; empty if there is, or if this kind of file names none.
        document: The file as plain data, for the emitted files.
    """

    march: March
    model: Scalar | None = None
    folder: Path | None = None
    requests: list[NodeRequest] = field(default_factory=list)
    placed: list[tuple[Named, str]] = field(default_factory=list)
    nodes: list[Named] = field(default_factory=list)
    operators: list[Named] = field(default_factory=list)
    subgraphs: list[Subgraph] = field(default_factory=list)
    backend: dict[str, str] = field(default_factory=dict)
    refine: tuple[str, ...] = ()
    notes: list[Note] = field(default_factory=list)
    inputs: InputSettings | None = None
    preprocessing: Preprocessing | None = None
    on_random: bool = False
    data: CalibrationData | None = None
    no_data: str = ""
    document: dict[str, Any] = field(default_factory=dict)

    def request(self, selector: str, place: Node, key: str, format_: str, ports: str = "all") -> None:
        """Request a format at ports of nodes.

        Raises:
            FileError: The BPU does not support the format.
        """
        if format_ not in self.march.formats:
            has = f"it computes {', '.join(self.march.formats)}"
            raise FileError(place, f"{key}: march '{self.march.name}' has no {format_}", has)
        self.requests.append(format_request(selector, origin(place, key), format_, ports))

    def place(self, named: Named, where: str) -> None:
        """Request a node on the BPU (`BPU`) or on the CPU (`CPU`), overriding earlier requests."""
        self.requests = [one for one in self.requests if (one.selector, one.kind) != (named.selector, "avoid")]
        self.placed.append((named, where))
        if where == "CPU":
            self.requests.append(format_request(named.selector, origin(named.place, named.key)))

    def join(self, other: VendorSettings) -> None:
        """Merge the settings of another file, which override these."""
        self.subgraphs += other.subgraphs
        self.requests += other.requests
        self.placed += other.placed
        self.nodes += other.nodes
        self.operators += other.operators
        self.backend |= other.backend
        self.refine = other.refine or self.refine
        self.notes += other.notes

    def lack_data(self, why: str) -> None:
        """Record that the file has no calibration data, which may still come from elsewhere."""
        self.no_data = why
        self.note(why, OTHER_DATA)

    def note(self, why: str, suggest: str) -> None:
        """Add a message for the user."""
        self.notes.append(Note(why, suggest))


def origin(place: Node, key: str) -> str:
    """Return the origin of a setting for remarks: `config.yaml:31, run_on_cpu`."""
    return f"{place.where}, {key}"


def names_in(node: Node, separators: str = ";") -> Iterator[Scalar]:
    """Yield the nonempty words of a separated text or of a list, each with its line."""
    if isinstance(node, Items):
        for item in node.items:
            yield from names_in(item, separators)
    elif isinstance(node, Scalar) and not node.is_null:
        text = node.raw
        for separator in separators[1:]:
            text = text.replace(separator, separators[0])
        for word in text.split(separators[0]):
            if word.strip():
                yield Scalar(node.file, node.line, word.strip(), True)
