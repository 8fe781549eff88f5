"""Checks of plugin classes: they derive from the base class of their kind, and implement all abstract methods."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from dovetail.errors import DovetailError
from dovetail.plugin.loading.isolation import calling

T = TypeVar("T")


def class_of(found: Any, title: str, contract: type[T]) -> type[T]:
    """Check a class that a plugin registered, and return it.

    Args:
        found: The class.
        title: Kind, name and distribution, for messages.
        contract: The base class of its kind, from `dovetail.plugin`.

    Raises:
        DovetailError: It does not derive from `contract`, or leaves a method abstract.
    """
    if not (isinstance(found, type) and issubclass(found, contract)):
        raise _breach(title, f"is no {contract.__name__}", contract)
    if inspect.isabstract(found):
        lacking: frozenset[str] = vars(found)["__abstractmethods__"]
        raise _breach(title, f"has no {', '.join(sorted(lacking))}", contract)
    return found


def made(found: Any, title: str, contract: type[T], *arguments: object) -> T:
    """Instantiate a class that a plugin registered, and check the instance; see `class_of`.

    Raises:
        DovetailError: The class violates the contract, or its constructor fails.
    """
    cls = class_of(found, title, contract)
    with calling(title):
        thing = cls(*arguments)
    return derived(thing, title, contract)


def derived(thing: Any, title: str, contract: type[T]) -> T:
    """Check that an object derives from `contract`, and sets the attributes that have no default there.

    Raises:
        DovetailError: It does not; the hint names the base class.
    """
    if not isinstance(thing, contract):
        raise _breach(title, f"is {type(thing).__name__}, which is no {contract.__name__}", contract)
    declared = [name for cls in reversed(contract.__mro__) for name in cls.__dict__.get("__annotations__", ())]
    # Look a property up on the class: evaluating it could be expensive or fail.
    if lacking := [name for name in declared if not (hasattr(type(thing), name) or hasattr(thing, name))]:
        raise _breach(title, f"has no {', '.join(lacking)}", contract)
    return thing


def overrides(thing: object, contract: type, name: str) -> bool:
    """Check whether an object overrides a default method of `contract`."""
    return getattr(type(thing), name, None) is not getattr(contract, name)


def _breach(title: str, what: str, contract: type) -> DovetailError:
    package = contract.__module__.partition(".")[0]  # kinds that a distribution declares have their contract there
    public = "dovetail.plugin" if package == "dovetail" else package
    way = f"derive it from {public}.{contract.__name__}; docs/plugins.md says what each kind does"
    return DovetailError(f"{title} {what}", way)
