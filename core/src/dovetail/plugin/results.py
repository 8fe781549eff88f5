"""The contract of result stores, which keep results and plans in files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.planning.plan import Plan
    from dovetail.plugin.compiled import CompiledModel
    from dovetail.plugin.loading.loader import PluginSet
    from dovetail.plugin.options import CompileJob


class Recognition(NamedTuple):
    """The answer of a store about a request before it is compiled.

    Attributes:
        found: The result, if the model is already the result of this request; else None.
        mark: Called with every result compiled for the request, so that it is recognized once saved.
    """

    found: CompiledModel | None
    mark: Callable[[CompiledModel], None] = lambda compiled: None


class ResultStore(ABC):
    """Stores results; its class is instantiated without arguments.

    A store for plans also overrides `save_plan`, `load_plan` and `plan_text`; otherwise these are never called.

    Attributes:
        suffixes: Suffixes of its files, each with the leading dot: `(".zip",)`. An empty suffix matches all names that
            no other store matches.
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
        """Write a result atomically.

        Args:
            compiled: The result.
            path: The path to write to.
            external: Store weights in a separate file (True), with the graph (False), or depending on size (None).
            progress: Called with ("save", weights written, weights in total).

        Raises:
            DovetailError: It cannot be written, or would overwrite its source.
        """

    def add_comparison(self, compiled: CompiledModel, path: Path) -> None:  # noqa: B027, need not be overridden
        """Add `compiled.verification` to a result that `save` wrote before it was compared. By default, it is lost.

        Raises:
            DovetailError: It cannot be written.
        """

    @abstractmethod
    def load(self, path: Path, plugins: PluginSet) -> CompiledModel:
        """Load a result; it may have a `SavedResult` in `saved`.

        Raises:
            DovetailError: The path holds no result, or it was altered.
        """

    def identity(self, path: Path) -> str:
        """Return a text that changes with the content of the result at a path; by default, with size and time of it.

        Raises:
            DovetailError: There is no result.
        """
        try:
            status = path.stat()
        except OSError as error:
            raise DovetailError(f"{path} holds no result: {error.strerror}") from error
        return f"{status.st_size} {status.st_mtime_ns}"

    def check(self, path: Path) -> None:  # noqa: B027, need not be overridden
        """Reject a path that no result can be written to; called before anything is compiled.

        Raises:
            DovetailError: No result can be written there.
        """

    def recognize(self, job: CompileJob) -> Recognition:
        """Look for the result of a request before it is compiled. By default, nothing is recognized."""
        return Recognition(None)

    def save_plan(self, plan: Plan, path: Path) -> None:
        """Write a plan.

        Raises:
            DovetailError: It cannot be written.
        """
        raise NotImplementedError

    def load_plan(self, path: Path) -> Plan:
        """Load a plan; for the path of a result, load its plan.

        Raises:
            DovetailError: The path holds no plan, or it is malformed.
        """
        raise NotImplementedError

    def plan_text(self, plan: Plan) -> str:
        """Return the text of a plan, as in its file."""
        raise NotImplementedError


class SavedResult(Protocol):
    """A store's summary of a loaded result, which avoids building the graph.

    Attributes:
        placements: The rows of `CompiledModel.placements`; None if unknown.
        coverage: The line of `CompiledModel.coverage`; None if unknown.
    """

    placements: Sequence[Mapping[str, Any]] | None
    coverage: str | None
