"""Choose the backend of a conversion: its file and its engine must accept both types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.planning.placement import HOST

from dovetail_placement.judges import Judges

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.formats import Format
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.plugin.backend import Backend

__all__ = ["ConversionPlacement"]


class ConversionPlacement:
    """Chooses, for each conversion, a backend of the request that supports it."""

    def __init__(self, model: Model, ctx: Context):
        self._ctx = ctx
        self._judges = Judges(model, ctx)
        self._backends = {backend.name: backend for backend in ctx.backends}
        self._engines: dict[str, list[frozenset[str]]] = {}

    def choose(self, cast: ir.Node, held: Format, wanted: Format, candidates: Iterable[str]) -> str:
        """Return the first candidate that accepts both types; the host if none does.

        If the backend file lists the operator, its rule decides. Otherwise both types must appear in the file.

        Args:
            cast: The Cast node, with typed input and output.
            held: Format of its input.
            wanted: Format of its output.
            candidates: Names of backends, in order of preference.
        """
        for name in candidates:
            backend = self._backends.get(name)
            if backend is None or not self._file_takes(backend, cast, held, wanted):
                continue
            if any({held.element, wanted.element} <= types for types in self._engine_types(backend)):
                return name
        return HOST

    def _file_takes(self, backend: Backend, cast: ir.Node, held: Format, wanted: Format) -> bool:
        if backend.lists(cast.domain, cast.op_type):
            verdict = self._judges.of(backend)(cast)
            ports = {"input": held, "output": wanted}
            return bool(verdict.ok) and all(part in verdict.types.get(port, (part,)) for port, part in ports.items())
        return {held.element, wanted.element} <= set(backend.border_types)

    def _engine_types(self, backend: Backend) -> list[frozenset[str]]:
        """Return the types that each engine of a backend accepts; an engine that fails to import is skipped."""
        if backend.name not in self._engines:
            from dovetail.errors import DovetailError

            found = []
            for name in backend.engines:
                try:
                    found.append(self._ctx.registry.engine[name]().reads.types)
                except DovetailError:
                    continue
            self._engines[backend.name] = found
        return self._engines[backend.name]
