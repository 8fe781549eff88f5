"""Shapes: names for extents."""

import pytest
from dovetail_schemas.terms import Mismatch, NameBinding, Unknown, parse_pattern
from dovetail_schemas.yaml_source import Scalar


def pattern(text, target="X"):
    return parse_pattern(target, Scalar("x.yaml", 1, text))


def lay(*pairs, pad=False):
    binding = NameBinding()
    for text, extents in pairs:
        binding.lay(pattern(text), extents, pad)
    return binding


@pytest.mark.parametrize(
    ("text", "extents", "names"),
    [
        ("N C H W", [1, 3, 8, 9], {"N": 1, "C": 3, "H": 8, "W": 9}),
        ("N _ H W", [1, 3, 8, 9], {"N": 1, "H": 8, "W": 9}),
        ("... K", [2, 3, 4], {"K": 4}),
        ("... K", [4], {"K": 4}),
        ("...", [], {}),
        ("1 C 1 1", [1, 5, 1, 1], {"C": 5}),
        ("N N", [3, 3], {"N": 3}),
        ("SH SW", (1, 2), {"SH": 1, "SW": 2}),
    ],
)
def test_names(text, extents, names):
    assert lay((text, extents)).values() == names


@pytest.mark.parametrize(
    ("text", "extents", "message"),
    [
        ("N C H W", [1, 3, 8], "X has 3 extents; allowed: X: N C H W"),
        ("N C", [1, 3, 8], "X has 3 extents; allowed: X: N C"),
        ("... A B", [1], "X has 1 extents; allowed: X: ... A B"),
        ("N 1", [4, 2], "extent 1 of X is 2, not 1; allowed: X: N 1"),
        ("N N", [4, 2], "extent 1 of X is 2, not N = 4; allowed: X: N N"),
    ],
)
def test_mismatch(text, extents, message):
    with pytest.raises(Mismatch) as caught:
        lay((text, extents))
    assert str(caught.value) == message


def test_the_same_name_is_the_same_extent_on_another_port():
    assert lay(("N C", [1, 3]), ("C K", [3, 7])).values() == {"N": 1, "C": 3, "K": 7}
    with pytest.raises(Mismatch):
        lay(("N C", [1, 3]), ("C K", [4, 7]))


def test_operators_that_broadcast_have_leading_ones():
    assert lay(("N C H W", [8, 9]), pad=True).values() == {"N": 1, "C": 1, "H": 8, "W": 9}
    with pytest.raises(Mismatch):
        lay(("C H W", [1, 2, 3, 4]), pad=True)


def test_an_extent_that_is_not_known():
    binding = lay(("N C H W", ["batch", 3, None, 9]))
    assert binding.values() == {"N": Unknown("N"), "C": 3, "H": Unknown("H"), "W": 9}
    assert binding.doubts == []  # a name takes anything


@pytest.mark.parametrize(
    ("pairs", "doubts"),
    [
        ([("1 C", ["n", 3])], ["extent 0 of X"]),
        ([("N N", ["n", "n"])], []),  # one symbolic extent is itself
        ([("N N", ["n", "m"])], ["extent 1 of X"]),
        ([("N N", [None, None])], ["extent 1 of X"]),
        ([("N C", None)], ["the rank of X"]),
    ],
)
def test_doubts(pairs, doubts):
    assert [what for what, _ in lay(*pairs).doubts] == doubts


def test_a_known_extent_replaces_one_that_is_not():
    assert lay(("N C", ["n", 3]), ("N K", [2, 7])).values()["N"] == 2
