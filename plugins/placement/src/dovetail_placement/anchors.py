"""The anchor nodes of edits: looked up by name, or by identity and structure for edits recorded in a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning import identity, operator_name, origin_of, structural_keys, walk
from dovetail.plugin import Edit
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


class Anchors:
    """The nodes of a model before any edit, by every name that an edit may use for them."""

    def __init__(self, model: Model):
        self._model = model
        self._identities: dict[int, str] = {}
        self._named: dict[str, ir.Node] = {}
        self._known: dict[str, ir.Node] = {}
        self._folded: dict[str, ir.Node] = {}
        for path, node in walk(model):
            self._identities[id(node)] = name = identity(path, node)
            self._known.setdefault(name, node)
            for called in (f"{path}/{node.name}" if path else node.name, node.name):
                if called:
                    self._named.setdefault(called, node)
            for origin in origin_of(node):
                self._folded.setdefault(origin, node)
        self._keys: dict[int, str] = {}

    def node(self, edit: Edit) -> ir.Node:
        """Return the anchor node of an edit: by name or, for an edit recorded in a plan, by identity or structure."""
        if not edit.operator:
            node = self._named.get(edit.at) or self._known.get(edit.at)
            if node is not None:
                return node
            near = did_you_mean(edit.at, self._named)
            if edit.at in self._folded:
                into = self._folded[edit.at].name
                raise DovetailError(f"edit '{edit}': '{edit.at}' was folded into '{into}'", "name that node instead")
            raise DovetailError(
                f"edit '{edit}': the model has no node '{edit.at}'{near}",
                "name a node that is still there after the model was normalized; `dovetail plan` lists them",
            )
        node = self._known.get(edit.at)
        if node is not None and operator_name(node.domain, node.op_type) == edit.operator:
            return node
        same = [node for _, node in walk(self._model) if edit.key and self._key(node) == edit.key]
        if same:
            return same[0]
        other = f": '{edit.at}' is computed by {operator_name(node.domain, node.op_type)} here" if node else ""
        raise DovetailError(
            f"edit '{edit}' of the plan fits no node of this model{other}",
            "remove it from the plan, or name another node",
        )

    def recorded(self, edit: Edit, node: ir.Node) -> Edit:
        """Return the edit as recorded in a plan."""
        operator = operator_name(node.domain, node.op_type)
        return Edit(edit.kind, self._identities[id(node)], edit.side, operator, self._key(node))

    def _key(self, node: ir.Node) -> str:
        self._keys = self._keys or structural_keys(self._model)
        return self._keys[id(node)]
