"""Choose the backend of a conversion: its file and its engine must accept both types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.planning.placement import HOST
from dovetail.plugin.engine import make_engine

from dovetail_placement.judges import Judges

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.formats import Format
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.plugin.backend import Backend


class ConversionPlacement:
    """Chooses, for each conversion, a backend of the request that supports it."""

    def __init__(self, model: Model, ctx: Context):
        self._ctx = ctx
        self._judges = Judges(model, ctx)
        self._backends = {backend.name: backend for backend in ctx.backends}
        self._engines: dict[str, list[frozenset[str]]] = {}

    def choose(
        self, cast: ir.Node, held: Format, wanted: Format, candidates: Iterable[str], crossing: Format | None = None
    ) -> str:
        """Return the first candidate that accepts the conversion; the host if none does.

        If the backend file lists the operator, its rule decides. Otherwise the types must appear in the file and among
        those that an engine takes at its borders.

        Args:
            cast: The conversion, with typed input and output.
            held: Format of its input.
            wanted: Format of its output.
            candidates: Names of backends, in order of preference.
            crossing: The one of both that can cross the border of a region; the other one only says between the nodes
                of the region what integers stand for. Without it, both have to be accepted.
        """
        types = {held.element, wanted.element} if crossing is None else {crossing.element}
        for name in candidates:
            backend = self._backends.get(name)
            if backend is None or not self._file_takes(backend, cast, held, wanted, types):
                continue
            if any(types <= taken for taken in self._engine_types(backend)):
                return name
        return HOST

    def _file_takes(self, backend: Backend, cast: ir.Node, held: Format, wanted: Format, types: set[str]) -> bool:
        if backend.lists(cast.domain, cast.op_type):
            verdict = self._judges.of(backend)(cast)
            ports = {"input": held, "output": wanted}
            return bool(verdict.ok) and all(part in verdict.types.get(port, (part,)) for port, part in ports.items())
        return types <= set(backend.border_types)

    def _engine_types(self, backend: Backend) -> list[frozenset[str]]:
        """Return the types that each engine of a backend accepts; an engine that fails to import is skipped."""
        if backend.name not in self._engines:
            from dovetail.errors import DovetailError

            found = []
            for name in backend.engines:
                try:
                    found.append(make_engine(self._ctx.registry, name).reads.types)
                except DovetailError:
                    continue
            self._engines[backend.name] = found
        return self._engines[backend.name]
