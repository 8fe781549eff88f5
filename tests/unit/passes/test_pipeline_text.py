import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from dovetail.errors import DovetailError, UsageError
from dovetail.passes import Fixpoint, Nested, Pass, Pipeline
from dovetail.plugin import Registry
from hypothesis import given
from hypothesis import strategies as st


@dataclass(frozen=True)
class Plain(Pass):
    """Do nothing."""

    name: ClassVar[str] = "plain"

    def run(self, model, ctx):
        return False


@dataclass(frozen=True)
class Typed(Pass):
    name: ClassVar[str] = "typed"
    whole: int = 1
    real: float = 1.0
    flag: bool = False
    word: str = ""
    mode: Literal["fast", "exact"] = "fast"
    path: Path | None = None
    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] | None = None
    pair: tuple[int, str] = (0, "")
    either: int | str = 0
    anything: Any = None

    def run(self, model, ctx):
        return False


@dataclass(frozen=True)
class Needy(Pass):
    name: ClassVar[str] = "needy"
    level: int

    def __post_init__(self):
        if self.level < 0:
            raise ValueError("level must not be negative")

    def run(self, model, ctx):
        return False


REGISTRY = Registry("acme")
REGISTRY.pipeline("twice", "plain,plain")
REGISTRY.pipeline("more", "twice,fixpoint(typed{whole=2}),backend:npu(twice)")
for cls in (Plain, Typed, Needy):
    REGISTRY.pass_(cls.name, f"{__name__}:{cls.__name__}")


def parse(text):
    return Pipeline.parse(text, REGISTRY)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["true", "none", "1", "1.5", "-3", "1e-5", "inf", "1_0", "a,b", "x=1", '"', "[", "bpu-int8", "a/b:c", "\\", "nan"]
)
reals = st.floats(allow_nan=False)
scalars = st.integers() | reals | st.booleans() | st.none() | text
passes = (
    st.just(Plain())
    | st.builds(Needy, level=st.integers(0))
    | st.builds(
        Typed,
        whole=st.integers(),
        real=reals,
        flag=st.booleans(),
        word=text,
        mode=st.sampled_from(["fast", "exact"]),
        path=st.none() | st.sampled_from([Path("a/b"), Path("with space"), Path("none"), Path("7")]),
        names=st.lists(text, max_size=3).map(tuple),
        sizes=st.none() | st.lists(st.integers(), max_size=3).map(tuple),
        pair=st.tuples(st.integers(), text),
        either=st.integers() | text,
        anything=scalars | st.lists(scalars | st.lists(scalars, max_size=2).map(tuple), max_size=3).map(tuple),
    )
)
steps = st.recursive(
    passes,
    lambda inner: (
        st.builds(Fixpoint, st.lists(inner, max_size=3).map(tuple), st.integers(1, 99))
        | st.builds(Nested, st.just("npu"), st.lists(passes, max_size=3).map(tuple))
    ),
    max_leaves=6,
)


@given(st.lists(steps, max_size=4).map(Pipeline))
def test_every_pipeline_comes_back_from_its_text(pipeline):
    again = parse(str(pipeline))
    assert again == pipeline
    assert str(again) == str(pipeline)


@given(st.text(alphabet='ap{}()[],="\\ 1-fixpointlayed', max_size=30))
def test_any_text_is_a_pipeline_or_a_usage_error(text):
    with contextlib.suppress(UsageError):
        pipeline = parse(text)
        assert parse(str(pipeline)) == pipeline


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "typed{whole=22},plain",
        "typed{names=bpu-int8}",
        "typed{names=[bpu-int8,cpu-bf16]}",
        "typed{flag=true,sizes=[]}",
        'typed{word="a b"}',
        "fixpoint(plain,typed),plain",
        "fixpoint{limit=3}(fixpoint(plain),plain)",
        "plain,backend:bpu-int8(plain,fixpoint(typed)),plain",
        "fixpoint(backend:acme(plain))",
    ],
)
def test_canonical_text_stays_as_it_is(text):
    assert str(parse(text)) == text


def test_other_spellings_mean_the_same():
    assert parse(" typed { whole = 2 , flag } ,\n plain ") == Pipeline([Typed(whole=2, flag=True), Plain()])
    assert parse('typed{word="7"}') == parse("typed{word=7}") == Pipeline([Typed(word="7")])
    assert parse("typed{real=2}").steps[0].real == 2.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plian", "unknown pass 'plian' (did you mean 'plain'?)"),
        ("typed{hole=1}", "pass 'typed' has no option 'hole' (did you mean 'whole'?)"),
        ("typed{whole=x}", "option 'whole' of pass 'typed': 'x' is not of type int"),
        ("typed{whole=1.5}", "'1.5' is not of type int"),
        ('typed{whole="1"}', "'1' is not of type int"),
        ("typed{whole=[1]}", "a list is not allowed here"),
        ("typed{flag=maybe}", "'maybe' is not of type bool"),
        ("typed{mode=fats}", "'fats' is not one of fast, exact (did you mean 'fast'?)"),
        ("typed{pair=[1]}", "2 values are expected, 1 given"),
        ("typed{sizes=[1,a]}", "option 'sizes' of pass 'typed': 'a' is not of type int"),
        ("typed{either=[1]}", "fits none of int, str"),
        ("typed{whole=1,whole=2}", "column 15: option 'whole' is given twice"),
        ("needy", "pass 'needy' needs option 'level'"),
        ("needy{level=-1}", "pass 'needy': level must not be negative"),
        ("plain,", "column 7: a name expected, the end found"),
        ("plain plain", "column 7: ',' expected, 'plain' found"),
        ("plain{", "column 7: a name expected, the end found"),
        ("plain}", "column 6: ',' expected, '}' found"),
        ("fixpoint", "column 9: '(' expected, the end found"),
        ("fixpoint(plain", "column 15: ')' expected, the end found"),
        ("fixpoint{limit=0}(plain)", "'limit' of fixpoint must be a positive integer"),
        ("fixpoint{rounds=2}(plain)", "fixpoint has no option 'rounds'"),
        ("backend:npu", "column 12: '(' expected, the end found"),
        ("backend:(plain)", "a nested pipeline needs the name of a backend"),
        ("backend:npu{limit=2}(plain)", "backend:npu has no options"),
        ("backend:npu(backend:gpu(plain))", "backend:gpu(plain) is inside of backend:npu(...)"),
        ("backend:gpu(more)", "backend:npu(plain,plain) is inside of backend:gpu(...)"),
        ("twice{n=2}", "pipeline 'twice' of acme has no options"),
        ("twize", "unknown pass 'twize' (did you mean 'twice'?)"),
        ("fixpoint(" * 60 + ")" * 60, "brackets are nested deeper than 50 levels"),
        ('typed{word="a', "column 12: a string is not closed"),
        ('typed{word="\\q"}', "column 12: not a string"),
    ],
)
def test_errors_say_where_and_what(text, message):
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_a_value_that_has_no_text_is_refused():
    with pytest.raises(TypeError, match="cannot hold set"):
        str(Typed(anything={1}))


def test_registered_things_that_are_no_passes_are_named():
    registry = Registry("acme")
    registry.pass_("not-a-pass", "json:JSONDecoder")
    registry.pass_("other-name", f"{__name__}:Plain")
    with pytest.raises(DovetailError, match="'not-a-pass' of acme is not a subclass"):
        Pipeline.parse("not-a-pass", registry)
    with pytest.raises(DovetailError, match="'other-name' of acme calls itself 'plain'"):
        Pipeline.parse("other-name", registry)


def test_a_registered_pipeline_stands_for_its_steps():
    assert str(parse("more,plain")) == "plain,plain,fixpoint(typed{whole=2}),backend:npu(plain,plain),plain"
    assert parse("fixpoint(twice)") == Pipeline([Fixpoint((Plain(), Plain()))])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"a": "plain,a"}, "pipeline 'a' of acme contains itself: a -> a"),
        ({"a": "b", "b": "plain,fixpoint(c)", "c": "b"}, "pipeline 'b' of acme contains itself: b -> c -> b"),
        ({"a": "plian"}, "pipeline 'a' of acme: unknown pass 'plian' (did you mean 'plain'?)"),
        ({"a": "plain plain"}, "pipeline 'a' of acme: pipeline text, column 7"),
        ({"a": "b", "b": "typed{hole=1}"}, "pipeline 'b' of acme: pass 'typed' has no option 'hole'"),
        ({"a": "plain", "plain": "a"}, "pipeline 'plain' of acme has the name of a pass of acme"),
    ],
)
def test_a_registered_pipeline_that_is_at_fault_is_named(texts, message):
    registry = Registry("acme")
    registry.pass_("plain", f"{__name__}:Plain")
    registry.pass_("typed", f"{__name__}:Typed")
    for name, content in texts.items():
        registry.pipeline(name, content)
    with pytest.raises(DovetailError) as caught:
        Pipeline.parse("plain" if "plain" in texts else "a", registry)
    assert message in str(caught.value)
    assert caught.value.exit_code == 1


def test_an_empty_pipeline_cannot_be_registered():
    with pytest.raises(DovetailError, match="target ' ' of pipeline 'a' is not of the form"):
        Registry("acme").pipeline("a", " ")


def test_pipelines_are_edited_by_name():
    pipeline = parse("plain,fixpoint(typed)")
    pipeline.insert_before("typed", Needy(1))
    pipeline.insert_after("typed", Needy(2))
    assert str(pipeline) == "plain,needy{level=1},fixpoint(typed),needy{level=2}"
    with pytest.raises(DovetailError, match="did you mean 'plain'"):
        pipeline.index("plan")
