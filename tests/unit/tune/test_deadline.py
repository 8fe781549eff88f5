"""Budgets: seconds above 0, counted from the beginning."""

import math

import pytest
from dovetail.errors import UsageError
from dovetail_tune.deadline import Deadline


def test_without_a_budget_there_is_no_end():
    deadline = Deadline()
    assert deadline.remaining == math.inf and not deadline.is_over and deadline.text == ""


def test_a_budget_runs_out_and_never_below_zero():
    assert Deadline(1e-9).remaining == 0 and Deadline(1e-9).is_over
    assert Deadline(1e6).text.endswith(" s left)")


@pytest.mark.parametrize("budget", [0, -1, "nan", "soon"])
def test_a_budget_is_a_number_above_0(budget):
    with pytest.raises(UsageError, match="--budget"):
        Deadline(budget)


def test_a_share_of_the_budget_ends_earlier_and_tells_the_time_of_the_whole():
    part = Deadline(1000).until(0.25)
    assert 249 < part.remaining <= 250 and part.text.startswith(" (")
    assert 999 <= float(part.text.split()[0][1:]) <= 1000
    assert Deadline().until(0.5).remaining == math.inf
