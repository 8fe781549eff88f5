"""Rejections: nodes that a backend turned out not to support, as input of the next round of decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from dovetail.errors import DovetailError
from dovetail.planning.remark import Remark

K = TypeVar("K")

_NONE: Mapping[str, Rejection] = MappingProxyType({})
_MOST_ROUNDS = 16
"""Rounds after which a backend that still rejects nodes is left out. Typical models take four at most."""


class Rejection(NamedTuple):
    """A node that a backend cannot run.

    Attributes:
        why: The reason, in one sentence.
        remarks: The remarks about it in every later round.
    """

    why: str
    remarks: tuple[Remark, ...] = ()


class Rejections:
    """All rejections so far. Rounds of decisions only add to them, which guarantees termination.

    Nodes are identified by the name of their first output, because every round starts from a fresh graph.

    Attributes:
        rounds: Number of times that decisions were repeated because of a rejection.
        tries: Number of times that engines loaded a result.
        fresh: Whether something was rejected since the last round began.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self.tries = 0
        self.fresh = False
        self._nodes: dict[str, dict[str, Rejection]] = {}
        self._formats: dict[str, dict[tuple[str, str], Rejection]] = {}
        self._given_up: dict[str, Rejection] = {}

    def add(self, backend: str, node: str, refused: Rejection) -> None:
        """Reject `node` on `backend`; the first reason is kept."""
        if backend not in self._given_up:
            self._add(self._nodes.setdefault(backend, {}), node, refused)

    def add_format(self, backend: str, node: str, text: str, refused: Rejection) -> None:
        """Reject one format of `node` on `backend`; the node may stay there in another format.

        Args:
            backend: Name of the backend.
            node: Name of the first output of the node.
            text: The format, as text.
            refused: The reason.
        """
        if backend not in self._given_up:
            self._add(self._formats.setdefault(backend, {}), (node, text), refused)

    def give_up(self, backend: str, refused: Rejection) -> None:
        """Leave out a backend that keeps rejecting nodes round after round."""
        self._add(self._given_up, backend, refused)

    def next_round(self) -> None:
        """Count a round of decisions; after too many, leave out the backends that still reject nodes.

        Raises:
            DovetailError: All of them are left out already.
        """
        self.rounds += 1
        if self.rounds < _MOST_ROUNDS:
            return
        wanted = [name for name in self.backends() if self.given_up(name) is None]
        if not wanted:
            raise DovetailError(
                f"no end of deciding: something is refused in each of {self.rounds} rounds",
                "report it with the model and the backend files",
            )
        for name in wanted:
            why = f"it was left out: it refused nodes in {self.rounds} rounds without an end"
            remark = Remark("failed", "", "decide", "given-up", f"{name}: {why}")
            self.give_up(name, Rejection(why, (remark,)))

    def _add(self, known: dict[K, Rejection], key: K, refused: Rejection) -> None:
        if key not in known:
            known[key] = refused
            self.fresh = True

    def nodes(self, backend: str) -> Mapping[str, Rejection]:
        """Return the rejected nodes of a backend, by the name of their first output."""
        return self._nodes.get(backend, _NONE)

    def formats(self, backend: str) -> Mapping[tuple[str, str], Rejection]:
        """Return the rejected formats of a backend, by node and format."""
        return self._formats.get(backend, {})

    def given_up(self, backend: str) -> Rejection | None:
        """Return why a backend is left out; None if it is not."""
        return self._given_up.get(backend)

    def backends(self) -> Iterator[str]:
        """Yield the backends with rejections."""
        yield from dict.fromkeys((*self._nodes, *self._formats))

    def copy(self) -> Rejections:
        """Return an independent copy."""
        other = Rejections()
        other._nodes = {name: dict(nodes) for name, nodes in self._nodes.items()}
        other._formats = {name: dict(formats) for name, formats in self._formats.items()}
        other._given_up = dict(self._given_up)
        return other

    def remarks(self, known: Iterable[str]) -> Iterator[Remark]:
        """Yield the remarks on rejections by the backends in `known`, in chronological order."""
        for name in known:
            tables = (self._nodes.get(name, {}), self._formats.get(name, {}))
            for refused in (entry for table in tables for entry in table.values()):
                yield from refused.remarks
            if name in self._given_up:
                yield from self._given_up[name].remarks
