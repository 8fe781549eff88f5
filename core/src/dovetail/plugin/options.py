"""Options: what a plugin adds to a command of core and to the Python function behind it."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from dovetail.errors import DovetailError
from dovetail.plugin.contracts import derived
from dovetail.plugin.isolation import PluginWarning, described, foreign_output

if TYPE_CHECKING:
    import argparse

    from dovetail.compiler.compiled import CompiledModel
    from dovetail.ir.model import Model
    from dovetail.passes import Context, Pass, Request
    from dovetail.planning.plan import Plan
    from dovetail.plugin.registry import Registry


COMMANDS_WITH_OPTIONS = ("compile", "plan", "bisect", "check")
"""The commands that options may add to."""

COMPILE_KEYWORDS = frozenset(
    ("model", "backends", "data", "plan", "strategy", "solver", "costs", "pins", "edits", "low", "high",
     "keep_io_types", "freeze_inputs", "try_engines", "passes", "plugins", "progress", "instrumentation", "keep")
)  # fmt: skip
"""The parameters that `dovetail.compile` has itself, and among them those of `dovetail.plan`; no option may own one of
these."""

Asked: TypeAlias = "Mapping[str, tuple[str, str]]"
"""Nodes of the main graph by name, each with what asks for it, for remarks: `high` or `low`, which typing obeys, or an
element type such as `int16`, which the strategy of the node's backend may obey."""


@dataclass(frozen=True)
class CompileJob:
    """One call of `dovetail.compile`, as options see it.

    Attributes:
        original: The model that was given; it stays as it is.
        request: What is asked for.
        ctx: The context of the compilation.
        keywords: The keyword arguments that options own, those of other options too.
        recognized: The result, where the same request compiled the model before; `proceed()` then gives it as it is.
        progress: Called with (what, done, total); None where nobody listens.
        keep: To be called with a result before anything that may fail looks at it: the command line saves it there.
            A second call with the same result does nothing; what `dovetail.compile` returns is kept in any case.
        passes: Passes of the caller, beside those of plugins.
        tried: The engines that the result is tried on, by backend.
    """

    original: Model
    request: Request
    ctx: Context
    keywords: Mapping[str, Any]
    recognized: CompiledModel | None
    progress: Callable[[str, int, int], None] | None
    keep: Callable[[CompiledModel], None]
    passes: Sequence[Pass] = ()
    tried: Mapping[str, str] = field(default_factory=dict)


class Proceed(Protocol):
    """Compiles a job, inside the option that it is given to; it may be called several times, or not at all."""

    def __call__(self, asked: Asked | None = None, request: Request | None = None) -> CompiledModel:
        """The result.

        Args:
            asked: Nodes that shall be so wherever nothing forbids it.
            request: What to compile for instead of the job's request, such as another observer; from then on this
                result is what the job's request gives.
        """


class Option(ABC):
    """What a plugin adds to a command and to its Python function: `registry.option("hello", "acme.option:HELLO")`.

    Attributes:
        commands: The commands whose arguments it adds to: `compile`, `plan`, `bisect` and `check`. The latter two
            make a request, and call neither `compile` nor `planned`.
        keywords: The keyword arguments of `dovetail.compile` and `dovetail.plan` that it owns.
    """

    commands: tuple[str, ...]
    keywords: tuple[str, ...] = ()

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add arguments to the parser of a command."""

    def complete(self, args: argparse.Namespace) -> None:  # noqa: B027, it need not do anything
        """Set what was left out on the command line, such as `args.model`, before the command looks at it.

        Raises:
            DovetailError: A file that the arguments name cannot be read.
        """

    def keywords_of(self, args: argparse.Namespace) -> Mapping[str, Any]:
        """The keyword arguments that parsed arguments stand for.

        Raises:
            UsageError: The arguments make no sense.
        """
        return {}

    def recorded(self, keywords: Mapping[str, Any]) -> Mapping[str, Any]:
        """What of its keywords shapes the result, as plain data: it becomes part of the request, of the cache key by
        which a result is recognized, and of the plan. Empty where nothing does.

        Raises:
            DovetailError: A keyword has a value that it cannot have.
        """
        return {}

    def requested(self, request: Request, model: Model, keywords: Mapping[str, Any]) -> Request:
        """The request with what the keywords ask for, such as further pins; called before anything is decided.

        What shapes the result and depends on the model is put into `Request.options` here, under the option's name;
        `recorded` is for what does not.

        Args:
            request: What is asked for otherwise.
            model: The model that was given; it stays as it is.
            keywords: The option's own keywords that the caller gave; it is not called without any.

        Raises:
            DovetailError: The keywords ask for what this model does not have.
        """
        return request

    def planned(  # noqa: B027, it need not do anything
        self, plan: Plan, model: Model, ctx: Context, keywords: Mapping[str, Any]
    ) -> None:
        """Examine what `dovetail.plan` decided, and add remarks, a part of its summary, or notes for the user.

        Args:
            plan: What was decided.
            model: The model that was given; it stays as it is.
            ctx: The context of the planning, with the request and the plugins.
            keywords: The option's own keywords that the caller gave; it is not called without any.

        Raises:
            DovetailError: It cannot examine the plan.
        """

    def compile(self, job: CompileJob, proceed: Proceed) -> CompiledModel:
        """Wrap the compilation; called for every compilation. By default it does nothing.

        Raises:
            ResultError: The result is whole, and yet something is wrong with it; the error holds it.
            DovetailError: The compilation fails.
        """
        return proceed()

    def words(self, command: str, recorded: Mapping[str, Any]) -> Sequence[str] | None:
        """Write what it recorded as words of a command, such as `--fix-shape x:1x4`, for commands to be copied.

        Args:
            command: The command: `compile`, `plan` or `bisect`.
            recorded: What the request has under the name of the option.

        Returns:
            The words; None where the command has none for it, as by default.
        """
        return None


class InstalledOption(NamedTuple):
    """An option, the name that it is registered under, and the distribution that brings it."""

    name: str
    owner: str
    option: Option

    @property
    def title(self) -> str:
        """The option and its distribution, for messages."""
        return f"option '{self.name}' of {self.owner}"


def installed_options(registry: Registry, command: str) -> list[InstalledOption]:
    """The options of a command, in the order of their names; each one that is at fault is dropped with a warning."""
    found: list[InstalledOption] = []
    owners = dict.fromkeys(COMPILE_KEYWORDS, "dovetail")
    for entry in registry.option.entries:
        try:
            option = _checked(InstalledOption(entry.name, entry.owner, registry.option[entry.name]), owners)
        except DovetailError as error:
            drop_option(registry, entry.name, error)
            continue
        owners |= dict.fromkeys(option.option.keywords, entry.owner)
        if command in option.option.commands:
            found.append(option)
    return found


def drop_option(registry: Registry, name: str, error: DovetailError) -> None:
    """Leave out an option that is at fault, with a warning."""
    registry.option.drop(name)
    warnings.warn(f"{error.message}; it is left out", PluginWarning, stacklevel=3)


def _checked(found: InstalledOption, owners: Mapping[str, str]) -> InstalledOption:
    """The option, if it answers what options are asked and clashes with nothing."""
    option = found.option
    if isinstance(option, type):
        raise DovetailError(f"{found.title} is a class, and not an object of it")
    derived(option, found.title, Option)
    for attribute, names in (("commands", option.commands), ("keywords", option.keywords)):
        if not isinstance(names, tuple):
            raise DovetailError(f"{found.title}: '{attribute}' is no tuple of names")
    if unknown := [name for name in option.commands if name not in COMMANDS_WITH_OPTIONS]:
        known = ", ".join(COMMANDS_WITH_OPTIONS)
        raise DovetailError(f"{found.title} adds to '{unknown[0]}', and only {known} can be added to")
    for keyword in option.keywords:
        if keyword in owners:
            raise DovetailError(f"{found.title} owns the keyword '{keyword}', which {owners[keyword]} has already")
    return found


@contextmanager
def blaming(found: InstalledOption, passing: Collection[BaseException] = ()) -> Iterator[None]:
    """Name the option in what the block raises, unless that is an error for users, or came through from elsewhere.

    What it prints goes to standard error.

    Args:
        found: The option whose code runs in the block.
        passing: What the block called by way of the option has raised.
    """
    try:
        with foreign_output(found.title):
            yield
    except (DovetailError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if any(error is other for other in passing):
            raise
        raise DovetailError(
            f"{found.title} raised {described(error)}",
            f"report it to {found.owner}, or leave it out with --no-plugin {found.owner}",
        ) from error
