"""Loading plugins and calling their hooks, each isolated from the failures of the others."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pluggy

from dovetail.errors import DovetailError
from dovetail.files import seen
from dovetail.installed import DISTRIBUTION, EntryPoint
from dovetail.plugin import hookspecs
from dovetail.plugin.loading.backend_files import backend_files, formats_of, misnamed_file, names_file
from dovetail.plugin.loading.discovery import PluginRecord, discover
from dovetail.plugin.loading.isolation import PluginWarning, described, foreign_output
from dovetail.plugin.loading.registry import OWN, Registry
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.planning.request import Request
    from dovetail.plugin.backend import BackendFormat
    from dovetail.plugin.loading.registry import Table
    from dovetail.plugin.steps import StepList

_ALLOW_VARIABLE = "DOVETAIL_PLUGINS"
_OBSERVING = ("before_pass", "after_pass", "pass_failed")  # observers cannot fail a compilation


class _Manager(pluggy.PluginManager):
    """pluggy's manager, which looks for hooks only among what a module has: every compilation registers all plugins."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        """Return the options of a hook, or None for any other attribute."""
        if isinstance(plugin, ModuleType) and not hasattr(vars(plugin).get(name), f"{self.project_name}_impl"):
            return None
        return super().parse_hookimpl_opts(plugin, name)


class PluginSet:
    """The plugins of one compilation and the components that they registered.

    Attributes:
        registry: The components of all working plugins.
        plugins: The record of every plugin found, by name.
    """

    def __init__(self) -> None:
        self.registry = Registry()
        with self.registry.on_behalf_of(DISTRIBUTION):
            self.registry.command(
                "plugins",
                "dovetail.cli.plugins:PLUGINS",
                "machine",
                "List plugins, what each of them brings, and what does not load.",
            )
        self.plugins: list[PluginRecord] = []
        self._manager = _Manager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._added: dict[str, list[tuple[Table, str]]] = {}

    @property
    def broken(self) -> list[PluginRecord]:
        """The plugins that failed."""
        return [record for record in self.plugins if record.status == "broken"]

    def provenance(self, backend: str) -> dict[str, Any]:
        """Return the fields of `PlannedBackend` about the origin of a backend; empty for one without a distribution."""
        if backend not in self.registry.backend:
            return {}
        owner = self.registry.backend.entry(backend).owner
        if names_file(owner):
            digest = hashlib.sha256(seen(Path(owner)).read_bytes()).hexdigest()
            return {"distribution": Path(owner).name, "sha256": digest, "path": owner}
        brought = next((f"{owner} {r.version}" for r in self.plugins if r.distribution == owner and r.version), "")
        return {"distribution": brought, "contract": hookspecs.API_VERSION} if brought else {}

    def attach(self, plugin: Any, name: str) -> None:
        """Add a plugin without a distribution: a module, or an object whose methods are hooks, for this set only.

        The same contract applies as to an installed plugin.

        Args:
            plugin: Has `dovetail_api`, and functions marked `@hookimpl`.
            name: Its name in messages.

        Raises:
            DovetailError: The name is taken, or the plugin violates the contract.
        """
        if any(record.name == name for record in self.plugins):
            raise DovetailError(f"there is a plugin {name!r} already", "choose another name")
        record = PluginRecord(name, OWN, "", getattr(plugin, "__name__", type(plugin).__qualname__))
        self._bring([(record, plugin)])
        if record.status != "ok":
            raise DovetailError(str(record), "see docs/plugins.md for what a plugin may do")
        self.plugins.append(record)

    def call(self, hook: str, *extra: Callable[..., object], **arguments: Any) -> None:
        """Call the functions in `extra`, then a hook of all working plugins.

        Args:
            hook: Name of the hook.
            extra: Functions of the caller that take part in this call as implementations of the hook.
            arguments: The arguments of the hook.

        Raises:
            DovetailError: A plugin deliberately rejects the call where its hook may, or tries to end the program.
        """
        caller: pluggy.HookCaller = getattr(self._manager.hook, hook)
        caller.call_extra(extra, arguments) if extra else caller(**arguments)

    def prepare(self) -> None:
        """Let plugins prepare for a model that is about to be opened.

        Raises:
            DovetailError: A plugin's component is at fault.
        """
        self.call("before_opening", registry=self.registry)

    def extend(self, model: Model) -> Model:
        """Let plugins extend a model that was just opened, and return it.

        Raises:
            DovetailError: A plugin's component is at fault.
        """
        self.call("opened", model=model, registry=self.registry)
        return model

    def configure(self, pipeline: StepList, request: Request) -> None:
        """Let plugins configure `pipeline`; the changes of a plugin that raises are undone.

        Raises:
            DovetailError: A plugin deliberately rejects the request, or tries to end the program.
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
        """Register the components of plugins; plugins that violate the contract or fail are marked as broken."""
        earlier = self._manager.get_plugins()
        # pluggy calls the last registered plugin first; registering in reverse runs hooks by name, and keeps
        # tryfirst/trylast.
        for record, module in reversed(modules):
            self._attach(record, module)
        # Call all `register` hooks before reading backend files: a file may need the format of any other plugin.
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
            else:
                with self._blaming(record):
                    for kind, form in getattr(module, "dovetail_kinds", {}).items():
                        self.registry.declare(kind, form)
            for caller in callers:
                for implementation in caller.get_hookimpls():
                    if implementation.plugin is module:
                        isolated = self._isolated(record, implementation, caller.name)
                        implementation.function = isolated  # type: ignore[misc]  # the only way to wrap a single implementation

    def _isolated(self, record: PluginRecord, implementation: pluggy.HookImpl, hook: str) -> Callable[..., None]:
        """Wrap one implementation of a hook: an exception is reported under its name, and disables only its plugin."""
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
        """Instantiate the backend file formats that a plugin added; if one is broken, unregister all that it added."""
        names = [name for table, name in added if table is self.registry.backend_format]
        with self._blaming(record), self.registry.on_behalf_of(record.distribution, added):
            formats_of(self.registry, names)

    def _add_files(
        self, record: PluginRecord, module: Any, added: list[tuple[Table, str]], formats: list[BackendFormat]
    ) -> None:
        """Register the backend files in the plugin's package; on failure, unregister all that the plugin added."""
        with self._blaming(record), self.registry.on_behalf_of(record.distribution, added):
            files = backend_files(module, formats)
            for name, target in files:
                self.registry.backend(name, target)
            if not files and not record.hooks and (why := misnamed_file(module, formats)):
                raise DovetailError(why)

    @contextmanager
    def _blaming(self, record: PluginRecord, what: str = "register") -> Iterator[None]:
        """Keep a plugin's output out of standard output, and mark the plugin as broken if the block raises."""
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
        strict: Raise on the first broken plugin instead of recording it.

    Raises:
        UsageError: `block` or `allow` names a plugin that is not installed.
        DovetailError: A plugin is broken, and `strict` is set.
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
    """Return how a plugin violates the contract, or empty."""
    version = getattr(module, "dovetail_api", None)
    if version is None and callers:
        return f"declares no API version; write dovetail_api = {hookspecs.API_VERSION} beside its hooks"
    if version not in (None, hookspecs.API_VERSION):
        older = isinstance(version, int) and version > hookspecs.API_VERSION
        upgrade = f"pip install --upgrade {DISTRIBUTION}"
        way = upgrade if older else "install a version of it that was built for this one"
        return f"is written for plugin API {version}; this Dovetail has {hookspecs.API_VERSION}: {way}"
    for caller in callers:
        for implementation in (found for found in caller.get_hookimpls() if found.plugin is module):
            if not caller.has_spec() and not implementation.optionalhook:
                hooks = [name for name in dir(hookspecs) if hasattr(getattr(hookspecs, name), "dovetail_spec")]
                return f"implements an unknown hook {caller.name!r}{did_you_mean(caller.name, hooks)}"
            if implementation.wrapper or implementation.hookwrapper:
                return f"hook {caller.name!r} is a wrapper; hooks here are called one by one and cannot wrap others"
    return ""
