"""The registry of plugin components by kind and name, imported on first use."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from dovetail.errors import DovetailError
from dovetail.installed import package_folder, required_by
from dovetail.lazy_imports import warn_of_old_name
from dovetail.planning.placement import HOST
from dovetail.plugin import renamed
from dovetail.plugin.loading.isolation import PluginWarning, described, foreign_output
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_WORDS = re.compile(rf"{_NAME.pattern}( {_NAME.pattern})?")
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

# Patterns of valid targets, with their description for messages.
_CODE = {"module:Attribute": re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")}
_FILE = {"package:path/to/file.yaml": re.compile(r"[A-Za-z_][\w.]*:[\w][\w./\-]*\.\w+")}
_PATH = {"/path/of/a.file": re.compile(r"(?:[A-Za-z]:)?[/\\].*\.\w+")}  # a backend file that a user names
_FILE_OR_CLASS = {**_FILE, "module:Class": _CLASS, **_PATH}  # only a file name has a dot after the colon
_TEXT = {"pass,pass{option=1}": re.compile(r".*\S.*", re.DOTALL)}

OWN = "this program"
"""The owner of components that no distribution brings."""

KINDS = {
    **dict.fromkeys(("pass", "strategy", "frontend", "edit", "partitioner", "solver", "engine", "emitter"), _CODE),
    **dict.fromkeys(("executor", "observer", "conversion", "fact", "backend_format", "result_store", "command"), _CODE),
    **dict.fromkeys(("folder_kind", "invariant", "option", "session_start"), _CODE),
    **dict.fromkeys(("policy", "cost_table", "conformance"), _FILE),
    "backend": _FILE_OR_CLASS,
    "pipeline": _TEXT,
}
"""Kinds of plugin components, each with the forms of its targets; a text target is the component itself."""

COMMAND_GROUPS = {
    "compile": "compile and run",
    "understand": "understand a result",
    "measure": "measure accuracy and time",
    "extend": "extend",
    "machine": "this machine",
}
"""The groups of commands in the help, in its order, each with its heading."""

FORMS = {"code": _CODE, "file": _FILE}
"""The forms of kinds that a distribution declares."""


class Registration(NamedTuple):
    """One registered component.

    Attributes:
        name: Its name for users.
        target: `module:Attribute` of code, `package:path/to/file.yaml` of data, the text of a pipeline.
        owner: The distribution that registered it.
        for_backend: The backend that a pass is for, if that is known before it is loaded; else empty.
        group: Of a command, the group of the help that lists it.
        summary: Of a command, one sentence for the help.
    """

    name: str
    target: str
    owner: str
    for_backend: str = ""
    group: str = ""
    summary: str = ""


class UnknownKindError(DovetailError, AttributeError):
    """A component of an unknown kind is registered or requested."""


class Table:
    """The components of one kind: call it to register, index it to load, iterate over it for sorted names."""

    _names = _NAME

    def __init__(self, kind: str, forms: Mapping[str, re.Pattern[str]], registry: Registry):
        self.kind = kind
        self._forms = forms
        self._registry = registry
        self._entries: dict[str, Registration] = {}
        self._rivals: dict[str, list[Registration]] = {}  # backends registered by several distributions under one name

    def __call__(self, name: str, target: str, for_backend: str = "") -> None:
        """Register `target` under `name`.

        Args:
            name: Its name for users.
            target: Where it is: of the form that the kind has.
            for_backend: Of a pass, its `Pass.for_backend`: compilations without this backend do not even import it.

        Raises:
            DovetailError: The target is malformed, or the name is taken; while a plugin registers, after all of it.
        """
        try:
            if for_backend and self.kind != "pass":
                raise DovetailError(f"{self.kind} {name!r} is registered for a backend, which only a pass may be")
            self._register(Registration(name, target, self._registry.owner, for_backend))
        except DovetailError as error:
            self._registry.at_fault(error)

    def _register(self, entry: Registration) -> None:
        name, target = entry.name, entry.target
        if not self._names.fullmatch(name):
            raise DovetailError(f"{self.kind} name {name!r} may hold letters, digits, '-', '_' and '.' only")
        known_form = isinstance(target, str) and any(form.fullmatch(target) for form in self._forms.values())
        if not known_form or ".." in target and self._forms is not _TEXT:
            forms = " or ".join(map(repr, self._forms))
            raise DovetailError(f"target {target!r} of {self.kind} {name!r} is not of the form {forms}")
        taken = self._entries.get(name)
        if self.kind == "backend" and self._is_rival(entry, taken):
            rivals = self._rivals.setdefault(name, [taken] if taken else [])
            self._entries.pop(name, None)
            rivals.append(entry)
            self._registry._added.append((self, name))
            return
        if taken and taken != entry:
            raise DovetailError(
                f"{self.kind} {name!r} is registered by {taken.owner} ({taken.target}) and by {entry.owner} ({target})",
                "uninstall one of them, or leave one out with --no-plugin",
            )
        if not taken:
            self._entries[name] = entry
            self._registry._added.append((self, name))

    def __getitem__(self, name: str) -> Any:
        """Load the component `name`: the attribute of a module, the Traversable of a data file, or a text.

        Raises:
            DovetailError: The name is not registered, or its module does not import.
        """
        entry = self.entry(name)
        if self._forms is _TEXT:
            return entry.target
        try:
            if self.is_file(name):
                return _resource(entry.target)
            with foreign_output(self.title(name)):
                return _attribute(entry.target)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise DovetailError(
                f"{self.title(name)} cannot be loaded from {entry.target}: {described(error)}",
                f"repair or reinstall {entry.owner}, or leave it out with --no-plugin",
            ) from error

    def usable(
        self, load: Callable[[str], T], needed: Collection[str] | None = (), of: Iterable[str] | None = None
    ) -> dict[str, T]:
        """Return all components that load, by name. Another one is left out with a warning, which comes once.

        Args:
            load: Loads the component of a name, and checks it.
            needed: Distributions that are needed now: without a component of theirs, or of what they require, a
                result would be another one. None if all are.
            of: The names of those to load, by default all.

        Raises:
            DovetailError: A component that is needed does not load.
        """
        found = {}
        for name in list(self if of is None else of):
            try:
                found[name] = load(name)
            except DovetailError as error:
                owner = self.entry(name).owner
                if needed is None or owner in required_by((OWN, *needed)):
                    raise
                warnings.warn(f"{error.message}; it is left out", PluginWarning, stacklevel=2)
                self.drop(name, owner)
        return found

    def is_file(self, name: str) -> bool:
        """Return whether `name` is registered as a file, not as code."""
        target = self.entry(name).target
        return self._forms is _FILE or self._forms is _FILE_OR_CLASS and not _CLASS.fullmatch(target)

    def drop(self, name: str, owner: str = "") -> None:
        """Unregister an invalid component, so that it is skipped and reported only once.

        Args:
            name: Its name.
            owner: The distribution that registered it, if several may have.
        """
        rivals = [entry for entry in self._rivals.pop(name, ()) if entry.owner != owner]
        if not rivals:
            self._entries.pop(name, None)
        elif len(rivals) == 1:
            self._entries[name] = rivals[0]
        else:
            self._rivals[name] = rivals

    def is_clash(self, name: str) -> bool:
        """Return whether a name is left out because several distributions registered it."""
        return name in self._rivals

    def clashes(self) -> list[DovetailError]:
        """Return an error, with a hint, for each name left out because several distributions registered it."""
        return [self._clash(name) for name in sorted(self._rivals)]

    def _is_rival(self, entry: Registration, taken: Registration | None) -> bool:
        """Return whether another distribution has this backend name; `host`, which all need, keeps its owner."""
        known = [*self._rivals.get(entry.name, ()), *([taken] if taken else ())]
        return entry.name != HOST and bool(known) and all(other.owner != entry.owner for other in known)

    def _clash(self, name: str) -> DovetailError:
        rivals = self._rivals[name]
        brought = " and ".join(f"by {entry.owner} ({entry.target})" for entry in rivals)
        ways = " or ".join(f"--no-plugin {entry.owner}" for entry in rivals)
        return DovetailError(
            f"{self.kind} {name!r} is registered {brought}, so none of them is taken",
            f"choose one by leaving out: {ways}",
        )

    def get(self, name: str, default: Any = None) -> Any:
        """Load the component `name`, or return `default` if there is none."""
        return self[name] if name in self._entries else default

    def entry(self, name: str) -> Registration:
        """Return the registration of `name`, without loading it.

        Raises:
            DovetailError: The name is not registered.
        """
        if name in self._entries:
            return self._entries[name]
        if name in self._rivals:
            raise self._clash(name)
        absent = "".join(f"; {text}" for text in self._registry.absent)
        installed = "installed backends" if self.kind == "backend" else "installed"
        raise DovetailError(
            f"unknown {self.kind} {name!r}{did_you_mean(name, self._entries)}",
            f"{installed}: {', '.join(self) or 'none'}; another one comes with the distribution that brings it{absent}",
        )

    def title(self, name: str) -> str:
        """Return kind, name and distribution of a component, for messages: `edit 'unit-conv' of dovetail-acme`."""
        return f"{self.kind.replace('_', ' ')} '{name}' of {self.entry(name).owner}"

    @property
    def entries(self) -> list[Registration]:
        """Return all registrations, sorted by name."""
        return [self._entries[name] for name in self]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


class CommandTable(Table):
    """The commands of the program `dovetail`; the help lists them from here, without importing them."""

    _names = _WORDS

    def __call__(self, name: str, target: str, group: str, summary: str) -> None:  # type: ignore[override]
        """Register a command.

        Args:
            name: What users type: `hello`. One of a vendor has the vendor's word before it: `acme report`.
            target: The command (`dovetail.plugin.Command`), as `module:Attribute`.
            group: The group of the help that lists it: a key of `COMMAND_GROUPS`.
            summary: One sentence for the help.

        Raises:
            DovetailError: As for other components; the group does not exist, or the summary is empty.
        """
        try:
            if not summary:
                raise DovetailError(f"command {name!r} is registered without a summary")
            if group not in COMMAND_GROUPS:
                known = ", ".join(COMMAND_GROUPS)
                raise DovetailError(f"command {name!r} is registered in the group {group!r}; there are {known}")
            self._register(Registration(name, target, self._registry.owner, group=group, summary=summary))
        except DovetailError as error:
            self._registry.at_fault(error)


class Registry:
    """One table per kind. Every set of plugins has its own registry; there is no global one.

    Registering under an unknown kind is an error.

    Attributes:
        owner: The distribution on whose behalf components are being registered.
    """

    command: CommandTable

    def __init__(self, owner: str = OWN):
        self.owner = owner
        self._absent: list[str] = []
        self._faults: list[DovetailError] | None = None  # of the plugin that registers
        self._withdrawn: list[tuple[str, Registration]] = []
        self._added: list[tuple[Table, str]] = []
        for kind, forms in KINDS.items():
            # `pass` is a keyword of Python.
            made = CommandTable if kind == "command" else Table
            setattr(self, "pass_" if kind == "pass" else kind, made(kind, forms, self))

    @property
    def absent(self) -> list[str]:
        """The plugins whose components are unavailable, because they are broken or disabled, each with the reason."""
        return self._absent

    @property
    def withdrawn(self) -> list[tuple[str, Registration]]:
        """Kind and registration of what plugins at fault had registered."""
        return self._withdrawn

    @property
    def tables(self) -> list[Table]:
        """Return all tables."""
        return [table for table in vars(self).values() if isinstance(table, Table)]

    def declare(self, kind: str, form: str) -> None:
        """Add a kind that a distribution reads, so that any plugin may register components of it.

        Args:
            kind: The name of its table.
            form: What its targets are: `code` or `file`.

        Raises:
            DovetailError: The name is taken, or the form is another one.
        """
        if form not in FORMS or not kind.isidentifier() or kind.startswith("_") or kind in dir(self):
            raise DovetailError(
                f"the kind {kind!r} of the form {form!r} cannot be declared",
                f"give it a name that no kind has, and one of the forms {', '.join(FORMS)}",
            )
        setattr(self, kind, Table(kind, FORMS[form], self))

    def table(self, kind: str) -> Table:
        """Return the table of a kind that a distribution declares, or an empty one where none does."""
        found = vars(self).get(kind)
        return found if isinstance(found, Table) else Table(kind, _CODE, self)

    def __getattr__(self, name: str) -> Table:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in renamed.KINDS:
            new, until = renamed.KINDS[name]
            warn_of_old_name(f"the kind {name!r} of {self.owner}", repr(new), until)
            return self.table(new)
        known = [attribute for attribute, value in vars(self).items() if isinstance(value, Table)]
        error = UnknownKindError(
            f"there is no kind {name!r}{did_you_mean(name, known)}; a plugin may register {', '.join(known)}",
            "see docs/plugins.md for what each kind holds, and which distribution brings it",
        )
        self.at_fault(error)
        return cast("Table", lambda name, target: None)  # the rest of the plugin's faults is found, too

    def at_fault(self, error: DovetailError) -> None:
        """Keep a fault of the plugin that registers.

        Raises:
            DovetailError: The fault, if no plugin does.
        """
        if self._faults is None:
            raise error
        self._faults.append(error)

    @contextmanager
    def on_behalf_of(self, owner: str, added: list[tuple[Table, str]] | None = None) -> Iterator[None]:
        """Register for `owner`; if the block raises, unregister everything that it and earlier blocks added.

        Args:
            owner: The distribution.
            added: Registrations of earlier blocks for the same plugin; those of this block are appended.
        """
        before = self.owner, self._added, self._faults
        self.owner, self._added, self._faults = owner, [] if added is None else added, []
        try:
            try:
                yield
            except DovetailError as error:
                self._faults.append(error)
            if self._faults:
                raise _together(self._faults)
        except BaseException:
            for table, name in self._added:
                self._withdrawn += [(table.kind, table.entry(name))] if name in table else []
                table.drop(name, owner)
            self._added.clear()
            raise
        finally:
            self.owner, self._added, self._faults = before


def _together(faults: Sequence[DovetailError]) -> DovetailError:
    """Return the faults of a plugin as one error."""
    if len(faults) == 1:
        return faults[0]
    return DovetailError(f"{len(faults)} faults: {'; '.join(one.message for one in faults)}", faults[0].hint)


def problem_of(registration: Registration) -> str:
    """Return why the target of a registration does not load; empty if it does."""
    try:
        if _CODE["module:Attribute"].fullmatch(registration.target) and "/" not in registration.target:
            _attribute(registration.target)
        elif _FILE["package:path/to/file.yaml"].fullmatch(registration.target):
            _resource(registration.target)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return described(error)
    return ""


def _attribute(target: str) -> Any:
    module, _, path = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _resource(target: str) -> Traversable:
    if Path(target).is_absolute():
        return Path(target)
    package, _, path = target.partition(":")
    found = package_folder(package).joinpath(*path.split("/"))
    if not found.is_file():
        raise FileNotFoundError(f"{package} holds no file {path}")
    return found
