"""A strategy's options and its view of the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dovetail.errors import DovetailError
from dovetail.ir import FlatGraph
from dovetail.planning import NO_FACTS, kind_of
from dovetail.plugin import Neighbor, Strategy
from dovetail.plugin.loading import calling
from dovetail.text import did_you_mean
from dovetail_onnx.signatures import Signatures, input_name, output_name

from dovetail_placement.legality import Judges

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Analysis, Context
    from dovetail.planning import Claim, Kind, Verdict
    from dovetail.plugin import Backend, Judge, Remedy


T = TypeVar("T")


class BackendView:
    """The unclaimed part of a model, with the verdicts of one backend; see `dovetail.plugin.View`.

    Attributes:
        lost: The `id`s of the nodes that the backend lost in this round or before, which are not offered again.
        said: Node, rule and reason of each remark of kind `missed` that does not name its backend.
    """

    def __init__(
        self,
        model: Model,
        ctx: Context,
        backend: Backend,
        judge: Judge,
        claimed: Mapping[int, tuple[str, Claim]],
        lost: set[int],
    ):
        self.model = model
        self.backend = backend
        self.said: set[tuple[str, str, str]] = set()
        self._ctx = ctx
        self._flat = ctx.analysis(FlatGraph, model)
        self._judge = judge
        self._claimed = claimed
        self.lost = lost
        self._verdicts: dict[int, Verdict] = {}
        self._signatures = Signatures(model.ir.opset_imports)

    def remark(
        self, kind: str, node: ir.Node | str, rule: str, why: str, *, because: Any = (), suggest: str | Remedy = "",
        source: str = "", backend: str = "", facts: Mapping[str, Any] = NO_FACTS,
    ) -> None:  # fmt: skip
        """Record the reason for a decision; see `dovetail.plugin.View`."""
        self._ctx.remark(
            cast("Kind", kind), node, rule, why, because, suggest, source, backend=backend, facts=facts
        )  # fmt: skip
        if kind == "missed" and not backend:
            self.said.add((self._ctx.remarks[-1].node, rule, why))

    def nodes(self) -> Iterator[ir.Node]:
        """Yield the nodes of the main graph that may be claimed, in graph order; see `whole` for bodies."""
        return (node for node in self.model.graph if not self.hides(node))

    def hides(self, node: ir.Node) -> bool:
        """Check whether `node` cannot be claimed: another backend or a pin has it, or it was rejected before."""
        return id(node) in self._claimed or id(node) in self.lost

    def whole(self, node: ir.Node) -> list[ir.Node]:
        """Return the node and all nodes of its bodies, which must be claimed together: one engine runs them."""
        return [node, *self._flat.body_nodes(node)]

    def verdict(self, node: ir.Node) -> Verdict:
        """Return the legality of `node` by the backend's file."""
        known = self._verdicts.get(id(node))
        if known is None:
            known = self._verdicts[id(node)] = self._judge(node)
        return known

    def only_here(self, node: ir.Node) -> bool:
        """Check that neither a following backend nor the host supports `node` with its bodies."""
        judges = self._ctx.analysis(Judges, self.model).following(self.backend.name)
        return all(any(judge(part).ok is False for part in self.whole(node)) for judge in judges)

    def kind(self, node: ir.Node) -> str:
        """Return the kind of a node's results: `data`, `index` or `shape`."""
        return kind_of(node)

    def claimed(self, node: ir.Node) -> tuple[str, Claim] | None:
        """Return the backend that has `node`, with its claim; None if it is unclaimed."""
        return self._claimed.get(id(node))

    def analysis(self, kind: type[T]) -> T:
        """Return the analysis `kind` of this revision of the model."""
        return self._ctx.analysis(cast("type[Analysis[T]]", kind), self.model)

    def producers(self, node: ir.Node) -> Iterator[Neighbor]:
        """Yield the nodes that compute the inputs of `node`, in input order; constants have none."""
        signature = self._signatures(node)
        for index, value in enumerate(node.inputs):
            if value is None or (producer := value.producer()) is None or (at := value.index()) is None:
                continue
            port = output_name(at, self._signatures(producer))
            yield Neighbor(input_name(index, signature), producer, port)

    def readers(self, node: ir.Node) -> Iterator[Neighbor]:
        """Yield the users of the outputs of `node`, once per use."""
        signature = self._signatures(node)
        for index, value in enumerate(node.outputs):
            for reader, at in value.uses():
                yield Neighbor(output_name(index, signature), reader, input_name(at, self._signatures(reader)))


_EVERYBODY = ("strategy", "regions")


def made_strategy(
    found: object, backend: Backend, name: str, title: str, partitioner: tuple[str, ...] = ()
) -> Strategy:
    """Instantiate a strategy for a backend.

    The options of a dataclass strategy are its fields; other strategies read `backend.place`, and list their keys in
    `place_keys`. Keys in the backend's file apply only to the strategy that the file names.

    Args:
        found: The registered class.
        backend: The backend, with the `place:` section of its file.
        name: Name of the strategy.
        title: Name and distribution of the strategy, for messages.
        partitioner: The keys that the backend's partitioner reads.

    Raises:
        DovetailError: The file has a key that neither the strategy nor the partitioner reads, or a value of another
            type, with file and line; or the class fails, or is not a strategy.
    """
    if not (isinstance(found, type) and issubclass(found, Strategy)):
        raise DovetailError(f"{title} is no dovetail.plugin.Strategy", "derive its class from dovetail.plugin.Strategy")
    if lacking := sorted(found.__abstractmethods__):
        raise DovetailError(f"{title} has no {', '.join(lacking)}", "see docs/guides/strategy.md")
    place = backend.place if name == backend.strategy else {}
    if not dataclasses.is_dataclass(found):
        _check_keys(place, found.place_keys, backend, name, partitioner)
        with calling(title):
            return found()
    fields = {field.name: field for field in dataclasses.fields(found) if field.init}
    _check_keys(place, fields, backend, name, partitioner)
    own = {key: value for key, value in place.items() if key in fields}
    for key, value in own.items():
        _check_value(fields[key], value, backend, name)
    with calling(title):
        return found(**own)


def _check_keys(place: Any, read: Any, backend: Backend, name: str, partitioner: tuple[str, ...]) -> None:
    for key in place:
        if key not in read and key not in partitioner:
            near = did_you_mean(key, (*_EVERYBODY, *read, *partitioner))
            reads = f"it reads {', '.join(read)}" if read else "it reads no key of its own"
            if partitioner:
                reads += f"; partitioner '{backend.regions}' reads {', '.join(partitioner)}"
            where = _where(key, backend)
            raise DovetailError(f"{where}: strategy '{name}' does not read '{key}' under place{near}", reads)


def _check_value(field: dataclasses.Field, value: object, backend: Backend, name: str) -> None:
    """Reject a value of another type than the option's default."""
    default = field.default if field.default is not dataclasses.MISSING else None
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    wanted = (list, tuple) if isinstance(default, (list, tuple)) else type(default)
    if default is not None and (not isinstance(value, wanted) or isinstance(value, bool) != isinstance(default, bool)):
        raise DovetailError(
            f"{_where(field.name, backend)}: {field.name}: {value!r} is no option of strategy '{name}'",
            f"its default is {default!r}",
        )


def _where(key: str, backend: Backend) -> str:
    return backend.place_sources.get(key, backend.source)
