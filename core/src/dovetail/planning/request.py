"""Requests: all user choices of a compilation, as data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, UsageError
from dovetail.planning.quantized_value import ObserverChoice
from dovetail.text import plain_value

if TYPE_CHECKING:
    from dovetail.planning.plan import Plan

__all__ = ["OBSERVER", "STRATEGY", "BackendChoice", "PinOrigin", "Request"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")


STRATEGY = "strategy"
"""Option common to all backends: the strategy that claims nodes for it."""

OBSERVER = "observer"
"""Option common to all backends: the observer for every value calibrated on data, overriding the backend file.
`observer.KEY=value` sets an option of this observer."""


@dataclass(frozen=True)
class BackendChoice:
    """A backend and its options, as text: `bpu-int8:march=bayes,strategy=roles`.

    Attributes:
        name: Name of the backend.
        options: Options as text; the backend file defines their types. (A version such as `10.10` is not a number.)
            `strategy` and `observer` are common to all backends: see `STRATEGY` and `OBSERVER`.
    """

    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | BackendChoice) -> BackendChoice:
        """Parse `NAME[:key=value,...]`; a `BackendChoice` is returned unchanged.

        Raises:
            UsageError: The text is malformed.
        """
        if isinstance(text, BackendChoice):
            return text
        name, colon, rest = text.partition(":")
        if not _NAME.fullmatch(name):
            raise UsageError(f"{text!r} does not start with the name of a backend", "write NAME or NAME:key=value,...")
        options: dict[str, str] = {}
        for pair in rest.split(",") if colon else ():
            key, equals, value = (part.strip() for part in pair.partition("="))
            if not (equals and value and _KEY.fullmatch(key)):
                raise UsageError(f"{pair!r} in backend {text!r} is not key=value", "write NAME:key=value,key=value")
            if key in options:
                raise UsageError(f"option {key!r} is given twice in backend {text!r}")
            options[key] = value
        return cls(name, options)

    @property
    def strategy(self) -> str:
        """The strategy that the user chose for this backend; empty for the backend's own."""
        return self.options.get(STRATEGY, "")

    @property
    def observer(self) -> ObserverChoice | None:
        """The observer that the user chose for this backend; None to use the backend's observer for each type.

        Raises:
            UsageError: Observer options are given without an observer.
        """
        inner = f"{OBSERVER}."
        options = tuple((k.removeprefix(inner), plain_value(v)) for k, v in self.options.items() if k.startswith(inner))
        if options and OBSERVER not in self.options:
            raise UsageError(
                f"backend '{self}' has an option for an observer, and chooses none",
                f"write {self.name}:{OBSERVER}=NAME,{inner}{options[0][0]}={options[0][1]}",
            )
        return ObserverChoice(self.options[OBSERVER], options, str(self)) if OBSERVER in self.options else None

    @property
    def observer_options(self) -> dict[str, str]:
        """The options that choose an observer; plans keep them, because emitted files record the calibration."""
        return {key: value for key, value in self.options.items() if key.partition(".")[0] == OBSERVER}

    @property
    def own_options(self) -> dict[str, str]:
        """The options without those common to all backends."""
        return {key: value for key, value in self.options.items() if key.partition(".")[0] not in (STRATEGY, OBSERVER)}

    def __str__(self) -> str:
        options = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}:{options}" if options else self.name


@dataclass(frozen=True)
class PinOrigin:
    """The origin of a pin that the user did not write.

    Attributes:
        asked: File, line and key, for messages: `config.yaml:31, run_on_bpu`.
        may_be_declined: Whether the backend may decline the node: the node is then placed without the pin, with a
            remark. Otherwise a rejection is an error, as for the user's own pins.
        if_declined: How the tool that the file belongs to treats such a node, as a clause for the remark.
    """

    asked: str
    may_be_declined: bool = False
    if_declined: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, without fields at their defaults."""
        return {key: value for key, value in vars(self).items() if value}


@dataclass(frozen=True)
class Request:
    """Everything that determines a compilation besides the model and the installed plugins.

    Attributes:
        backends: The backends in order of preference.
        strategy: Overrides the strategies of the backends.
        solver: Solver of the typing problem: `forward`, `fixpoint`, `min-cut`, or a registered one.
        costs: Cost table of the solver `min-cut`: a file, or the name of a registered one.
        pins: Manual placements, `SELECTOR=backend/precision`.
        edits: Graph edits by name, `KIND=NODE[:before|after]`.
        low: Selectors of nodes to compute in the low precision regardless of their policy.
        high: Selectors of nodes to compute in the types of the source model.
        keep_io_types: Keep the types of the model's inputs and outputs.
        freeze_inputs: Turn inputs that have a default value into constants.
        data: Calibration and verification data: a path, or arrays by input name.
        plan: A plan to replay.
        options: Records of plugin keywords that affect the result, by name of the owning option.
        pin_origins: Origins of pins that the user did not write, by the text of the pin.
    """

    backends: tuple[BackendChoice, ...] = ()
    strategy: str | None = None
    solver: str = "forward"
    costs: str | None = None
    pins: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    low: tuple[str, ...] = ()
    high: tuple[str, ...] = ()
    keep_io_types: bool = True
    freeze_inputs: bool = False
    data: Any = None
    plan: Plan | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    pin_origins: Mapping[str, PinOrigin] = field(default_factory=dict)

    @classmethod
    def of(cls, *backends: str | BackendChoice, **rest: Any) -> Request:
        """Build a request for `backends`, each as text or as a choice; `rest` may hold any iterables and paths."""
        for name in ("pins", "low", "high"):
            given = rest.get(name) or ()
            rest[name] = (given,) if isinstance(given, str) else tuple(given)
        given = rest.get("edits") or ()
        rest["edits"] = tuple(map(str, given if isinstance(given, (list, tuple)) else [given]))
        rest["costs"] = str(rest["costs"]) if rest.get("costs") else None
        return cls(tuple(BackendChoice.parse(backend) for backend in backends), **rest)

    def choice(self, backend: str) -> BackendChoice | None:
        """Return the choice of a backend; None if it is not chosen."""
        return next((choice for choice in self.backends if choice.name == backend), None)

    @property
    def observers(self) -> dict[str, ObserverChoice]:
        """Return the observers that the user chose, by backend name."""
        return {choice.name: choice.observer for choice in self.backends if choice.observer is not None}

    def as_dict(self) -> dict[str, Any]:
        """Return the request as plain data; data given as arrays is left out."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        return plain | {
            "backends": [str(choice) for choice in self.backends],
            "data": str(self.data) if isinstance(self.data, (str, Path)) else None,
            "plan": self.plan.as_dict() if self.plan is not None else None,
            "options": dict(self.options),
            "pin_origins": {pin: origin.as_dict() for pin, origin in self.pin_origins.items()},
        }

    def recorded(self) -> Request:
        """Return the request without data in memory."""
        return self if isinstance(self.data, (str, Path, type(None))) else replace(self, data=None)

    def changed(self) -> dict[str, Any]:
        """Return the fields that differ from those of an empty request, as plain data; `from_dict` parses it."""
        default = Request().as_dict()
        return {name: value for name, value in self.as_dict().items() if value != default[name]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], plan: Plan | None = None) -> Request:
        """Parse a mapping of `as_dict`, except for the plan in it, which a store reads and the caller passes as `plan`.

        Raises:
            DovetailError: A field is unknown or malformed.
        """
        try:
            values = {**data, "plan": plan}
            backends = tuple(BackendChoice.parse(text) for text in values.pop("backends", ()))
            values |= {name: tuple(values.get(name, ())) for name in ("pins", "edits", "low", "high")}
            origins = {pin: PinOrigin(**origin) for pin, origin in values.pop("pin_origins", {}).items()}
            return cls(backends, pin_origins=origins, **values)
        except (TypeError, ValueError, AttributeError) as error:
            raise DovetailError(f"the request cannot be read: {error}", "leave it out, or take it as saved") from None
