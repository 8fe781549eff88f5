"""Ranges: the right side of a limit, each form on both sides of its bound."""

import pytest
from dovetail_schemas.ranges import parse_range
from dovetail_schemas.terms import ABSENT, Unknown
from dovetail_schemas.yaml_source import parse_tree

ENV = {"KH": 4, "SW": 2, "H": Unknown("H"), "gone": ABSENT}


def read(text):
    return parse_range(parse_tree(f"r: {text}", "x.yaml").get("r"))


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("1..7", [1, 7, 3.5], [0, 8, "nearest"]),
        ("..2048", [2048, -5], [2049]),
        ("2..", [2, 10**12], [1]),
        ("-8..8", [-8, 8], [-9, 9]),
        ("..(KH-1)/2", [1, 1.5], [2]),
        ("..720*1024", [720 * 1024], [720 * 1024 + 1]),
        ("SW..KH", [2, 4], [1, 5]),
        ("[1, 2]", [1, 2], [0, 3]),
        ("[1, 4..]", [1, 4, 9], [2, 3]),
        ("[nearest, linear]", ["nearest", "linear"], ["cubic", 1]),
        ("pow2", [1, 2, 64], [0, 3, -2, 2.5, "x"]),
        ("=SW", [2], [1, 3]),
        ("=SW*2", [4], [2]),
        ("nearest", ["nearest"], ["linear"]),
        ("round_prefer_floor", ["round_prefer_floor"], ["floor"]),
        ("true", [True, 1], [False, 0]),
        ("false", [False, 0], [True, 1]),
        ("1", [1, 1.0, True], [0, "1"]),
        ("0.5", [0.5], [1]),
        ('"11"', ["11"], [11]),
        # lists: every element, unless a whole list is wanted
        ("1..7", [(1, 7), ()], [(1, 8)]),
        ("[1, 2]", [(1, 2, 1)], [(1, 3)]),
        ("pow2", [(1, 4)], [(1, 3)]),
        ("=SW", [(2, 2)], [(2, 1)]),
        ("[[2, 3]]", [(2, 3)], [(3, 2), (2,), (2, 3, 4), 2]),
        ("[[2, 3], [1]]", [(2, 3), (1,), 1], [(2,)]),
        # an end that the node does not have limits nothing
        ("..gone", [1, 10**9], []),
        ("=gone", [1], []),
    ],
)
def test_both_sides_of_the_bound(text, inside, outside):
    allowed = read(text)
    assert [value for value in inside if allowed.holds(value, ENV) is not True] == []
    assert [value for value in outside if allowed.holds(value, ENV) is not False] == []


def test_an_end_that_is_not_known_leaves_the_answer_open():
    assert read("..H").holds(1, ENV) == Unknown("H")
    assert read("2..H").holds(1, ENV) is False  # the other end is enough to say no
    assert read("=H").holds(1, ENV) == Unknown("H")
    assert read("[1, =H]").holds(2, ENV) == Unknown("H")
    assert read("[1, =H]").holds(1, ENV) is True


@pytest.mark.parametrize("text", ["1..7", "..(KH-1)/2", "[1, 2]", "[[2, 3]]", "pow2", "=SW", "nearest", "true"])
def test_a_range_is_shown_as_it_was_written(text):
    assert read(text).text == text
