"""The installed options of a compilation: their keywords, their records in the request, and the phases they act in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, UsageError
from dovetail.ir.model import Model
from dovetail.planning.request import Request
from dovetail.plugin.loading.contracts import overrides
from dovetail.plugin.options import COMPILE_KEYWORDS, InstalledOption, Option, blaming, installed_options, returned
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    from dovetail.passes import Context
    from dovetail.planning.plan import Plan
    from dovetail.plugin.loading.registry import Registry


class OptionPhases:
    """The options that take part in one compilation, or examine one plan.

    Args:
        registry: The registry with the installed options.
        keywords: The caller's keyword arguments that are not parameters of the function.
        command: The function: `compile` or `plan`.

    Attributes:
        keywords: The same, each owned by an option.

    Raises:
        UsageError: No option owns one of the keywords.
    """

    def __init__(self, registry: Registry, keywords: Mapping[str, Any], command: str = "compile"):
        self._options = installed_options(registry, command)
        self.keywords = dict(keywords)
        for name in keywords:
            if not self.owns(name):
                owned = [keyword for found in self._options for keyword in found.option.keywords]
                raise _unknown(command, name, owned)

    def owns(self, keyword: str) -> bool:
        """Check whether an installed option owns a keyword."""
        return any(keyword in found.option.keywords for found in self._options)

    def recorded(self) -> dict[str, dict[str, Any]]:
        """Return the options' records of the keywords that shape the result, by option name; empty records are left
        out.

        Raises:
            DovetailError: A keyword has an invalid value, or an option records data that cannot be saved.
        """
        found: dict[str, dict[str, Any]] = {}
        for option in self._options:
            with blaming(option):
                given = dict(option.option.recorded(self._own(option)))
            try:
                json.dumps(given)
            except (TypeError, ValueError) as error:
                raise DovetailError(
                    f"{option.title} records what no file can hold: {error}", f"report it to {option.owner}"
                ) from None
            if given:
                found[option.name] = given
        return found

    def source(self, model: Model, request: Request) -> Model:
        """Return the model that is compiled, after every option with a record had its say.

        Args:
            model: The model that was opened.
            request: The request, with the records of a replayed plan.

        Raises:
            DovetailError: A keyword has an invalid value, or asks for something that the model does not have.
        """
        records = {**request.options, **self.recorded()}
        for found in self._options:
            if found.name in records:
                with blaming(found):
                    model = found.option.source(model, records[found.name])
                model = returned(found, model, Model, "model")
        return model

    def requested(self, request: Request, model: Model) -> Request:
        """Return the request extended by what the options' keywords ask for and by what the options record.

        For its own name in `Request.options`, an option's record wins over the entry of any other option.

        Raises:
            DovetailError: A keyword has an invalid value, or asks for something that the model does not have.
        """
        for found in self._options:
            if own := self._own(found):
                with blaming(found):
                    request = found.option.requested(request, model, own)
                request = returned(found, request, Request, "request")
        return replace(request, options={**request.options, **self.recorded()})

    def planned(self, plan: Plan, model: Model, ctx: Context) -> Plan:
        """Return the plan after every option that implements `planned` examined it.

        Raises:
            DovetailError: An option cannot examine the plan.
        """
        for found in self._options:
            if own := self._own(found):
                with blaming(found):
                    found.option.planned(plan, model, ctx, own)
        return plan

    def given(self, found: InstalledOption) -> bool:
        """Check whether the caller gave one of an option's keywords."""
        return any(self._own(found).values())

    def acting(self, phase: str) -> list[InstalledOption]:
        """Return the options that implement a phase of a compilation."""
        return [found for found in self._options if overrides(found.option, Option, phase)]

    def _own(self, found: InstalledOption) -> dict[str, Any]:
        return {name: value for name, value in self.keywords.items() if name in found.option.keywords}


def _unknown(command: str, name: str, owned: list[str]) -> UsageError:
    known = sorted(owned)
    text = f"the installed options take {', '.join(known)}" if known else "no installed distribution adds any"
    return UsageError(
        f"dovetail.{command} has no keyword {name!r}{did_you_mean(name, [*known, *COMPILE_KEYWORDS])}",
        f"{text}; others come with the distributions that bring them",
    )
