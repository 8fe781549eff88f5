import io
from dataclasses import dataclass
from typing import ClassVar

import pytest
from dovetail.errors import DovetailError, UsageError
from dovetail.passes import Context, Fixpoint, Instrumentation, Pass, Pipeline, Request
from dovetail_commands.instrumentation import statistics_lines, timing_lines


@dataclass(frozen=True)
class Add(Pass):
    """Append a word."""

    name: ClassVar[str] = "add"
    word: str = "a"

    def run(self, model, ctx):
        model.words.append(self.word)
        model.touch()
        ctx.count("added")
        ctx.remark("passed", self.word, "add", "because it was asked for", because=["b"])
        return True


@dataclass(frozen=True)
class Drop(Pass):
    """Drop one word per run, without telling the model."""

    name: ClassVar[str] = "drop"

    def run(self, model, ctx):
        if not model.words:
            return False
        model.words.pop()
        return True


@dataclass(frozen=True)
class Crash(Pass):
    name: ClassVar[str] = "crash"
    how: str = "bug"

    def run(self, model, ctx):
        model.words.append("half")
        if self.how == "bug":
            return 1 / 0
        if self.how == "user":
            raise DovetailError("node n1 is at fault", "rename it")
        return None


class Length:
    computed: ClassVar[list] = []

    @classmethod
    def compute(cls, model, ctx):
        cls.computed.append(model.revision)
        return len(model.words)


class Hooks:
    def __init__(self):
        self.calls = []
        self.plugins = []

    def call(self, hook, *_, **arguments):
        self.calls.append((hook, arguments["pass_"].name))


def test_a_run_reports_changes_counts_seconds_and_remarks(words):
    model = words()
    result = Pipeline([Add("x"), Add("y"), Drop()]).run(model)
    assert (model.words, result.changed, result.model) == (["x"], True, model)
    assert [step.changed for step in result.passes] == [True, True, True]
    assert result.statistics == {"add": {"added": 2}}
    assert statistics_lines(result) == ["       2  add  added"]
    assert [(r.node, r.pass_, r.because) for r in result.remarks] == [("x", "add", ("b",)), ("y", "add", ("b",))]
    assert result.passes[1].remarks == result.remarks[1:]
    assert all(step.seconds > 0 for step in result.passes)
    assert [line.split("%")[1].strip() for line in timing_lines(result)] == ["add", "add", "drop", "verifier", "total"]


def test_the_revision_follows_what_a_pass_says_and_what_it_does(words):
    model = words("a")
    Pipeline([Drop()]).run(model)
    assert model.revision == 1
    assert not Pipeline([Drop()]).run(model).changed
    assert model.revision == 1


def test_a_fixpoint_runs_until_nothing_changes(words):
    model = words("a", "b", "c")
    result = Pipeline([Fixpoint((Drop(),))]).run(model)
    assert model.words == []
    assert [child.changed for child in result.passes[0].children] == [True, True, True, False]
    assert result.remarks == []
    assert "  drop (no change)" in timing_lines(result)[4]


def test_a_fixpoint_that_does_not_settle_says_so(words):
    result = Pipeline([Fixpoint((Add(),), limit=3)]).run(words())
    assert [r.rule for r in result.remarks] == ["add"] * 3 + ["fixpoint-limit"]
    assert result.remarks[-1].pass_ == "fixpoint"


def test_analyses_are_kept_per_revision(words):
    Length.computed.clear()
    model, ctx = words("a"), Context()
    ctx.model = model
    assert ctx.analysis(Length) == ctx.analysis(Length) == 1
    model.words.append("b")
    model.touch()
    assert ctx.analysis(Length) == 2
    assert ctx.analysis(Length, words()) == 0
    assert Length.computed == [0, 1, 0]
    with pytest.raises(ValueError, match="needs a model"):
        Context().analysis(Length)


def test_a_request_makes_a_context(words):
    seen = []

    @dataclass(frozen=True)
    class See(Pass):
        name: ClassVar[str] = "see"

        def run(self, model, ctx):
            seen.append((ctx.request.solver, ctx.current_pass))
            return False

    Pipeline([See()]).run(words(), Request(solver="min-cut"))
    assert seen == [("min-cut", "see")]


@pytest.mark.parametrize(
    ("settings", "printed"),
    [
        ({"print_before": ("drop",)}, ["before drop|a x"]),
        ({"print_after": ("add",)}, ["after add{word=x}|a x"]),
        ({"print_before": ("all",)}, ["before add{word=x}|a", "before drop|a x"]),
        ({"print_on_change": True}, ["after add{word=x}|a x", "after drop|a"]),
    ],
)
def test_models_are_printed_on_request(words, settings, printed):
    out = io.StringIO()
    Pipeline([Add("x"), Drop()]).run(words("a"), instrumentation=Instrumentation(out=out, **settings))
    lines = out.getvalue().splitlines()
    assert [f"{head[9:-6]}|{body}" for head, body in zip(lines[::2], lines[1::2])] == printed


def test_a_pass_that_changed_nothing_is_not_printed_as_a_change(words):
    out = io.StringIO()
    Pipeline([Drop()]).run(words(), instrumentation=Instrumentation(out=out, print_on_change=True))
    assert out.getvalue() == ""


def test_names_to_print_must_be_in_the_pipeline(words):
    for settings in ({"print_after": ("ad",)}, {"stop_after": "ad"}):
        with pytest.raises(UsageError, match=r"no pass 'ad' \(did you mean 'add'\?\)"):
            Pipeline([Add()]).run(words(), instrumentation=Instrumentation(**settings))


def test_stop_after_also_leaves_a_fixpoint(words):
    model = words("a", "b")
    pipeline = Pipeline([Fixpoint((Drop(), Add("z"))), Add("never")])
    result = pipeline.run(model, instrumentation=Instrumentation(stop_after="drop"))
    assert (model.words, result.stopped_after, len(result.passes)) == (["a"], "drop", 1)


def test_the_model_is_verified_at_first_and_after_each_change(words):
    with pytest.raises(DovetailError, match="^word 'bad' is not allowed"):
        Pipeline([Drop()]).run(words("bad"))
    with pytest.raises(DovetailError, match="pass 'add' of .*test_manager left an invalid model: word 'bad'") as caught:
        Pipeline([Add("bad")]).run(words())
    assert "defect of the pass" in caught.value.hint
    Pipeline([Add("bad")]).run(words(), instrumentation=Instrumentation(verify_each=False))


def test_a_pass_that_takes_anything_is_verified_even_if_it_changes_nothing(words):
    @dataclass(frozen=True)
    class Tolerant(Drop):
        name: ClassVar[str] = "tolerant"
        takes_anything: ClassVar[bool] = True

        def run(self, model, ctx):
            return "keep" not in model.words and super().run(model, ctx)

    assert Pipeline([Tolerant()]).run(words("bad")).changed
    with pytest.raises(DovetailError, match="'tolerant' .* left an invalid model"):
        Pipeline([Tolerant()]).run(words("bad", "keep"))


def test_a_model_that_is_handed_on_to_such_a_pass_is_verified_behind_that(words):
    @dataclass(frozen=True)
    class Elsewhere(Drop):
        name: ClassVar[str] = "elsewhere"
        takes_anything: ClassVar[bool] = True

        def run(self, model, ctx):
            return False

    @dataclass(frozen=True)
    class Tolerant(Drop):
        name: ClassVar[str] = "tolerant"
        takes_anything: ClassVar[bool] = True

    assert Pipeline([Elsewhere(), Tolerant()]).run(words("bad")).changed


def test_an_unexpected_error_names_pass_and_plugin_and_keeps_its_cause(words, shelve):
    out = io.StringIO()
    registry = shelve(Crash)
    with pytest.raises(DovetailError, match="pass 'crash' of acme failed: ZeroDivisionError: division") as caught:
        Pipeline([Crash()]).run(words("a"), Context(registry=registry), Instrumentation(print_on_failure=True, out=out))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert out.getvalue() == "// ----- failed in crash -----\na half\n"


@pytest.mark.parametrize(
    "error", [SystemExit(0), RecursionError("too deep"), MemoryError()], ids=lambda e: type(e).__name__
)
def test_whatever_a_pass_raises_is_said_of_the_pass(words, error):
    @dataclass(frozen=True)
    class Leave(Pass):
        name: ClassVar[str] = "leave"

        def run(self, model, ctx):
            raise error

    with pytest.raises(DovetailError, match=f"pass 'leave' of .*test_manager failed: {type(error).__name__}"):
        Pipeline([Leave()]).run(words("a"))


def test_an_interrupt_is_no_failure_of_the_pass(words):
    @dataclass(frozen=True)
    class Interrupted(Pass):
        name: ClassVar[str] = "interrupted"

        def run(self, model, ctx):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Pipeline([Interrupted()]).run(words("a"))


def test_a_source_at_fault_is_named_and_the_pass_is_not_blamed(words, tmp_path):
    model, reproducer = words("a"), tmp_path / "r.onnx"
    model.fault = "Add 'add' wants one type"
    with pytest.raises(DovetailError, match="^the words: the model is not correct: Add 'add' wants one type") as caught:
        Pipeline([Crash()]).run(model, instrumentation=Instrumentation(reproducer=reproducer))
    assert "found because pass 'crash' failed: ZeroDivisionError" in caught.value.hint
    assert "defect" not in str(caught.value)
    assert not reproducer.exists()


def test_an_error_made_for_the_user_passes_through(words):
    with pytest.raises(DovetailError) as caught:
        Pipeline([Crash("user")]).run(words())
    assert (caught.value.message, caught.value.hint) == ("node n1 is at fault", "rename it")
    assert caught.value.__cause__ is None


def test_a_pass_must_say_whether_it_changed_something(words):
    with pytest.raises(DovetailError, match=r"must return True \(changed something\) or False, and returned None"):
        Pipeline([Crash("silent")]).run(words())


def test_hooks_see_every_pass(words):
    ctx = Context()
    ctx.plugins = hooks = Hooks()
    with pytest.raises(DovetailError):
        Pipeline([Fixpoint((Drop(),)), Crash()]).run(words(), ctx)
    assert hooks.calls == [
        ("before_pass", "drop"),
        ("after_pass", "drop"),
        ("before_pass", "crash"),
        ("pass_failed", "crash"),
    ]


def test_progress_is_told_about_every_step(words):
    seen = []
    watch = Instrumentation(progress=lambda *what: seen.append(what))
    Pipeline([Add(), Fixpoint((Drop(),))]).run(words(), instrumentation=watch)
    assert seen == [("add", 0, 2), ("fixpoint(drop)", 1, 2), ("", 2, 2)]
