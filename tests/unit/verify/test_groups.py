"""Groups of nodes: how they are split, what is measured, and which are raised. The runs are played."""

from types import SimpleNamespace

import pytest
from dovetail_verify.accuracy.groups import Groups, Unit
from dovetail_verify.accuracy.search import loudest_splittable, select_groups
from dovetail_verify.accuracy.trials import BROKEN, decibels, noise_of

Y = ("y", "whole")


class Played:
    """Trials in which every unit that is low adds its noise."""

    def __init__(self, noise, floor=0.0):
        self.noise, self.floor, self.runs = noise, floor, 0
        self._known = {}

    def measure(self, raised, lowered=(), why=""):
        """Propose nothing: what a trial gives is known."""
        yield from ()
        wanted = frozenset(raised), frozenset(lowered)
        if wanted not in self._known:
            self.runs += 1
            low = set(self.noise) - set(raised)
            self._known[wanted] = min(BROKEN, self.floor + sum(self.noise[name] for name in low))
        return SimpleNamespace(noise={Y: self._known[wanted]})


def groups_of(noise, prior=None, works=None, borders=0.0, follows=(), floor=0.0):
    noise = {f"n{index}": value for index, value in enumerate(noise)}
    trials = Played(noise, floor)
    works = works or [1.0] * len(noise)
    units = [Unit(name, "Conv", work, borders, name in follows) for name, work in zip(noise, works)]
    low, high = (found(trials.measure(raised)) for raised in ((), list(noise)))
    return Groups(trials, list(noise), units, low, high, prior), trials


def found(steps):
    """What a search returns whose trials need no compilation."""
    with pytest.raises(StopIteration) as done:
        next(steps)
    return done.value.value


def names(groups):
    return [group.names for group in groups]


@pytest.mark.parametrize("bad", [0, 1, 250, 499])
@pytest.mark.parametrize("told", [True, False, None])
def test_the_worst_of_five_hundred_is_found_in_thirteen_runs(bad, told):
    """Whatever the first look says: that it is the bad one, that it is another, or nothing."""
    suspect = {True: bad, False: 499 - bad}.get(told)
    groups, trials = groups_of([1e-6 if index != bad else 0.1 for index in range(500)], {f"n{suspect}": 1.0})
    found(groups.refine(lambda _: loudest_splittable(groups, groups.total()), 100))
    worst = max(groups.groups, key=lambda group: group.worst(groups.total()))
    assert worst.names == [f"n{bad}"]
    assert trials.runs <= 13


def test_groups_keep_the_order_of_the_graph_and_hold_every_unit():
    groups, _ = groups_of([0.1, 0.0, 0.2, 0.0, 0.05, 0.3, 0.0])
    found(groups.refine(lambda found: next((group for group in found if group.cuts), None), 100))
    assert names(groups.groups) == [[f"n{index}"] for index in range(7)]


def test_a_unit_that_follows_another_stays_with_it():
    groups, _ = groups_of([0.1, 0.0, 0.2, 0.0], follows=("n1", "n3"))
    found(groups.refine(lambda found: next((group for group in found if group.cuts), None), 100))
    assert names(groups.groups) == [["n0", "n1"], ["n2", "n3"]]


def test_runs_are_a_budget():
    groups, trials = groups_of([0.1] * 64)
    found(groups.refine(lambda _: loudest_splittable(groups, groups.total()), 6))
    assert trials.runs == 6
    assert len(groups.groups) == 5


def test_what_is_broken_twice_hides_nothing():
    groups, _ = groups_of([BROKEN, 0.0, 0.0, BROKEN])
    found(groups.refine(lambda found: next((group for group in found if group.cuts), None), 100))
    assert [group.noise[Y] >= BROKEN for group in groups.groups] == [True, False, False, True]


def test_what_everything_high_makes_is_nobodys_noise():
    groups, _ = groups_of([0.1, 0.0], floor=0.5)
    found(groups.refine(lambda found: next((group for group in found if group.cuts), None), 100))
    assert groups.total()[Y] == pytest.approx(0.6)
    assert [group.noise[Y] for group in groups.groups] == pytest.approx([0.1, 0.0])


def split(*arguments, **named):
    groups, _ = groups_of(*arguments, **named)
    found(groups.refine(lambda found: next((group for group in found if group.cuts), None), 1000))
    for group in groups.groups:
        found(groups.measure(group))
    return groups


@pytest.mark.parametrize(
    ("noise", "works", "borders", "allowed", "raised"),
    [
        ([0.1, 0.1, 0.1], [1, 1, 1], 0, 1.0, []),
        ([0.1, 0.5, 0.1], [1, 1, 1], 0, 0.25, ["n1"]),
        ([0.1, 0.5, 0.1], [1, 1, 1], 0, 0.05, ["n0", "n1", "n2"]),
        ([0.3, 0.3, 0.3], [1, 100, 1], 0, 0.3, ["n0", "n2"]),  # the cheap ones
        ([0.3, 0.01, 0.3], [1, 1, 1], 5, 0.02, ["n0", "n1", "n2"]),  # two conversions cost more than the one between
        ([0.3, 0.01, 0.3], [1, 50, 1], 5, 0.02, ["n0", "n2"]),
        ([BROKEN, 0.01, 0.01], [1, 1, 1], 0, 0.1, ["n0"]),
        ([BROKEN, 0.01, BROKEN], [9, 1, 9], 0, 0.1, ["n0", "n2"]),
    ],
)
def test_the_cheapest_selection(noise, works, borders, allowed, raised):
    groups = split(noise, works=works, borders=borders)
    assert [name for group in select_groups(groups, {Y: allowed}) for name in group.names] == raised


def test_selecting_is_linear_in_groups():
    groups = split([0.1, 0.01] * 200)
    found = select_groups(groups, {Y: 3.0})
    assert all(group.noise[Y] == pytest.approx(0.1) for group in found)
    assert len(found) == pytest.approx(190, abs=10)


@pytest.mark.parametrize("db", [-30.0, 0.0, 24.5, 140.0, float("inf"), float("-inf")])
def test_decibels_and_noise(db):
    assert decibels(noise_of(db)) == pytest.approx(db)
