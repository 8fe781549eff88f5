"""What the vendor's files ask for, in the words of a request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail_bpu_int8.vendor.tree import FileError, Items, Node, Scalar
from dovetail_bpu_int8.wishes import wish_entry

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail_bpu_int8.vendor.calibration_data import CalibrationData
    from dovetail_bpu_int8.vendor.inputs import Inputs
    from dovetail_bpu_int8.vendor.marches import March
    from dovetail_bpu_int8.vendor.refusals import Preprocessing


OTHER_DATA = "give --data: a folder of .npy or .npz files with inputs as the model takes them"
"""What to do where a file has no data that could be read."""

SUBGRAPH = "subgraph:"
"""What selectors of subgraphs start with, until their nodes are known."""


class Named(NamedTuple):
    """A node, or an operator, that a file names.

    Attributes:
        selector: The selector of the node, or the operator.
        place: Where it stands.
        key: Under which key.
    """

    selector: str
    place: Node
    key: str


class Subgraph(NamedTuple):
    """The nodes between values; its selector in wishes is `SUBGRAPH` and its name.

    Attributes:
        name: Its name, where it stands.
        inputs: Names of values that lead into it.
        outputs: Names of values that it gives.
    """

    name: Scalar
    inputs: list[str]
    outputs: list[str]


class Note(NamedTuple):
    """What somebody who gave a file should know of what became of it.

    Attributes:
        why: One sentence.
        suggest: What to do about it, or where it takes effect.
    """

    why: str
    suggest: str


@dataclass
class Asked:
    """What files ask for.

    Attributes:
        march: The BPU.
        model: The model that is named, as it was written; None if there is none.
        folder: Where the file lies, which relative paths start from.
        wishes: As the request records them, in the order in which later ones win.
        placed: Nodes that must be on the `BPU` or on the `CPU`, in the order in which later ones win.
        nodes: All nodes that are named, which the model must have.
        operators: All operators that are named.
        subgraphs: All subgraphs that are named.
        backend: Options of the backend, as text.
        refine: Refinements that are asked for.
        notes: What is not done, or done otherwise.
        inputs: What is said of the inputs; None where nothing is.
        preprocessing: What is said of their channels; None where nothing is.
        on_random: Random numbers are asked for as data.
        data: The data to calibrate on; None if none is named.
        no_data: Why there is none; empty if there is, or if nobody would look for it in this file.
        document: The file as plain data, for the files that are written.
    """

    march: March
    model: Scalar | None = None
    folder: Path | None = None
    wishes: list[dict[str, str]] = field(default_factory=list)
    placed: list[tuple[Named, str]] = field(default_factory=list)
    nodes: list[Named] = field(default_factory=list)
    operators: list[Named] = field(default_factory=list)
    subgraphs: list[Subgraph] = field(default_factory=list)
    backend: dict[str, str] = field(default_factory=dict)
    refine: tuple[str, ...] = ()
    notes: list[Note] = field(default_factory=list)
    inputs: Inputs | None = None
    preprocessing: Preprocessing | None = None
    on_random: bool = False
    data: CalibrationData | None = None
    no_data: str = ""
    document: dict[str, Any] = field(default_factory=dict)

    def wish(self, selector: str, place: Node, key: str, format_: str, ports: str = "all") -> None:
        """Ask for a format at ports of nodes.

        Raises:
            FileError: The BPU has no such format.
        """
        if format_ not in self.march.formats:
            has = f"it computes {', '.join(self.march.formats)}"
            raise FileError(place, f"{key}: march '{self.march.name}' has no {format_}", has)
        self.wishes.append(wish_entry(selector, origin(place, key), format_, ports))

    def place(self, named: Named, where: str) -> None:
        """Ask for a node on the BPU (`BPU`) or on the CPU (`CPU`), whatever was asked of it before."""
        self.wishes = [wish for wish in self.wishes if not (wish["node"] == named.selector and wish.get("on") == "cpu")]
        self.placed.append((named, where))
        if where == "CPU":
            self.wishes.append(wish_entry(named.selector, origin(named.place, named.key)))

    def join(self, other: Asked) -> None:
        """Add what another file asks for on top."""
        self.subgraphs += other.subgraphs
        self.wishes += other.wishes
        self.placed += other.placed
        self.nodes += other.nodes
        self.operators += other.operators
        self.backend |= other.backend
        self.refine = other.refine or self.refine
        self.notes += other.notes

    def lack_data(self, why: str) -> None:
        """Say that there is no data in the file to calibrate on; somebody else may give some."""
        self.no_data = why
        self.note(why, OTHER_DATA)

    def note(self, why: str, suggest: str) -> None:
        """Say something to the user."""
        self.notes.append(Note(why, suggest))


def origin(place: Node, key: str) -> str:
    """What asks for something, for remarks: `config.yaml:31, run_on_cpu`."""
    return f"{place.where}, {key}"


def names_in(node: Node, separators: str = ";") -> Iterator[Scalar]:
    """The words of a text with separators, or of a list, each with its line; empty ones are left out."""
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
