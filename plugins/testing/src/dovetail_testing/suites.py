"""The cases of each suite, and which of them a run takes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import UsageError
from dovetail.suggestions import did_you_mean

from dovetail_testing.case import SUITES, Case

if TYPE_CHECKING:
    from dovetail.plugin.loader import PluginSet


def cases(
    suite: str, plugins: PluginSet | None = None, *, models: str | Path | None = None, sample: int | None = None
) -> tuple[Case, ...]:
    """The cases of one suite.

    Args:
        suite: `nodes`, `operators` or `models`.
        plugins: Have the files of operators; by default all that are installed.
        models: A folder of models with their data, for the suite `models`.
        sample: How many to take, of as many operators as can be; by default all of them.

    Raises:
        UsageError: There is no such suite.
        DovetailError: A file of operators, or of the folder, is at fault.
    """
    if suite not in SUITES:
        raise UsageError(f"there is no suite '{suite}'{did_you_mean(suite, SUITES)}", f"suites: {', '.join(SUITES)}")
    found = all_cases([suite], plugins, models)
    return found if sample is None else sampled(found, sample)


def all_cases(
    suites: Iterable[str], plugins: PluginSet | None = None, models: str | Path | None = None
) -> tuple[Case, ...]:
    """The cases of several suites; see `cases`."""
    import dovetail

    found: list[Case] = []
    for suite in suites:
        if suite == "nodes":
            from dovetail_testing.node_cases import node_cases

            found += node_cases()
        elif suite == "operators":
            from dovetail_testing.operator_cases import operator_cases

            found += operator_cases(plugins or dovetail.load_plugins())
        else:
            from dovetail_testing.model_cases import model_cases

            found += model_cases(Path(models) if models is not None else None)
    return tuple(found)


def sampled(found: Sequence[Case], count: int) -> tuple[Case, ...]:
    """A sample that is the same in every run: one test of each operator, then a second one, and so on.

    Args:
        found: The cases; their order does not matter for what is taken, and is kept.
        count: How many to take.
    """
    groups: dict[str, list[Case]] = {}
    for case in sorted(found, key=_digest):
        groups.setdefault(case.operator or case.key, []).append(case)
    rounds = zip_longest(*sorted(groups.values(), key=lambda group: _digest(group[0])))
    chosen = {case.key for case in [case for each in rounds for case in each if case is not None][:count]}
    return tuple(case for case in found if case.key in chosen)


def shard_of(found: Collection[Case], number: int, count: int) -> tuple[Case, ...]:
    """The cases of one shard, by a hash of their names: a test that is added moves no other one.

    Args:
        found: The cases.
        number: Which shard, from 1.
        count: How many there are.
    """
    return tuple(case for case in found if int(_digest(case), 16) % count == number - 1)


def _digest(case: Case) -> str:
    return hashlib.sha256(case.key.encode()).hexdigest()
