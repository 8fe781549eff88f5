"""What plugins bring, by kind and name, imported when first asked for."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import DovetailError
from dovetail.plugin.isolation import described, foreign_output
from dovetail.suggestions import did_you_mean

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["CODE_KINDS", "DATA_KINDS", "MIXED_KINDS", "TEXT_KINDS", "Entry", "Registry", "Table", "UnknownKindError"]

CODE_KINDS = (
    "pass", "strategy", "frontend", "edit", "region_former", "solver", "engine", "emitter", "executor", "observer",
    "conversion", "fact", "backend_format", "result_store", "command", "option",
)  # fmt: skip
DATA_KINDS = ("policy", "cost_table")
MIXED_KINDS = ("backend",)
"""Kinds of which each thing is a file or a class; only the name of a file has a dot behind the colon."""

TEXT_KINDS = ("pipeline",)
"""Kinds of which each thing is the registered text itself."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_DATA = re.compile(r"[A-Za-z_][\w.]*:[\w][\w./\-]*\.\w+")
_TEXT = re.compile(r".*\S.*", re.DOTALL)


class Entry(NamedTuple):
    """One registered thing.

    Attributes:
        name: What users write.
        target: `module:Attribute` of code, `package:path/to/file.yaml` of data, the text of a pipeline.
        owner: The distribution that registered it.
    """

    name: str
    target: str
    owner: str


class UnknownKindError(DovetailError, AttributeError):
    """Somebody registers or asks for something of a kind that nothing reads."""


class Table:
    """Everything of one kind: call it to register, index it to load, iterate it for sorted names."""

    def __init__(self, kind: str, registry: Registry):
        self.kind = kind
        self._registry = registry
        self._entries: dict[str, Entry] = {}

    def __call__(self, name: str, target: str) -> None:
        """Register `target` under `name`.

        Raises:
            DovetailError: The target is malformed, or another registration has the name.
        """
        if not _NAME.fullmatch(name):
            raise DovetailError(f"{self.kind} name {name!r} may hold letters, digits, '-', '_' and '.' only")
        known_form = any(form.fullmatch(target) for form in self._forms.values())
        if not known_form or ".." in target and self.kind not in TEXT_KINDS:
            forms = " or ".join(map(repr, self._forms))
            raise DovetailError(f"target {target!r} of {self.kind} {name!r} is not of the form {forms}")
        entry = Entry(name, target, self._registry.owner)
        taken = self._entries.get(name)
        if taken and taken != entry:
            raise DovetailError(
                f"{self.kind} {name!r} is registered by {taken.owner} ({taken.target}) and by {entry.owner} ({target})",
                "uninstall one of them, or leave one out with --no-plugin",
            )
        self._entries[name] = entry

    def __getitem__(self, name: str) -> Any:
        """Load what is registered as `name`: the attribute of a module, the Traversable of a data file, or a text.

        Raises:
            DovetailError: Nobody registered the name, or its module does not import.
        """
        entry = self.entry(name)
        if self.kind in TEXT_KINDS:
            return entry.target
        try:
            if self.is_file(name):
                return _resource(entry.target)
            with foreign_output(f"{self.kind} {name!r} of {entry.owner}"):
                return _attribute(entry.target)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise DovetailError(
                f"{self.kind} {name!r} of {entry.owner} cannot be loaded from {entry.target}: {described(error)}",
                f"repair or reinstall {entry.owner}, or leave it out with --no-plugin",
            ) from error

    def is_file(self, name: str) -> bool:
        """Whether `name` stands for a file, and not for code."""
        target = self.entry(name).target
        return self.kind in DATA_KINDS or self.kind in MIXED_KINDS and not _CLASS.fullmatch(target)

    @property
    def _forms(self) -> dict[str, re.Pattern[str]]:
        """What a target of this kind looks like, with how it is called in messages."""
        if self.kind in CODE_KINDS:
            return {"module:Attribute": _CODE}
        if self.kind in TEXT_KINDS:
            return {"pass,pass{option=1}": _TEXT}
        file = {"package:path/to/file.yaml": _DATA}
        return file if self.kind in DATA_KINDS else {**file, "module:Class": _CLASS}

    def drop(self, name: str) -> None:
        """Take a registration back: what turned out to be at fault is left out, and is reported once."""
        del self._entries[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Load what is registered as `name`, or return `default` if nothing is."""
        return self[name] if name in self._entries else default

    def entry(self, name: str) -> Entry:
        """The registration of `name`, without loading it.

        Raises:
            DovetailError: Nobody registered the name.
        """
        if name in self._entries:
            return self._entries[name]
        raise DovetailError(f"unknown {self.kind} {name!r}{did_you_mean(name, self._entries)}", self._way_out(name))

    def _way_out(self, name: str) -> str:
        known = ", ".join(self) or "none"
        if self.kind == "backend":
            return f"installed backends: {known}; another one comes with the distribution that brings it"
        return f"installed: {known}"

    @property
    def entries(self) -> list[Entry]:
        """All registrations, sorted by name."""
        return [self._entries[name] for name in self]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


class Registry:
    """One table per kind. Every set of plugins has its own registry; there is no global one.

    A kind that nothing in Dovetail reads has no table: registering something under it is an error.

    Attributes:
        owner: The distribution on whose behalf things are being registered.
    """

    def __init__(self, owner: str = "this program"):
        self.owner = owner
        self.pass_ = Table("pass", self)
        self.strategy = Table("strategy", self)
        self.pipeline = Table("pipeline", self)
        self.frontend = Table("frontend", self)
        self.edit = Table("edit", self)
        self.region_former = Table("region_former", self)
        self.backend = Table("backend", self)
        self.backend_format = Table("backend_format", self)
        self.solver = Table("solver", self)
        self.engine = Table("engine", self)
        self.emitter = Table("emitter", self)
        self.observer = Table("observer", self)
        self.conversion = Table("conversion", self)
        self.policy = Table("policy", self)
        self.executor = Table("executor", self)
        self.fact = Table("fact", self)
        self.cost_table = Table("cost_table", self)
        self.result_store = Table("result_store", self)
        self.command = Table("command", self)
        self.option = Table("option", self)

    @property
    def tables(self) -> list[Table]:
        """All tables."""
        return [table for table in vars(self).values() if isinstance(table, Table)]

    def __getattr__(self, name: str) -> Table:
        if name.startswith("_"):
            raise AttributeError(name)
        known = [attribute for attribute, value in vars(self).items() if isinstance(value, Table)]
        raise UnknownKindError(
            f"there is no kind {name!r}{did_you_mean(name, known)}; a plugin may register {', '.join(known)}",
            "see docs/plugins.md for what each kind holds",
        )

    @contextmanager
    def on_behalf_of(self, owner: str, added: list[tuple[Table, str]] | None = None) -> Iterator[None]:
        """Register for `owner`; if the block raises, everything that it and earlier blocks added is taken back.

        Args:
            owner: The distribution.
            added: What earlier blocks added for the same plugin; gets what this one adds.
        """
        before, known = self.owner, [set(table._entries) for table in self.tables]
        added = [] if added is None else added
        self.owner = owner
        try:
            yield
        except BaseException:
            for table, name in [*added, *self._since(known)]:
                del table._entries[name]
            added.clear()
            raise
        else:
            added += self._since(known)
        finally:
            self.owner = before

    def _since(self, known: list[set[str]]) -> list[tuple[Table, str]]:
        """What was registered since `known` held all names."""
        return [(table, name) for table, names in zip(self.tables, known) for name in table._entries.keys() - names]


def _attribute(target: str) -> Any:
    module, _, path = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _resource(target: str) -> Traversable:
    from importlib import resources

    package, _, path = target.partition(":")
    found = resources.files(package).joinpath(*path.split("/"))
    if not found.is_file():
        raise FileNotFoundError(f"{package} holds no file {path}")
    return found
