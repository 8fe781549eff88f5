"""Finding, loading and calling plugins, each isolated from the failures of the others."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pluggy

from dovetail.errors import DovetailError, UsageError
from dovetail.plugin import hookspecs
from dovetail.plugin.backend_files import backend_files, formats_of, misnamed_file
from dovetail.plugin.commands import CORE_COMMANDS
from dovetail.plugin.isolation import PluginWarning, described, foreign_output
from dovetail.plugin.registry import Registry
from dovetail.suggestions import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from dovetail.ir.model import Model
    from dovetail.passes import Pipeline, Request
    from dovetail.plugin.backend import BackendFormat
    from dovetail.plugin.registry import Table

__all__ = ["ENTRY_POINT_GROUP", "PluginRecord", "PluginSet", "PluginWarning", "load_plugins"]

ENTRY_POINT_GROUP = "dovetail"
_ALLOW_VARIABLE = "DOVETAIL_PLUGINS"
_THIS_PROGRAM = "this program"
# What looks back at a pass runs in the opposite order of what looks ahead, so that the calls nest.
_INNERMOST_FIRST = ("after_pass", "pass_failed")


@dataclass
class PluginRecord:
    """What is known of one plugin.

    Attributes:
        name: Name of its entry point.
        distribution: The distribution that brings it.
        version: Version of that distribution.
        target: The module (or object) that the entry point names.
        status: `ok`, `broken` (it failed; see `error`) or `disabled` (the user left it out).
        error: Why it is broken or disabled.
        hooks: Names of the hooks it implements.
    """

    name: str
    distribution: str
    version: str
    target: str
    status: Literal["ok", "broken", "disabled"] = "ok"
    error: str = ""
    hooks: tuple[str, ...] = ()

    def fail(self, error: str) -> None:
        """Mark the plugin as broken."""
        self.status, self.error = "broken", error

    @property
    def title(self) -> str:
        """The plugin and its distribution, for messages: `plugin acme (dovetail-acme)`."""
        return f"plugin {self.name} ({self.distribution})"

    @property
    def absence(self) -> str:
        """Why what it brings is not there, with its version."""
        state = "is broken" if self.status == "broken" else "is disabled"
        return f"plugin {self.name} ({' '.join(filter(None, (self.distribution, self.version)))}) {state}: {self.error}"

    def as_dict(self) -> dict[str, object]:
        """The record as plain data."""
        return {**vars(self), "hooks": list(self.hooks)}

    def __str__(self) -> str:
        return f"{self.title}: {self.error or self.status}"


class PluginSet:
    """The plugins of one compilation and what they registered.

    Attributes:
        registry: Everything that plugins in good order brought.
        plugins: A record of every plugin found, by name.
    """

    def __init__(self) -> None:
        self.registry = Registry()
        with self.registry.on_behalf_of("dovetail"):
            for name, target in CORE_COMMANDS.items():
                self.registry.command(name, target)
        self.plugins: list[PluginRecord] = []
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)

    @property
    def broken(self) -> list[PluginRecord]:
        """The plugins that failed."""
        return [record for record in self.plugins if record.status == "broken"]

    def version_of(self, backend: str) -> str:
        """The distribution that brings a backend, with its version (`dovetail-acme 1.0`); empty for this program's."""
        if backend not in self.registry.backend:
            return ""
        owner = self.registry.backend.entry(backend).owner
        return next((f"{owner} {r.version}".strip() for r in self.plugins if r.distribution == owner and r.version), "")

    def attach(self, plugin: Any, name: str) -> None:
        """Add a plugin that no distribution brings: a module or an object whose methods are hooks, for this set only.

        It stands under the same contract as one that is installed.

        Args:
            plugin: Has `dovetail_api` and functions under `@hookimpl`.
            name: What it is called in messages.

        Raises:
            DovetailError: The name is taken, or the plugin breaks the contract.
        """
        if any(record.name == name for record in self.plugins):
            raise DovetailError(f"there is a plugin {name!r} already", "choose another name")
        record = PluginRecord(name, _THIS_PROGRAM, "", getattr(plugin, "__name__", type(plugin).__qualname__))
        self._bring([(record, plugin)])
        if record.status != "ok":
            raise DovetailError(str(record), "see docs/plugins.md for what a plugin may do")
        self.plugins.append(record)

    def call(self, hook: str, **arguments: Any) -> None:
        """Call every implementation of an instrumentation hook; one that raises breaks its plugin and nothing else.

        Raises:
            DovetailError: A plugin tries to end the program.
        """
        for record, implementation in self._implementations(hook):
            self._invoke(record, hook, implementation, arguments)

    def prepare(self) -> None:
        """Let plugins get ready for a model that is about to be opened.

        Raises:
            DovetailError: What a plugin brings is at fault.
        """
        for record, implementation in self._implementations("before_opening"):
            self._invoke(record, "before_opening", implementation, {"registry": self.registry}, refusal=DovetailError)

    def extend(self, model: Model) -> Model:
        """Let plugins add what belongs to a model that was just opened, and return it.

        Raises:
            DovetailError: What a plugin brings is at fault.
        """
        for record, implementation in self._implementations("opened"):
            arguments = {"model": model, "registry": self.registry}
            self._invoke(record, "opened", implementation, arguments, refusal=DovetailError)
        return model

    def configure(self, pipeline: Pipeline, request: Request) -> None:
        """Let plugins configure `pipeline`; a plugin that raises loses its changes.

        Raises:
            DovetailError: A plugin refuses the request on purpose, or tries to end the program.
        """
        for record, implementation in self._implementations("configure_pipeline"):
            before = list(pipeline.steps)
            arguments = {"pipeline": pipeline, "request": request}
            self._invoke(record, "configure_pipeline", implementation, arguments, refusal=DovetailError)
            if record.status != "ok":
                pipeline.steps[:] = before

    def _invoke(
        self,
        record: PluginRecord,
        hook: str,
        implementation: Any,
        arguments: dict[str, Any],
        refusal: type[Exception] | tuple[()] = (),
    ) -> None:
        """Call one implementation of a hook; what it raises breaks its plugin, unless it is a `refusal`."""
        try:
            with foreign_output(record.title):
                implementation(**arguments)
        except refusal:
            raise
        except Exception as error:
            record.fail(f"{hook} raised {described(error)}")
            warnings.warn(str(record), PluginWarning, stacklevel=4)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise DovetailError(
                f"{record.title}: its hook {hook} tries to end the program ({described(error)})",
                f"report it to {record.distribution}, or leave the plugin out with --no-plugin {record.name}",
            ) from error

    def _implementations(self, hook: str) -> Iterator[tuple[PluginRecord, Any]]:
        """Each sound plugin's implementation, called with the arguments it wants."""
        records = {record.name: record for record in self.plugins}
        implementations = list(getattr(self._manager.hook, hook).get_hookimpls())
        if hook not in _INNERMOST_FIRST:
            implementations.reverse()
        for implementation in implementations:
            record = records[implementation.plugin_name]
            if record.status == "ok":
                yield record, _with_wanted_arguments(implementation)

    def _load(self, found: list[tuple[PluginRecord, EntryPoint]]) -> None:
        modules = []
        for record, entry_point in found:
            self.plugins.append(record)
            if record.status == "ok":
                with self._blaming(record, "does not import"):
                    modules.append((record, entry_point.load()))
        self._bring(modules)

    def _bring(self, modules: list[tuple[PluginRecord, Any]]) -> None:
        """Take in what plugins bring; those that break the contract, or fail on the way, are marked as broken."""
        # pluggy calls the last registered first; registered backwards, hooks run by name and obey tryfirst and trylast.
        for record, module in reversed(modules):
            self._attach(record, module)
        # What one plugin registers may be needed to read the files of another, whatever their names are.
        added = {record.name: self._register(record) for record, _ in modules if record.status == "ok"}
        for record, _ in modules:
            if record.status == "ok":
                self._check_formats(record, added[record.name])
        formats = formats_of(self.registry)
        for record, module in modules:
            if record.status == "ok":
                self._add_files(record, module, added[record.name], formats)
        for record, _ in modules:
            if record.status != "ok" and self._manager.has_plugin(record.name):
                self._manager.unregister(name=record.name)

    def _attach(self, record: PluginRecord, module: Any) -> None:
        try:
            self._manager.register(module, record.name)
        except Exception as error:
            record.fail(described(error))
        else:
            callers = self._manager.get_hookcallers(module) or []
            record.hooks = tuple(sorted(caller.name for caller in callers))
            if problem := _contract_error(module, callers):
                record.fail(problem)

    def _register(self, record: PluginRecord) -> list[tuple[Table, str]]:
        """Call the plugin's `register`, and give what it added."""
        added: list[tuple[Table, str]] = []
        with self._blaming(record), self.registry.on_behalf_of(record.distribution, added):
            for candidate in self._manager.hook.register.get_hookimpls():
                if candidate.plugin_name == record.name:
                    _with_wanted_arguments(candidate)(registry=self.registry)
        return added

    def _check_formats(self, record: PluginRecord, added: list[tuple[Table, str]]) -> None:
        """Make the formats of backend files among what a plugin added; if one is broken, all that it added goes."""
        names = [name for table, name in added if table is self.registry.backend_format]
        with self._blaming(record), self.registry.on_behalf_of(record.distribution, added):
            formats_of(self.registry, names)

    def _add_files(
        self, record: PluginRecord, module: Any, added: list[tuple[Table, str]], formats: list[BackendFormat]
    ) -> None:
        """Register the backend files in the plugin's package; where that fails, what it added before goes too."""
        with self._blaming(record), self.registry.on_behalf_of(record.distribution, added):
            files = backend_files(module, formats)
            for name, target in files:
                self.registry.backend(name, target)
            if not files and not record.hooks and (why := misnamed_file(module, formats)):
                raise DovetailError(why)

    @contextmanager
    def _blaming(self, record: PluginRecord, what: str = "register") -> Iterator[None]:
        """Keep what a plugin prints out of standard output, and mark it as broken by what it raises."""
        try:
            with foreign_output(record.title):
                yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if isinstance(error, DovetailError) and what == "register":
                record.fail(error.message)
            else:
                record.fail(f"{what}: {described(error)}")


def load_plugins(
    *, block: Collection[str] = (), allow: Collection[str] | None = None, strict: bool = False
) -> PluginSet:
    """Find and load the installed plugins, sorted by name.

    Args:
        block: Names of plugins or distributions to leave out.
        allow: If given, leave out all others; by default the list in `DOVETAIL_PLUGINS` (`a,b`), if that is set.
        strict: Raise on the first broken plugin instead of listing it.

    Raises:
        UsageError: `block` or `allow` names a plugin that is not installed.
        DovetailError: `strict` met a broken plugin.
    """
    if allow is None and _ALLOW_VARIABLE in os.environ:
        allow = [name.strip() for name in os.environ[_ALLOW_VARIABLE].split(",") if name.strip()]
    found = list(_find())
    _choose([record for record, _ in found], block, allow)
    _refuse_clashes(found)
    plugins = PluginSet()
    plugins._load(found)
    plugins.registry.absent.extend(record.absence for record in plugins.plugins if record.status != "ok")
    for clash in plugins.registry.backend.clashes():
        warnings.warn(f"{clash.message}; {clash.hint}", PluginWarning, stacklevel=2)
    for record in plugins.broken:
        if strict:
            raise DovetailError(str(record))
        warnings.warn(str(record), PluginWarning, stacklevel=2)
    return plugins


def _find() -> Iterator[tuple[PluginRecord, EntryPoint]]:
    """Every entry point once, each under a name of its own."""
    from importlib.metadata import entry_points

    targets: dict[str, set[str]] = {}
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: (point.name, point.value)):
        known = targets.setdefault(point.name, set())
        if point.value in known:
            continue  # One distribution found twice on the path, as editable installs may be.
        distribution, version = (point.dist.name, point.dist.version) if point.dist else ("unknown", "")
        name = f"{point.name}@{distribution}" if known else point.name
        known.add(point.value)
        yield PluginRecord(name, distribution, version, point.value), point


def _choose(records: list[PluginRecord], block: Collection[str], allow: Collection[str] | None) -> None:
    """Disable what is blocked or not allowed."""
    known = {name for record in records for name in (record.name, record.distribution)}
    for name in (*block, *(allow or ())):
        if name not in known:
            raise UsageError(f"no plugin {name!r} is installed{did_you_mean(name, known)}")
    for record in records:
        names = {record.name, record.distribution}
        if names & set(block):
            record.status, record.error = "disabled", "left out by request"
        elif allow is not None and not names & set(allow):
            record.status, record.error = "disabled", "not among the plugins allowed"


def _refuse_clashes(found: list[tuple[PluginRecord, EntryPoint]]) -> None:
    """Of the entry points with one name, the first that is not disabled keeps it."""
    first: dict[str, PluginRecord] = {}
    for record, point in found:
        if record.status == "ok" and first.setdefault(point.name, record) is not record:
            other = first[point.name]
            record.fail(
                f"the name {point.name!r} belongs to {other.distribution} ({other.target}) already; "
                f"{record.distribution} ({record.target}) must choose another or be uninstalled"
            )


def _contract_error(module: Any, callers: list[pluggy.HookCaller]) -> str:
    """What in a plugin breaks the contract, or empty."""
    version = getattr(module, "dovetail_api", None)
    if version is None and callers:
        return f"declares no API version; write dovetail_api = {hookspecs.API_VERSION} beside its hooks"
    if version not in (None, hookspecs.API_VERSION):
        return f"is written for plugin API {version}; this Dovetail has {hookspecs.API_VERSION}"
    for caller in callers:
        for implementation in (found for found in caller.get_hookimpls() if found.plugin is module):
            if not caller.has_spec() and not implementation.optionalhook:
                hooks = [name for name in dir(hookspecs) if hasattr(getattr(hookspecs, name), "dovetail_spec")]
                return f"implements an unknown hook {caller.name!r}{did_you_mean(caller.name, hooks)}"
            if implementation.wrapper or implementation.hookwrapper:
                return f"hook {caller.name!r} is a wrapper; hooks here are called one by one and cannot wrap others"
    return ""


def _with_wanted_arguments(implementation: Any) -> Any:
    return lambda **arguments: implementation.function(*(arguments[name] for name in implementation.argnames))
