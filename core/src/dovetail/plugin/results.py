"""What stores of results implement: what compiling gave, and plans, in files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.compiler.compiled import CompiledModel
    from dovetail.planning.plan import Plan
    from dovetail.plugin.loader import PluginSet
    from dovetail.plugin.options import CompileJob


class Recognition(NamedTuple):
    """What a store finds out about a request before it is compiled.

    Attributes:
        found: The result, where the model is already what this request made of it.
        mark: Called with every result that is compiled for the request, so that it is recognized once it is saved.
    """

    found: CompiledModel | None
    mark: Callable[[CompiledModel], None] = lambda compiled: None


class ResultStore(ABC):
    """Keeps results; called without arguments to make one.

    A store that keeps plans, too, overrides `save_plan`, `load_plan` and `plan_text`; one that does not is not asked.

    Attributes:
        suffixes: How the names of its files end, each from a dot on: `(".zip",)`. An empty one stands for all names
            that no other store has the suffix of.
    """

    suffixes: tuple[str, ...]

    @abstractmethod
    def save(
        self,
        compiled: CompiledModel,
        path: Path,
        *,
        external: bool | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """Write a result, as a whole or not at all.

        Args:
            compiled: The result.
            path: Where to.
            external: Store weights in a file of their own (True), with the graph (False), or by their size (None).
            progress: Called with ("save", weights written, weights in total).

        Raises:
            DovetailError: It cannot be written, or its source would be replaced.
        """

    @abstractmethod
    def load(self, path: Path, plugins: PluginSet) -> CompiledModel:
        """Read a result back; what it returns may have a `SavedResult` in `saved`.

        Raises:
            DovetailError: There is none, or it was altered.
        """

    def check(self, path: Path) -> None:  # noqa: B027, need not be overridden
        """Refuse a path that no result can be written to; asked before anything is compiled.

        Raises:
            DovetailError: No result can be written there.
        """

    def recognize(self, job: CompileJob) -> Recognition:
        """Look for the result of a request; asked before anything is compiled. By default nothing is recognized."""
        return Recognition(None)

    def save_plan(self, plan: Plan, path: Path) -> None:
        """Write a plan.

        Raises:
            DovetailError: It cannot be written.
        """
        raise NotImplementedError

    def load_plan(self, path: Path) -> Plan:
        """Read a plan; the path may be that of a result, whose plan is read.

        Raises:
            DovetailError: There is none, or it is malformed.
        """
        raise NotImplementedError

    def plan_text(self, plan: Plan) -> str:
        """The text of a plan, as it stands in its file."""
        raise NotImplementedError


class SavedResult(Protocol):
    """What a store knows of a result that it has read, so that nobody has to look at the graph.

    Attributes:
        placements: The rows of `CompiledModel.placements`; None if they are not known.
        coverage: The line of `CompiledModel.coverage`; None if it is not known.
    """

    placements: Sequence[Mapping[str, Any]] | None
    coverage: str | None
