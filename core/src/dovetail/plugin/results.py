"""What stores of results implement: what compiling gave, and plans, in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.compiled import CompiledModel
    from dovetail.plugin.loader import PluginSet


class ResultStore(Protocol):
    """Keeps results; called without arguments to make one.

    It may have more methods:

    - `check(path)` refuses a path that no result can be written to; it is asked before anything is compiled.
    - `recognise(job)`, with a `CompileJob`, gives a `Recognition`; it is asked before anything is compiled, too.
    - `save_plan(plan, path)`, `load_plan(path)` and `plan_text(plan)` write, read and print plans. `load_plan` may be
      given the path of a result, and reads its plan.

    Attributes:
        suffixes: How the names of its files end, each from a dot on: `(".zip",)`. An empty one stands for all names
            that no other store has the suffix of.
    """

    suffixes: tuple[str, ...]

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

    def load(self, path: Path, plugins: PluginSet) -> CompiledModel:
        """Read a result back; what it returns may have a `SavedResult` in `saved`.

        Raises:
            DovetailError: There is none, or it was altered.
        """


class SavedResult(Protocol):
    """What a store knows of a result that it has read, so that nobody has to look at the graph.

    Attributes:
        placements: The rows of `CompiledModel.placements`; None if they are not known.
        coverage: The line of `CompiledModel.coverage`; None if it is not known.
    """

    placements: Sequence[Mapping[str, Any]] | None
    coverage: str | None


class Recognition(NamedTuple):
    """What a store finds out about a request before it is compiled.

    Attributes:
        found: The result, where the model is already what this request made of it.
        mark: Called with every result that is compiled for the request, so that it is recognised once it is saved.
    """

    found: CompiledModel | None
    mark: Callable[[CompiledModel], None]
