"""The contract of folders that are compiled as a unit: several models that belong together, such as a generator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dovetail.plugin.loading.contracts import made
from dovetail.plugin.loading.isolation import calling

if TYPE_CHECKING:
    from dovetail.plugin.compiled import CompiledModel
    from dovetail.plugin.loading.loader import PluginSet


class CompiledFolder(ABC):
    """The result of compiling a folder as a unit.

    Attributes:
        parts: The result of each of its models, by name.
        failed: Problems of the complete result, such as a goal that it misses, as sentences.
    """

    parts: Mapping[str, CompiledModel]
    failed: list[str]

    @abstractmethod
    def save(self, folder: str | Path, *, external: bool | None = None, progress: Any = None) -> None:
        """Write all models and the files next to them; an earlier result is replaced only by a complete one.

        Args:
            folder: The folder to write to.
            external: As for `CompiledModel.save`; by default as in the source folder.
            progress: As for `CompiledModel.save`.

        Raises:
            DovetailError: The folder cannot be written.
        """

    @abstractmethod
    def tables(self) -> Sequence[Sequence[Mapping[str, Any]]]:
        """Return what to print: tables of rows, each row with its cells by heading."""

    @abstractmethod
    def notes(self) -> Sequence[str]:
        """Return notes for the user, as sentences."""

    @abstractmethod
    def summary(self) -> str:
        """Return one line about the whole."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""


class ShippedFolder(NamedTuple):
    """What of the saved result of a folder a product ships. Paths are relative to the result.

    Attributes:
        runtime: The program that loads the files: `onnxruntime-genai`.
        files: What that program reads, and what goes along, such as licenses; nothing that describes the compilation.
        parts: The model of each part as Dovetail runs it, by name; empty if only the program runs the result.
    """

    runtime: str
    files: Sequence[Path]
    parts: Mapping[str, Path]


class FolderKind(ABC):
    """A kind of folder whose models are compiled together: `registry.folder_kind("generator", "acme.folder:Kind")`.

    Its class is instantiated without arguments.
    """

    @abstractmethod
    def recognizes(self, folder: Path) -> bool:
        """Return whether a folder is of this kind; must be cheap."""

    def check(self, folder: Path, output: Path) -> None:  # noqa: B027, need not be overridden
        """Reject an output that the result of a folder cannot be written to; called before anything is compiled.

        Raises:
            DovetailError: No result can be written there.
        """

    @abstractmethod
    def compile(self, folder: Path, *, plugins: PluginSet, **request: Any) -> CompiledFolder:
        """Compile all models of a folder.

        Args:
            folder: The folder.
            plugins: The plugins to use.
            request: The keywords of `dovetail.compile`; `keep` is called with the result before it is examined.

        Raises:
            UsageError: A keyword makes no sense for a folder.
            ResultError: The result is complete, but something is wrong with it; `compiled` of the error is the result.
            DovetailError: The folder or the request is at fault.
        """

    def shipped(self, result: Path) -> ShippedFolder | None:
        """Return what of a saved result a product ships; None, by default, if the folder is no result of this kind.

        Raises:
            DovetailError: A file of the result is missing, or was changed since it was saved.
        """
        return None


Result = TypeVar("Result")


def compiled_folder(
    folder: Path, plugins: PluginSet, output: Path | None = None, **request: Any
) -> CompiledFolder | None:
    """Compile a folder with the first plugin that recognizes it; return None if none does.

    Args:
        folder: The folder.
        plugins: The plugins to use.
        output: Where the result will be saved, if that is known.
        request: See `FolderKind.compile`.
    """

    def work(kind: FolderKind) -> CompiledFolder:
        return kind.compile(folder, plugins=plugins, **request)

    return with_kind(folder, plugins, output, work)


def with_kind(
    folder: Path, plugins: PluginSet, output: Path | None, work: Callable[[Any], Result], contract: type = FolderKind
) -> Result | None:
    """Return the result of `work` for the first kind that recognizes a folder; None if none does.

    Args:
        folder: The folder.
        plugins: The plugins to use.
        output: Where the result will be saved, if that is known.
        work: Called with the kind of folder, once its output is checked.
        contract: The class that a kind must derive from to be asked.
    """
    for name in (table := plugins.registry.folder_kind):
        with calling(title := table.title(name)):
            kind = made(table[name], title, FolderKind)
            if isinstance(kind, contract) and kind.recognizes(folder):
                if output is not None:
                    kind.check(folder, output)
                return work(kind)
    return None


def shipped_folder(result: Path, plugins: PluginSet) -> ShippedFolder | None:
    """Return what of a saved result of a folder a product ships; None if it is no result of a folder.

    Raises:
        DovetailError: A file of the result is missing, or was changed since it was saved.
    """
    for name in (table := plugins.registry.folder_kind):
        with calling(title := table.title(name)):
            found = made(table[name], title, FolderKind).shipped(result)
            if found is not None:
                return found
    return None
