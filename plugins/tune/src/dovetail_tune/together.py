"""Trying candidates on the machines of an executor: conversions beside each other, timings alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dovetail_tune.answers import Answer
from dovetail_tune.candidates import Candidate
from dovetail_tune.hosts import Hosts
from dovetail_tune.trying import NOT_TRIED, PREPARED, QUICK_RULES, Bench, Tried

_TIME_UP = "not tried to the end: the time was up"


def try_together(bench: Bench, hosts: Hosts, candidates: Sequence[Candidate], first: Candidate) -> Iterator[Tried]:
    """Try candidates as `Bench.try_` does, and yield what is known of each, in their order.

    All conversions are sent at once. A candidate is timed beside the baseline, in one task, once it is known that no
    candidate in front of it has the same result.

    Args:
        bench: Knows the files and what was tried before.
        hosts: The machines.
        candidates: The candidates.
        first: The baseline, which was tried.

    Raises:
        LostError: No machine answers; the journal has everything up to then.
    """
    waiting: list[tuple[Candidate, Callable[[], Answer] | None]] = [
        (candidate, _sent(bench, hosts, candidate)) for candidate in candidates
    ]
    timed: list[tuple[Tried, str, Callable[[], Answer] | None]] = []
    for candidate, converted in waiting:
        tried, digest = _prepared(bench, candidate, converted)
        race = None
        if converted is not None and tried.status == PREPARED and not candidate.is_baseline:
            jobs = {name: bench.job("load", one) for name, one in (("", first), (candidate.name, candidate))}
            race = hosts.compare(jobs, QUICK_RULES, bench.deadline)
        timed.append((tried, digest, race))
    for tried, digest, race in timed:
        yield tried if race is None else _timed(bench, tried, digest, race)


def _sent(bench: Bench, hosts: Hosts, candidate: Candidate) -> Callable[[], Answer] | None:
    """Send the conversion of a candidate; None if it was tried before, or no time is left."""
    if bench.recalled(candidate) is not None or bench.deadline.is_over:
        return None
    return hosts.convert({**bench.job("prepare", candidate), "known": []}, bench.deadline)


def _prepared(bench: Bench, candidate: Candidate, converted: Callable[[], Answer] | None) -> tuple[Tried, str]:
    """Return what a conversion gave, and the digest of its result."""
    if converted is None:
        return bench.recalled(candidate) or Tried(candidate, NOT_TRIED, "not tried: the time was up"), ""
    try:
        answer = converted()
    except TimeoutError:
        return Tried(candidate, NOT_TRIED, _TIME_UP), ""
    if answer.failed:
        return _without_result(bench, candidate, answer.failed[""]), ""
    found = answer.found[""]
    tried = bench.judged(candidate, found)
    if tried.status != PREPARED or candidate.is_baseline:
        bench.record(tried, found["digest"])
    return tried, found["digest"]


def _timed(bench: Bench, tried: Tried, digest: str, race: Callable[[], Answer]) -> Tried:
    """Add the ratio to the baseline, and record the candidate."""
    try:
        answer = race()
    except TimeoutError:
        return Tried(tried.candidate, NOT_TRIED, _TIME_UP)
    name = tried.candidate.name
    if why := answer.failed.get(name) or answer.failed.get(""):
        return _without_result(bench, tried.candidate, why)
    tried.against, tried.run_seconds = answer.race.ratio(name, ""), answer.race.seconds(name)
    return bench.record(tried, digest)


def _without_result(bench: Bench, candidate: Candidate, why: str) -> Tried:
    """Record that a candidate failed, unless that may be for lack of time."""
    return Tried(candidate, NOT_TRIED, _TIME_UP) if bench.deadline.is_over else bench.failed(candidate, why)
