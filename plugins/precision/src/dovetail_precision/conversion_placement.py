"""Where a conversion runs: on a backend whose file and whose engine take both of its types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.planning.placement import HOST
from dovetail_placement.judges import Judges

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.schema import Backend

__all__ = ["ConversionPlacement"]


class ConversionPlacement:
    """The backends of a request, asked whether they convert one type into another."""

    def __init__(self, model: Model, ctx: Context):
        self._ctx = ctx
        self._judges = Judges(model, ctx)
        self._backends = {backend.name: backend for backend in ctx.backends}
        self._engines: dict[str, list[frozenset[str]]] = {}

    def choose(self, cast: ir.Node, held: str, wanted: str, candidates: Iterable[str]) -> str:
        """The first candidate that takes both types; the host if none does.

        A file that does not list the conversion lets it pass where it lists both of the types; one that does is asked
        as for any other node.

        Args:
            cast: The node, with its types.
            held: The type that it reads.
            wanted: The type that it gives.
            candidates: Names of backends, in order of preference.
        """
        for name in candidates:
            backend = self._backends.get(name)
            if backend is None or not self._file_takes(backend, cast, held, wanted):
                continue
            if any({held, wanted} <= types for types in self._engine_types(backend)):
                return name
        return HOST

    def _file_takes(self, backend: Backend, cast: ir.Node, held: str, wanted: str) -> bool:
        rule = backend.rule(cast.domain, cast.op_type)
        if rule.listed:
            verdict = self._judges.of(backend)(cast)
            ports = {"input": held, "output": wanted}
            return bool(verdict.ok) and all(type_ in verdict.types.get(port, (type_,)) for port, type_ in ports.items())
        named = {dtype for spec in backend.types.values() if not spec.quantised for dtype in spec.dtype}
        return {held, wanted} <= named | {backend.low, backend.high}

    def _engine_types(self, backend: Backend) -> list[frozenset[str]]:
        """The types that each engine of a backend reads; one that does not import says nothing."""
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
