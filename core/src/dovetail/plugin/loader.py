"""Load plugins and call their hooks, each isolated from the failures of the others."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pluggy

from dovetail.errors import DovetailError
from dovetail.plugin import hookspecs
from dovetail.plugin.backend_files import backend_files, formats_of, misnamed_file
from dovetail.plugin.commands import CORE_COMMANDS
from dovetail.plugin.discovery import PluginRecord, discover
from dovetail.plugin.isolation import PluginWarning, described, foreign_output
from dovetail.plugin.registry import Registry
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from dovetail.ir.model import Model
    from dovetail.passes import Pipeline, Request
    from dovetail.plugin.backend import BackendFormat
    from dovetail.plugin.registry import Table

_ALLOW_VARIABLE = "DOVETAIL_PLUGINS"
_THIS_PROGRAM = "this program"
_OBSERVING = ("before_pass", "after_pass", "pass_failed")  # they have no say, so that no error of theirs is one


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
        self._added: dict[str, list[tuple[Table, str]]] = {}

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

    def call(self, hook: str, *extra: Callable[..., object], **arguments: Any) -> None:
        """Call a hook of all sound plugins, and `extra` before them.

        Args:
            hook: Name of the hook.
            extra: Functions of the caller that take part in this call as implementations do.
            arguments: The arguments of the hook.

        Raises:
            DovetailError: A plugin refuses on purpose where its hook may, or tries to end the program.
        """
        caller: pluggy.HookCaller = getattr(self._manager.hook, hook)
        caller.call_extra(extra, arguments) if extra else caller(**arguments)

    def prepare(self) -> None:
        """Let plugins get ready for a model that is about to be opened.

        Raises:
            DovetailError: What a plugin brings is at fault.
        """
        self.call("before_opening", registry=self.registry)

    def extend(self, model: Model) -> Model:
        """Let plugins add what belongs to a model that was just opened, and return it.

        Raises:
            DovetailError: What a plugin brings is at fault.
        """
        self.call("opened", model=model, registry=self.registry)
        return model

    def configure(self, pipeline: Pipeline, request: Request) -> None:
        """Let plugins configure `pipeline`; a plugin that raises loses its changes.

        Raises:
            DovetailError: A plugin refuses the request on purpose, or tries to end the program.
        """
        self.call("configure_pipeline", pipeline=pipeline, request=request)

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
        earlier = self._manager.get_plugins()
        # pluggy calls the last registered first; registered backwards, hooks run by name and obey tryfirst and trylast.
        for record, module in reversed(modules):
            self._attach(record, module)
        # What one plugin registers may be needed to read the files of another, whatever their names are.
        self._manager.subset_hook_caller("register", earlier)(registry=self.registry)
        for record, _ in modules:
            if record.status == "ok":
                self._check_formats(record, self._added[record.name])
        formats = formats_of(self.registry)
        for record, module in modules:
            if record.status == "ok":
                self._add_files(record, module, self._added.pop(record.name), formats)
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
            self._added[record.name] = []
            if problem := _contract_error(module, callers):
                record.fail(problem)
                self._manager.unregister(module)
            for caller in callers:
                for implementation in caller.get_hookimpls():
                    if implementation.plugin is module:
                        isolated = self._isolated(record, implementation, caller.name)
                        implementation.function = isolated  # type: ignore[misc]  # the only place to wrap just one

    def _isolated(self, record: PluginRecord, implementation: pluggy.HookImpl, hook: str) -> Callable[..., None]:
        """Wrap one implementation of a hook: whatever it raises is named, and costs its plugin alone."""
        function, names = implementation.function, implementation.argnames

        def register(*arguments: Any) -> None:
            if record.status == "ok":
                with self._blaming(record), self.registry.on_behalf_of(record.distribution, self._added[record.name]):
                    function(*arguments)

        def call(*arguments: Any) -> None:
            if record.status != "ok":
                return
            pipeline = dict(zip(names, arguments)).get("pipeline")
            steps = list(pipeline.steps) if pipeline is not None else []
            try:
                with foreign_output(record.title):
                    function(*arguments)
            except KeyboardInterrupt:
                raise
            except Exception as error:
                if isinstance(error, DovetailError) and hook not in _OBSERVING:
                    raise
                record.fail(f"{hook} raised {described(error)}")
                if pipeline is not None:
                    pipeline.steps[:] = steps
                warnings.warn(str(record), PluginWarning, stacklevel=4)
            except BaseException as error:
                raise DovetailError(
                    f"{record.title}: its hook {hook} tries to end the program ({described(error)})",
                    f"report it to {record.distribution}, or leave the plugin out with --no-plugin {record.name}",
                ) from error

        return register if hook == "register" else call

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
    plugins = PluginSet()
    plugins._load(discover(block, allow))
    plugins.registry.absent.extend(record.absence for record in plugins.plugins if record.status != "ok")
    for clash in plugins.registry.backend.clashes():
        warnings.warn(f"{clash.message}; {clash.hint}", PluginWarning, stacklevel=2)
    for record in plugins.broken:
        if strict:
            raise DovetailError(str(record))
        warnings.warn(str(record), PluginWarning, stacklevel=2)
    return plugins


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
