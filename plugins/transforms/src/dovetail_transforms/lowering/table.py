"""The table of what each version of an operator changed (`table.yaml`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

ANY = "any"  # an attribute that may be dropped whatever its value is


@dataclass(frozen=True, slots=True)
class Row:
    """How a node of one version of an operator becomes a node of the version before.

    Attributes:
        drop: Values at which attributes may be dropped, by name; `any` for all values. For a list of numbers the value
            is that of every element.
        values: Other ways to write values of attributes, by attribute and value.
        only: The values that the version before knows, by attribute.
        changed: What the operator did differently; empty if it did not.
        unless: The condition under which a node is not affected by that.
        rewrite: Name of the rule for nodes that the version before does not take as they are written.
        function: Whether the body that ONNX defines replaces the node.
        refuse: Why no node can be lowered; empty if some can.
        hint: What the user can do about a node that cannot be lowered.
    """

    drop: Mapping[str, object] = field(default_factory=dict)
    values: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    only: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    changed: str = ""
    unless: str = ""
    rewrite: str = ""
    function: bool = False
    refuse: str = ""
    hint: str = ""

    @property
    def concerns_nodes_as_written(self) -> bool:
        """Whether the row says more than what becomes of nodes that the version before does not take."""
        return bool(self.drop or self.values or self.only or self.changed or self.refuse)


@cache
def load_table() -> Mapping[tuple[str, int], Row]:
    """Return the rows by operator and version."""
    import yaml

    text = resources.files(__package__).joinpath("table.yaml").read_text(encoding="utf-8")
    return {
        (op_type, version): Row(**entry)
        for op_type, versions in yaml.safe_load(text).items()
        for version, entry in versions.items()
    }
