import json
from dataclasses import dataclass
from typing import ClassVar

import pytest
from dovetail.errors import DovetailError
from dovetail.passes import METADATA_KEY, Context, Instrumentation, Pass, Pipeline, Request
from dovetail_commands.opt import changed_versions, read_reproducer, run_reproducer


@dataclass(frozen=True)
class Push(Pass):
    name: ClassVar[str] = "push"
    word: str = "a"

    def run(self, model, ctx):
        model.words.append(self.word)
        model.touch()
        return True


@dataclass(frozen=True)
class CrashOn(Pass):
    """Crash when the last word is `word` and the seed is 7."""

    name: ClassVar[str] = "crash-on"
    word: str = ""
    repaired: ClassVar[bool] = False

    def run(self, model, ctx):
        if model.words[-1] == self.word and ctx.request.solver == "min-cut" and not self.repaired:
            raise IndexError("last word")
        return False


@pytest.fixture
def crashed(tmp_path, words, shelve):
    """A run that crashed: its registry and its reproducer."""
    registry, path = shelve(Push, CrashOn), tmp_path / "new" / "crash.onnx"
    pipeline = Pipeline([Push("x y"), CrashOn("x y")])
    request = Request.of("bpu-int8:march=bayes", solver="min-cut", pins=("a=b/c",))
    with pytest.raises(DovetailError, match="IndexError") as caught:
        pipeline.run(words("start"), Context(request, registry=registry), Instrumentation(reproducer=path))
    assert f"dovetail opt {path} --run-reproducer" in caught.value.hint
    return registry, path


def test_the_file_holds_the_first_model_and_all_that_the_run_depends_on(crashed):
    registry, path = crashed
    model, data = read_reproducer(path, registry)
    assert model.words == ["start"]
    assert METADATA_KEY not in model.ir.metadata_props
    assert data["pipeline"] == 'push{word="x y"},crash-on{word="x y"}'
    assert Request.from_dict(data["request"]) == Request.of("bpu-int8:march=bayes", solver="min-cut", pins=("a=b/c",))
    assert "IndexError: last word" in data["error"]
    assert set(data["versions"]) >= {"dovetail-core", "onnx", "onnx-ir"}


def test_a_replay_fails_in_the_same_way_until_the_pass_is_repaired(crashed, monkeypatch):
    registry, path = crashed
    with pytest.raises(DovetailError, match="pass 'crash-on' of acme failed: IndexError: last word"):
        run_reproducer(path, registry)
    monkeypatch.setattr(CrashOn, "repaired", True)
    assert run_reproducer(path, registry).model.words == ["start", "x y"]


def test_versions_that_changed_are_told(crashed):
    registry, path = crashed
    _, data = read_reproducer(path, registry)
    assert changed_versions(data) == []
    data["versions"] |= {"dovetail-core": "0.0.1", "dovetail-acme": "1"}
    assert [line.partition(", is ")[0] for line in changed_versions(data)] == [
        "dovetail-core was 0.0.1",
        "dovetail-acme was 1",
    ]
    assert changed_versions(data)[1].endswith("is not installed")


def test_what_ran_before_is_part_of_the_pipeline(tmp_path, words, shelve):
    """The model in the file is the source, so the replay begins where the first of several pipelines began."""
    registry, path = shelve(Push, CrashOn), tmp_path / "r.onnx"
    model, ctx = words("start"), Context(Request(solver="min-cut"), registry=registry)
    Pipeline([Push("x")]).run(model, ctx)
    with pytest.raises(DovetailError, match="IndexError"):
        Pipeline([CrashOn("x")]).run(model, ctx, Instrumentation(reproducer=path))
    model, data = read_reproducer(path, registry)
    assert (model.words, data["pipeline"]) == (["start"], "push{word=x},crash-on{word=x}")


def test_a_reproducer_that_cannot_be_written_does_not_hide_the_error(tmp_path, words):
    (tmp_path / "file").write_text("")
    watch = Instrumentation(reproducer=tmp_path / "file" / "r.onnx")
    with pytest.raises(DovetailError, match="IndexError") as caught:
        Pipeline([CrashOn("a")]).run(words("a"), Request(solver="min-cut"), watch)
    assert "no reproducer could be written" in caught.value.hint


def test_a_pass_that_leaves_an_invalid_model_also_leaves_a_reproducer(tmp_path, words, shelve):
    path = tmp_path / "r.onnx"
    with pytest.raises(DovetailError, match="invalid model"):
        Pipeline([Push("bad")]).run(words("a"), instrumentation=Instrumentation(reproducer=path))
    with pytest.raises(DovetailError, match="invalid model"):
        run_reproducer(path, shelve(Push))


def test_other_files_are_refused(tmp_path, shelve):
    path = tmp_path / "m.onnx"
    path.write_text(json.dumps([["a"], {}]))
    with pytest.raises(DovetailError, match="is not a reproducer"):
        read_reproducer(path, shelve())
