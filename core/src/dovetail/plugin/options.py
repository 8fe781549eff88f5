"""The contract of options: extensions of a core command and of its Python function by a plugin."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dovetail.errors import DovetailError
from dovetail.installed import DISTRIBUTION
from dovetail.plugin.loading.contracts import derived
from dovetail.plugin.loading.isolation import PluginWarning, described, foreign_output

if TYPE_CHECKING:
    import argparse

    from dovetail.ir.model import Model
    from dovetail.planning.node_request import NodeRequest
    from dovetail.planning.plan import Plan
    from dovetail.planning.request import Request
    from dovetail.plugin.compiled import CompiledModel
    from dovetail.plugin.context import Context
    from dovetail.plugin.loading.registry import Registry
    from dovetail.plugin.pass_ import Pass
    from dovetail.plugin.search import Phase, Policy


T = TypeVar("T")

COMMANDS_WITH_OPTIONS = ("compile", "plan", "bisect", "check")
"""The commands that options may extend."""

COMPILE_KEYWORDS = frozenset(
    ("model", "backends", "data", "plan", "strategy", "solver", "costs", "pins", "edits", "low", "high",
     "keep_io_types", "freeze_inputs", "try_engines", "passes", "plugins", "progress", "instrumentation", "keep")
)  # fmt: skip
"""The parameters of `dovetail.compile` itself, and the subset of `dovetail.plan`; no option may own one of these."""

PHASES = ("begin", "policies", "finish", "judge", "publish")
"""The phases of a compilation, in order: methods of `Option`."""

_GONE = ("compile", "observe", "choose", "fit")
"""Methods that options of earlier versions had."""


@dataclass(frozen=True)
class CompileJob:
    """One call of `dovetail.compile`, as options see it.

    Attributes:
        original: The source model, which must not be changed.
        request: The request, as policies left it.
        ctx: The context of the compilation.
        keywords: The keyword arguments that options own, including those of other options.
        recognized: The existing result of the same request and model, or None; it stays as it is, and only the phases
            `begin`, `judge` and `publish` see it.
        progress: Progress callback, called with (step, done, total), or None.
        keep: Must be called with a result before anything that may fail examines it: the command line saves it there. A
            second call with the same result does nothing; the return value of `dovetail.compile` is kept in any case.
        passes: The caller's own passes, in addition to those of plugins.
        tried: The engines that the result is tried on, by backend.
        searched: Whether a policy compares results on data to choose one of them.
        on_prepared: Called with the prepared model of the request, once, before anything is decided. Options add to it;
            these callbacks must not change the model, and end the compilation by raising a `DovetailError`.
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
    searched: bool = False
    on_prepared: list[Callable[[Model], None]] = field(default_factory=list)


class Option(ABC):
    """A plugin's extension of a command and its Python function: `registry.option("hello", "acme.option:HELLO")`.

    Compilation has phases (`PHASES`), in each of which the options act that implement it.

    Attributes:
        commands: The commands that it extends: `compile`, `plan`, `bisect` and `check`. The latter two build a request,
            but call neither the phases nor `planned`.
        keywords: The keyword arguments of `dovetail.compile` and `dovetail.plan` that it owns.
    """

    commands: tuple[str, ...]
    keywords: tuple[str, ...] = ()

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add arguments to the parser of a command."""

    def complete(self, args: argparse.Namespace) -> None:  # noqa: B027, it need not do anything
        """Fill in arguments omitted on the command line, such as `args.model`, before the command reads them.

        Raises:
            DovetailError: A file that the arguments name cannot be read.
        """

    def keywords_of(self, args: argparse.Namespace) -> Mapping[str, Any]:
        """Convert parsed arguments to keyword arguments.

        Raises:
            UsageError: The arguments are inconsistent.
        """
        return {}

    def recorded(self, keywords: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the keywords that affect the result, as plain data; empty if none does.

        The data becomes part of the request, of its cache key, and of the plan.

        Raises:
            DovetailError: A keyword has an invalid value.
        """
        return {}

    def source(self, model: Model, recorded: Mapping[str, Any]) -> Model:
        """Return the model that is compiled, and that results are compared with: the one that was opened by default.

        Args:
            model: The model that was opened; it must not be changed, but a clone of it may.
            recorded: The entry of the option in the request, which is not empty.

        Raises:
            DovetailError: The record asks for something that this model does not have.
        """
        return model

    def requested(self, request: Request, model: Model, keywords: Mapping[str, Any]) -> Request:
        """Return the request extended by what the keywords ask for, such as further pins; called before any decision.

        Data that affects the result and depends on the model goes into `Request.options` here, under the option's name;
        `recorded` is for data that does not depend on the model.

        Args:
            request: The request so far.
            model: The source model, which must not be changed.
            keywords: The option's own keywords given by the caller, at least one.

        Raises:
            DovetailError: The keywords ask for something that this model does not have.
        """
        return request

    def node_requests(self, recorded: Mapping[str, Any]) -> Iterable[NodeRequest]:
        """Return the node requests in its record; strategies and typing read them with the user's own requests.

        Args:
            recorded: The entry of the option in the request.
        """
        return ()

    def planned(  # noqa: B027, it need not do anything
        self, plan: Plan, model: Model, ctx: Context, keywords: Mapping[str, Any]
    ) -> None:
        """Examine a plan of `dovetail.plan`, and add remarks, a part of its summary, or notes for the user.

        Args:
            plan: The plan.
            model: The source model, which must not be changed.
            ctx: The context of the planning, with the request and the plugins.
            keywords: The option's own keywords given by the caller, at least one.

        Raises:
            DovetailError: It cannot examine the plan.
        """

    def begin(self, job: CompileJob) -> AbstractContextManager[object] | None:
        """Check the request, and return what holds during the compilation, such as workers; the first phase.

        Raises:
            DovetailError: The request cannot be compiled as it is.
        """
        return None

    def policies(self, job: CompileJob, phase: Phase) -> Iterable[Policy]:
        """Return what searches in a phase for the result that the keywords ask for; nothing if they ask for nothing.

        It is called for each of the phases `observe`, `raise` and `fit`, with the request as it is by then, and must
        not look at data. All policies of the phases `observe` and `fit` are followed. In the phase `raise` one is: the
        first, those of options whose keywords are given before the others; without one, the request is compiled as it
        is.

        Raises:
            DovetailError: The request cannot be searched for.
        """
        return ()

    def finish(self, job: CompileJob, compiled: CompiledModel) -> None:  # noqa: B027, it need not do anything
        """Check the result that was found, and complete it, such as by files beside it, before it is kept.

        Raises:
            DovetailError: The result is not what was asked for.
        """

    def judge(self, job: CompileJob, compiled: CompiledModel) -> None:  # noqa: B027, it need not do anything
        """Measure the result, and record in it what that shows.

        Raises:
            ResultError: The result is complete, but something is wrong with it.
        """

    def publish(self, job: CompileJob, compiled: CompiledModel) -> None:  # noqa: B027, it need not do anything
        """Write something about the result once it is kept and judged, also if it is not what was asked for.

        Raises:
            ResultError: The result is complete, but this cannot be written.
        """

    def words(self, command: str, recorded: Mapping[str, Any]) -> Sequence[str] | None:
        """Convert its record to command-line words, such as `--fix-shape x:1x4`, for commands to be copied.

        Args:
            command: The command: `compile`, `plan` or `bisect`.
            recorded: The entry of the option in the request.

        Returns:
            The words; None if the command cannot express the record, as by default.
        """
        return None


class InstalledOption(NamedTuple):
    """An option with its registered name and its distribution."""

    name: str
    owner: str
    option: Option

    @property
    def title(self) -> str:
        """The option and its distribution, for messages."""
        return f"option '{self.name}' of {self.owner}"


def installed_options(registry: Registry, command: str) -> list[InstalledOption]:
    """Return the options of a command, sorted by name; an invalid option is dropped with a warning."""
    found: list[InstalledOption] = []
    owners = dict.fromkeys(COMPILE_KEYWORDS, DISTRIBUTION)
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
    """Drop an invalid option, with a warning."""
    registry.option.drop(name)
    warnings.warn(f"{error.message}; it is left out", PluginWarning, stacklevel=3)


def _checked(found: InstalledOption, owners: Mapping[str, str]) -> InstalledOption:
    """Check that an option implements the contract and clashes with no other, and return it."""
    option = found.option
    if isinstance(option, type):
        raise DovetailError(f"{found.title} is a class, and not an object of it")
    derived(option, found.title, Option)
    if gone := [name for name in _GONE if any(name in vars(cls) for cls in type(option).__mro__)]:
        raise DovetailError(f"{found.title} has a method '{gone[0]}', instead of which there are {', '.join(PHASES)}")
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


def returned(found: InstalledOption, value: object, kind: type[T], what: str) -> T:
    """Check the type of what an option returned, and return it.

    Raises:
        DovetailError: It is something else.
    """
    if not isinstance(value, kind):
        raise DovetailError(f"{found.title} gave {type(value).__name__} and no {what}", f"report it to {found.owner}")
    return value


@contextmanager
def blaming(found: InstalledOption) -> Iterator[None]:
    """Name the option in errors raised by the block, unless they are meant for users.

    Output of the block goes to standard error.
    """
    try:
        with foreign_output(found.title):
            yield
    except (DovetailError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise DovetailError(
            f"{found.title} raised {described(error)}",
            f"report it to {found.owner}, or leave it out with --no-plugin {found.owner}",
        ) from error
