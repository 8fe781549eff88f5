import itertools

import pytest
from dovetail.errors import DovetailError
from dovetail.passes import Pass, compose
from dovetail.plugin import Registry


def make_pass(name, stage="normalize", **constraints):
    return type(name, (Pass,), {"name": name, "stage": stage, "run": lambda self, model, ctx: False, **constraints})


@pytest.fixture
def compose_of(monkeypatch):
    """Compose a pipeline of passes that acme registered in the order given."""

    def composed(*passes, **arguments):
        registry = Registry("acme")
        for cls in passes:
            monkeypatch.setitem(globals(), f"pass_{cls.name}", cls)
            registry.pass_(cls.name, f"{__name__}:pass_{cls.name}")
        return str(compose(registry, **arguments))

    return composed


def test_stages_come_in_order_and_names_break_ties(compose_of):
    passes = [
        make_pass("z", "normalize"),
        make_pass("lowers", "emit"),
        make_pass("b", "place"),
        make_pass("a", "place"),
        make_pass("manual", None),
    ]
    for order in itertools.permutations(passes):
        assert compose_of(*order) == "z,a,b,lowers"


def test_constraints_order_passes_of_a_stage(compose_of):
    a = make_pass("a", requires=("c",))
    b = make_pass("b", after=("a", "absent"))
    c = make_pass("c", after=("d",))
    d = make_pass("d")
    e = make_pass("e", before=("d", "absent"))
    for order in itertools.permutations([a, b, c, d, e]):
        assert compose_of(*order) == "e,d,c,a,b"


def test_only_the_stages_asked_for(compose_of):
    passes = [make_pass("a", "analyze"), make_pass("b", "place", requires=("a",))]
    assert compose_of(*passes, stages=["place"]) == "b"
    with pytest.raises(DovetailError, match=r"unknown stage 'plaec' \(did you mean 'place'\?\)"):
        compose_of(*passes, stages=["plaec"])


def test_a_cycle_names_its_passes_and_plugins(compose_of):
    passes = [make_pass("a", after=("b",)), make_pass("b", after=("c",)), make_pass("c", after=("a",))]
    with pytest.raises(DovetailError) as caught:
        compose_of(*passes, make_pass("d", after=("a",)))
    assert str(caught.value) == (
        "passes want to run before each other: 'a' of acme before 'c' of acme before 'b' of acme before 'a' of acme"
    )


def test_a_pass_cannot_run_after_itself(compose_of):
    with pytest.raises(DovetailError, match="'a' of acme before 'a' of acme"):
        compose_of(make_pass("a", after=("a",)))


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ([make_pass("fold", requires=("infer",))], "'fold' of acme requires pass 'infer', which is not installed"),
        (
            [make_pass("fold", requires=("infer",)), make_pass("infer", None)],
            "requires pass 'infer', which belongs to no stage",
        ),
        (
            [make_pass("fold", after=("join",)), make_pass("join", "join")],
            "'fold' of acme wants 'join' before 'fold', but stage 'join' comes after stage 'normalize'",
        ),
        ([make_pass("fold", "normalizing")], "unknown stage 'normalizing'"),
        ([make_pass("fold", requires="infer")], "requires must be a tuple"),
    ],
)
def test_what_cannot_be_composed_names_the_plugin(compose_of, passes, message):
    with pytest.raises(DovetailError, match="of acme") as caught:
        compose_of(*passes)
    assert message in str(caught.value)


def test_a_pass_that_does_not_import_is_an_error_not_a_gap():
    registry = Registry("acme")
    registry.pass_("lost", "acme_no_such_module:Lost")
    with pytest.raises(DovetailError, match="pass 'lost' of acme cannot be loaded from acme_no_such_module:Lost"):
        compose(registry)
