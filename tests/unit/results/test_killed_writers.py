"""Whenever a writer dies, the folder holds the old result or the new one, and what is left over goes away."""

import pytest
from dovetail_onnx.results import reading

from .conftest import describe, dies_at, files_of

FORMS = pytest.mark.parametrize("external", [False, True], ids=["inline", "external"])


@pytest.mark.slow
@FORMS
@pytest.mark.parametrize("reader", ["completes", "cannot write"])
def test_death_before_every_change(results, tmp_path, monkeypatch, external, reader):
    """The writer of `b` dies before its first rename, before its second, and so on."""
    if reader == "cannot write":
        monkeypatch.setattr(reading, "finish", lambda folder: None)
    seen, step = [], 0
    while step < 40:
        results["a"].save("out", external=external)
        if not dies_at(step, lambda: results["b"].save("out", external=external)):
            break
        seen.append(describe("out"))
        step += 1
    decided = seen.index("b")
    assert seen == ["a"] * decided + ["b"] * (len(seen) - decided)
    assert decided >= 3
    assert len(seen) - decided >= 3  # some deaths before the decisive rename, some after it
    results["b"].save("clean", external=external)
    assert files_of("out") == files_of("clean")
    assert not list((tmp_path / "out").glob(".*"))


@FORMS
def test_the_next_writer_removes_what_the_dead_have_left(results, tmp_path, external):
    for step in (0, 2, 5, 8):
        results["a"].save("out", external=external)
        dies_at(step, lambda: results["b"].save("out", external=external))
        results["a"].save("out", external=external)
        results["a"].save("clean", external=external)
        assert files_of("out") == files_of("clean")
        assert not list((tmp_path / "out").glob(".*"))


def test_the_first_reader_completes_what_was_decided(results):
    """What other tools find under the names of the files is the new result, too."""
    results["b"].save("clean")
    for step in range(40):
        results["a"].save("out")
        if not dies_at(step, lambda: results["b"].save("out")):
            break
        before = files_of("out")
        which = describe("out")
        assert files_of("out") == (files_of("clean") if which == "b" else before)


def test_two_writers_of_the_same_result(results):
    """One that dies in between has written the same, so nothing of it is missing."""
    results["a"].save("out")
    for step in range(12):
        dies_at(step, lambda: results["a"].save("out", external=False))
        assert describe("out") == "a"
