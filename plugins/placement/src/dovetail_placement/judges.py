"""Judges: legality of nodes by backend, with the facts that plugins register."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.plugin.protocols import Backend, Judge

__all__ = ["Judges"]


class Judges:
    """One judge per backend, created on first use."""

    def __init__(self, model: Model, ctx: Context):
        self._model = model
        self._ctx = ctx
        self._known: dict[str, Judge] = {}

    def of(self, backend: Backend) -> Judge:
        """Return the judge of a backend for this model."""
        if backend.name not in self._known:
            facts = {name: self._ctx.registry.fact[name] for name in backend.facts}
            self._known[backend.name] = backend.judge(self._model.ir.opset_imports, facts)
        return self._known[backend.name]
