"""Checks of what plugins bring: it derives from the base class of its kind, and nothing of it is left abstract."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from dovetail.errors import DovetailError
from dovetail.plugin.isolation import calling

T = TypeVar("T")


def class_of(found: Any, who: str, contract: type[T]) -> type[T]:
    """Check the class that a plugin registered.

    Args:
        found: The class.
        who: Its kind, its name and its distribution, for messages.
        contract: The base class of its kind, one of those in `dovetail.plugin`.

    Raises:
        DovetailError: It does not derive from `contract`, or leaves a method abstract.
    """
    if not (isinstance(found, type) and issubclass(found, contract)):
        raise _breach(who, f"is no {contract.__name__}", contract)
    if inspect.isabstract(found):
        lacking: frozenset[str] = vars(found)["__abstractmethods__"]
        raise _breach(who, f"has no {', '.join(sorted(lacking))}", contract)
    return found


def made(found: Any, who: str, contract: type[T], *arguments: object) -> T:
    """Call a class that a plugin registered, and check what it makes; see `class_of`.

    Raises:
        DovetailError: The class does not keep the contract, or fails.
    """
    cls = class_of(found, who, contract)
    with calling(who):
        thing = cls(*arguments)
    return derived(thing, who, contract)


def derived(thing: Any, who: str, contract: type[T]) -> T:
    """Check that an object derives from `contract`, and has the attributes that have no default there.

    Raises:
        DovetailError: It does not; the hint names the base class.
    """
    if not isinstance(thing, contract):
        raise _breach(who, f"is {type(thing).__name__}, which is no {contract.__name__}", contract)
    declared = [name for cls in reversed(contract.__mro__) for name in cls.__dict__.get("__annotations__", ())]
    # A property is there; what it gives is not asked for yet.
    if lacking := [name for name in declared if not (hasattr(type(thing), name) or hasattr(thing, name))]:
        raise _breach(who, f"has no {', '.join(lacking)}", contract)
    return thing


def overrides(thing: object, contract: type, name: str) -> bool:
    """Whether an object has a method of its own where `contract` has a default."""
    return getattr(type(thing), name, None) is not getattr(contract, name)


def _breach(who: str, what: str, contract: type) -> DovetailError:
    way = f"derive it from dovetail.plugin.{contract.__name__}; docs/plugins.md says what each kind does"
    return DovetailError(f"{who} {what}", way)
