"""Requests for nodes, as one record for every origin: user, option, file of another tool, goal, plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dovetail.ir.formats import Format


IN_FLOATS = "floats"
"""A precision: backends with integers leave the node to the following ones, which compute it in floats."""


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """A request about the nodes that a selector names.

    Attributes:
        kind: What is asked: that `backend` has the nodes, in these `formats` (`pin`); that it takes them wherever it
            can (`prefer`); that it does not take them (`avoid`); or that they are computed in `precision`.
        selector: The nodes; see `select`.
        asked_by: The option, or file, line and key, for messages: `--high head.*`, `config.yaml:31, run_on_bpu`.
        backend: Name of the backend; empty if `precision` is for whichever backend has the nodes.
        formats: The pinned formats by port; `""` stands for all other ports. Empty if no format is pinned.
        precision: `low`, `high`, `IN_FLOATS`, or the name of an element type that the backend's strategy understands.
        ports: The ports that `precision` is for, in the terms of the backend's strategy.
        names_of: What the selector names: nodes of the `prepared` model, where it must match; nodes of the `source`
            model, which preparation may have renamed, folded or removed; or one `node` of the main graph, by its name.
        may_be_declined: Whether the backend may reject the nodes of a pin, which are then placed without it, with a
            remark. Otherwise a rejection is an error.
        if_declined: How the tool that the file belongs to treats such a node, as a clause for the remark.
        written: The pin as text, if the user did not write it.
    """

    kind: Literal["pin", "prefer", "avoid", "precision"]
    selector: str
    asked_by: str
    backend: str = ""
    formats: Mapping[str, Format | None] = field(default_factory=dict)
    precision: str = ""
    ports: str = "all"
    names_of: Literal["prepared", "source", "node"] = "prepared"
    may_be_declined: bool = False
    if_declined: str = ""
    written: str = ""

    def __str__(self) -> str:
        return f"{self.asked_by} (pin '{self.written}')" if self.written else self.asked_by
